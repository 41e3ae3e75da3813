"""AcceleratorDriver: one way to reach the devices of a vendor, and which of several is used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

# A device that the observed program uses, and how much of it, by fields of ``process.*`` metrics.
Usage = tuple[Device, Mapping[Field, object]]

# By PID of each process that uses a device, the bytes of its memory in use; None if unknown.
Holders = Mapping[int, "int | None"]


class Occupancy(NamedTuple):
    """Whether a new program can compute on a device.

    Attributes:
        pids: The processes that compute on it; None if they cannot be listed.
        mode: As nvidia-smi has it: EXCLUSIVE_PROCESS if one process at a time can compute on it, PROHIBITED if none
            can; "" if any can.
    """

    pids: Collection[int] | None
    mode: str = ""


class AcceleratorDriver(ABC):
    """One driver for the devices of a vendor: a library, the kernel's files, or a command-line tool.

    Opening it finds the devices, or raises Unavailable.

    Attributes:
        min_interval: Minimum seconds between two readings.
        reads_for_spans: Whether its devices have readings for spans; else the usual ones must do.
        errors: Why the newest reading is incomplete although it has points.
        is_fresh: Whether opening has read what the first :meth:`sample` would read.
        only_looks: Whether :meth:`usage` is called for the devices only: means since its last call are kept.
    """

    min_interval: float = 0.0
    reads_for_spans: bool = False
    errors: Sequence[str] = ()
    is_fresh: bool = False
    only_looks: bool = False

    @abstractmethod
    def devices(self) -> Sequence[Device]:
        """Return the devices that exist now. A device is always the same object.

        Called after opening, and before each slow read.
        """

    def sample(self) -> bool:
        """Prepare a reading, before the devices are read: run the tool, or read events or lines of a stream.

        Returns:
            Whether :meth:`devices` may have changed.
        """
        return False

    def sample_if_stale(self) -> bool:
        """Prepare a reading, unless opening has just done it."""
        is_fresh, self.is_fresh = self.is_fresh, False
        return not is_fresh and self.sample()

    def sample_slow(self) -> None:  # noqa: B027 - most read their devices one by one
        """Prepare a slow reading, before the slow values of the devices are read."""

    def usage(self, program: ProcessTree) -> Iterable[Usage]:
        """Yield the usage of each device by the observed program.

        Args:
            program: The processes of the observed program; ``program.among(pids)`` selects them from a list.
        """
        del program
        return ()

    def holders(self) -> Iterable[tuple[Device, Holders]]:
        """Yield the processes of all programs that use each device. Called after :meth:`usage`."""
        return ()

    def shares(self, device: Device) -> Mapping[int, float] | None:
        """Return by PID the share of the time in which a process ran on a device; None if that is unknown.

        A process that is missing did not run. Called after :meth:`holders`, if no program is observed.
        """
        del device
        return None

    def occupancy(self) -> Iterable[tuple[Device, Occupancy]]:
        """Yield the occupancy of each device, or of its parts if programs use only these."""
        return ()

    def unsupported(self) -> Iterable[str]:
        """Yield sentences about missing metrics, in addition to those of the devices."""
        return ()

    def close(self) -> None:  # noqa: B027 - most have nothing to release
        """Release the driver."""


class DriverChoice(NamedTuple):
    """A driver that may be used.

    Attributes:
        name: Its name in messages, such as ``NVML``.
        setting: The setting with its path or ``off``; "" if there is none.
        open: Opens the driver.
    """

    name: str
    setting: str
    open: Callable[[], AcceleratorDriver]


def open_first(
    choices: Iterable[DriverChoice], settings: Mapping[str, str | None], has_sign: bool, absent: str, fix: str
) -> tuple[AcceleratorDriver, str]:
    """Open the first driver that works. Without a sign, only drivers with a path in a setting are tried.

    Returns:
        The driver, and a sentence about those before it that do not work; "" if it is the first one.

    Raises:
        Unavailable: None of them can be used.
        OSError: One of them cannot be used now.
    """
    skipped: list[tuple[str, str]] = []  # why, and what to do
    failure: Exception | None = None
    for choice in choices:
        setting = settings.get(choice.setting)
        if setting == "off":
            skipped.append((f"{choice.name} is switched off", ""))
            continue
        if choice.setting and not (has_sign or setting_path(setting)):
            continue
        prefix = f"{choice.name}: " if len(settings) > 1 else ""
        try:
            driver = choice.open()
        except Unavailable as missing:
            skipped.append((_prefixed(prefix, missing.reason).rstrip("."), missing.fix))
        except (OSError, ValueError) as error:
            failure = error
            skipped.append((_prefixed(prefix, str(error)), ""))
        else:
            reasons = [f"{reason} ({todo})" if todo else reason for reason, todo in skipped]
            return driver, f"{'; '.join(reasons)}; {choice.name} is used instead" if reasons else ""
    reason = "; ".join(reason for reason, _ in skipped) or absent
    if failure is not None:  # it may pass
        raise OSError(reason) from failure
    fixes = [fix if has_sign else "", *(todo for _, todo in skipped)]
    raise Unavailable(reason, next(filter(None, reversed(fixes)), ""))


def _prefixed(prefix: str, reason: str) -> str:
    """Return a reason that begins with the name of its driver."""
    return reason if reason.startswith(prefix.rstrip(": ")) else f"{prefix}{reason}"
