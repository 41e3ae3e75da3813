"""Select the reported devices: by the setting ``DEVICES``, by variables like ``CUDA_VISIBLE_DEVICES``, or by use.

If the environment is ambiguous, all devices are selected, and :attr:`Selection.doubt` has the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.system.files import Files, read_text

# Variables of jobs of Slurm, PBS, LSF, Grid Engine, Flux, HTCondor and Kubernetes. In a job, the default is
# ``visible``; elsewhere ``all``.
SCHEDULERS: Final = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "SGE_TASK_ID",
    "FLUX_JOB_ID",
    "_CONDOR_SCRATCH_DIR",
    "KUBERNETES_SERVICE_HOST",
)

_PCI_DEVICES: Final = "/proc/bus/pci/devices"  # the PCI devices, each with its kernel driver

# Vendors with the same names for their devices: an index in ``DEVICES`` may mean a GPU of either.
_GPU_DRIVERS: Final = ("nvidia", "amdgpu", "i915", "xe")

_LOG = logger(__name__)


class Selection(NamedTuple):
    """The selected devices.

    Attributes:
        ids: The ids of devices and parts.
        doubt: Why the environment is ambiguous, in a sentence that begins with the variable; "" if it is not ambiguous.
        unmatched: Words that match no device.
    """

    ids: frozenset[str]
    doubt: str = ""
    unmatched: tuple[str, ...] = ()


def all_ids(devices: Sequence[Device]) -> frozenset[str]:
    """The ids of all devices and their parts."""
    return frozenset[str]().union(*(device.selection_ids for device in devices))


class Assignable(NamedTuple):
    """A device, or a part, that a program can be restricted to by an environment variable.

    Attributes:
        kind: Devices of different kinds cannot be mixed: ``GPU``, ``MIG instance``.
        name: Its name in messages.
        id: Its id in the source.
        word: Its name in the variable.
        trouble: Why it cannot be used; "" if it can.
    """

    kind: str
    name: str
    id: str
    word: str
    trouble: str = ""


class VisibilityRule(NamedTuple):
    """How environment variables restrict a vendor's programs to some of its devices.

    Attributes:
        noun: The word for a device in messages.
        metrics: The metrics that are missing if no device is selected.
        variables: The environment variables that restrict a program.
        select: Returns the devices that they leave.
        driver: The kernel drivers, separated by blanks, for vendors in :data:`_GPU_DRIVERS`.
        assignable: Returns what the first variable can restrict a program to.
    """

    noun: str = "device"
    metrics: str = "hw.*"
    variables: tuple[str, ...] = ()
    select: Callable[[Mapping[str, str], Sequence[Device]], Selection] = lambda _, devices: Selection(all_ids(devices))
    driver: str = ""
    assignable: Callable[[Sequence[Device]], Iterable[Assignable]] = lambda devices: ()


# -- names of devices


def select_by_name(words: Sequence[str], devices: Sequence[Device]) -> Selection:
    """Select the devices with these names. A word that matches none selects the unidentified ones that it may mean."""
    ids, unmatched = set[str](), []
    for word in words:
        matching = frozenset[str]().union(*matches(word, devices))
        if not matching and (is_uuid(word) or re.fullmatch("[0-9a-fA-F]{16}", word)):
            matching = unidentified(devices)
        elif not matching and _parse_address(word):
            matching = unidentified([device for device in devices if not device.address])
        ids |= matching
        if not matching:
            unmatched.append(word)
    return Selection(frozenset(ids), unmatched=tuple(unmatched))


def select_by_variable(
    name: str, environ: Mapping[str, str], devices: Sequence[Device], *, prefix: str = ""
) -> Selection:
    """Select the devices that a variable names without their prefix; all devices if it is empty or not set."""
    words = [f"{prefix}{word.strip()}" for word in environ.get(name, "").split(",") if word.strip()]
    chosen = select_by_name(words, devices) if words else Selection(all_ids(devices))
    return chosen._replace(unmatched=tuple(word.removeprefix(prefix) for word in chosen.unmatched))


def matches(word: str, devices: Sequence[Device]) -> Iterator[frozenset[str]]:
    """Return the ids of the devices that match a word: index, ``index:slot``, id, alias, address, or UUID prefix."""
    plain, address = word.casefold(), _parse_address(word)
    for device in devices:
        is_at_address = address is not None and address == _parse_address(device.address)
        if plain == str(device.index) or is_at_address or _is_name(plain, (device.selection_id, *device.aliases)):
            yield device.selection_ids
        for slot, part in device.selectable.items():
            if plain == f"{device.index}:{slot}" or _is_name(plain, (part.id, *part.aliases)):
                yield frozenset({part.id})


def unidentified(devices: Sequence[Device]) -> frozenset[str]:
    """The ids of the unidentified devices."""
    return frozenset(device.selection_id for device in devices if device.is_unidentified)


def is_uuid(word: str) -> bool:
    """Whether a word has the form of a UUID or of a UUID prefix."""
    return word[:4].casefold() in ("gpu-", "mig-")


def _is_name(word: str, names: Sequence[str]) -> bool:
    """Whether a word is one of the names, or a UUID prefix with the same instance numbers after it."""
    beginning, *instances = word.split("/")
    for name in names:
        uuid, *others = name.casefold().split("/")
        if name.casefold() == word or (is_uuid(word) and uuid.startswith(beginning) and others == instances):
            return True
    return False


def _parse_address(text: str) -> tuple[int, str] | None:
    """Split a PCI address into domain and rest. The domain has four to eight digits, or is missing."""
    match = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.casefold())
    return (int(match[1] or "0", 16), match[2]) if match else None


def printable(text: str) -> str:
    """Format the value of a variable for a message."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])


# -- the filter of a source


def selection_words(words: Sequence[str] | None, environ: Mapping[str, str]) -> list[str]:
    """Return the setting ``DEVICES``, or its default."""
    if words is not None:
        return [*words]
    return ["visible"] if any(environ.get(name, "").strip() for name in SCHEDULERS) else ["all"]


class DeviceFilter:
    """The devices that are reported. It is updated as devices and their use change.

    Args:
        words: The setting ``DEVICES``: ``all``, ``visible``, ``process``, or names of devices.
        environ: The environment, with the variables that restrict a program.
        rule: The meaning of these variables.
        files: The kernel's files, to find devices of other vendors that a word may mean.
        setting: The name by which the setting was given, for messages.

    Attributes:
        devices: All devices.
        by_use: Whether the selection depends on what the observed program uses.
        by_environ: Whether it depends on the environment.
    """

    def __init__(
        self,
        words: Sequence[str] | None = None,
        environ: Mapping[str, str] = MappingProxyType({}),
        rule: VisibilityRule = VisibilityRule(),  # noqa: B008 - immutable
        files: Files | None = None,
        setting: str = f"{PREFIX}DEVICES",
    ) -> None:
        self._setting = setting
        self._words = selection_words(words, environ)
        self._environ = environ
        self._rule = rule
        self._files = files
        self._used: set[str] = set()
        self._warned: set[str] = set()
        self._selection = Selection(frozenset())
        self.devices: Sequence[Device] = ()
        self.by_use = self._words == ["process"]
        self.by_environ = self._words == ["visible"]

    def update(self, devices: Sequence[Device]) -> None:
        """Select among these devices. A word that matches none is logged once."""
        self.devices = devices
        self._selection = self._select()
        new = [word for word in self._selection.unmatched if word not in self._warned]
        self._warned.update(new)
        new = [word for word in new if not self._may_be_other_vendor(word)]
        if new:
            existing = f"are {', '.join(map(_names, devices))}" if devices else "is none"
            _LOG.warning(
                "%s: there is no %s %s, left out; there %s",
                self._setting,
                self._rule.noun,
                redacted(", ".join(new)),
                existing,
            )

    def _select(self) -> Selection:
        if self.by_use:
            return Selection(all_ids(self.devices) & self._used)
        if self.by_environ:
            return self._rule.select(self._environ, self.devices)
        if self._words == ["all"]:
            return Selection(all_ids(self.devices))
        return select_by_name(self._words, self.devices)

    def _may_be_other_vendor(self, word: str) -> bool:
        """Whether a word may mean a GPU of another vendor, which has the same kind of names."""
        if not self._rule.driver or self._files is None:
            return False
        lines = read_text(self._files, _PCI_DEVICES).splitlines()
        drivers = [line.split()[-1] for line in lines if line.strip()]
        others = max(drivers.count(driver) for driver in _GPU_DRIVERS if driver not in self._rule.driver.split())
        return bool(others) and (not word.isdecimal() or int(word) < others)

    def add_used(self, id: str) -> None:  # noqa: A002
        """Record that the observed program uses a device."""
        if id not in self._used:
            self._used.add(id)
            self.update(self.devices)

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return self._words == ["all"] or id in self._selection.ids

    def unsupported(self) -> list[str]:
        """Return why more devices are reported than requested, or none."""
        rule = self._rule
        if self._selection.doubt:
            return [f"{self._selection.doubt}; all are reported"]
        if self._selection.ids or not self.devices:
            return []
        if self.by_use:
            return [f"{rule.metrics}: the program has used no {rule.noun} so far ({self._setting}=process)"]
        if self.by_environ:
            values = [f"{name}={printable(self._environ[name])}" for name in rule.variables if name in self._environ]
            subject = " and ".join(values) or "this container"
            return [f"{rule.metrics}: {subject} {'show' if len(values) > 1 else 'shows'} the program no {rule.noun}"]
        return [f"{rule.metrics}: no {rule.noun} is one of those in {self._setting}"]


def _names(device: Device) -> str:
    """Return the names of a device, for a message."""
    parts = (part.id for part in device.selectable.values())
    names = [device.selection_id, *device.aliases[:1], device.address, *parts]
    return f"{device.index} ({', '.join(dict.fromkeys(filter(None, names)))})"
