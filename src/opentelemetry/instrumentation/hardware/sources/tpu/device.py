"""The devices of a host, as numbered by the runtime, and counters that are summed over several programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.model import Number
from opentelemetry.instrumentation.hardware.sources.tpu.driver import Sample
from opentelemetry.instrumentation.hardware.sources.tpu.presence import PciChip
from opentelemetry.instrumentation.hardware.sources.tpu.runtime import Samples

_MAX_MICROSECONDS: Final = 1 << 50

Key = TypeVar("Key")


class Devices:
    """The devices of a host: chips, or on v2 and v3 the cores of chips.

    On v2 and v3, two cores share a duty cycle, which is reported for the chip. The runtime does not report which cores
    belong to a chip; it lists both in the same order.

    Args:
        chips: The chips on the PCI bus.
    """

    def __init__(self, chips: Sequence[PciChip]) -> None:
        self._pci = chips
        self._known: dict[tuple[str, str], Device] = {}
        self._whole: Device | None = None
        self._chips: dict[int, Device] = {}
        self._cores: dict[int, Device] = {}
        self._unnumbered = [
            _device(chip.bdf, f"TPU chip {place}", model=chip.kind.model, bdf=chip.bdf)
            for place, chip in enumerate(chips)
        ]

    def update(self, duty: Iterable[int], memory: Iterable[int]) -> None:
        """Update the devices from the numbers that report a duty cycle, and those that report memory."""
        chips, cores = sorted(duty), sorted(memory)
        shared = bool(self._pci) and self._pci[0].kind.shares_duty_cycle
        if shared and chips:
            self._chips = {number: self._chip(number) for number in chips}
        if cores and not shared:
            self._chips = {}
            self._cores = {number: self._chip(number) for number in cores}
        elif cores:
            parents = [chip.id for chip in self._chips.values() for _ in range(2)]
            parents = parents if len(parents) == len(cores) else [""] * len(cores)
            self._cores = {
                number: self._device(f"tpucore{number}", f"TPU core {number}", parent)
                for number, parent in zip(cores, parents)
            }

    def _device(self, id: str, name: str, parent: str = "") -> Device:  # noqa: A002
        if (id, parent) not in self._known:
            model = self._pci[0].kind.model if self._pci else ""
            self._known[id, parent] = _device(id, name, parent, model)
        return self._known[id, parent]

    def _chip(self, number: int) -> Device:
        return self._device(f"tpu{number}", f"TPU {number}")

    def chip(self, number: int) -> Device:
        """Return the device that the duty cycle with this number belongs to."""
        return self._chips.get(number) or self.core(number)

    def core(self, number: int) -> Device:
        """Return the device that the memory with this number belongs to."""
        return self._cores.get(number) or self._chip(number)

    def local(self, index: int, count: int) -> Device:
        """Return the device at an index among ``count`` devices of this host. The runtime may not count from 0."""
        cores = [*self._cores.values()]
        return cores[index] if index < count == len(cores) else self.core(index)

    def whole(self, model: str | None) -> Device:
        """Return the device that stands for all devices of a TPU node."""
        device = self._device("tpu", "TPU")
        if model:
            device.facts[c.HW_MODEL] = model
            self._whole = device
        return device

    def listed(self) -> list[Device]:
        """Return the known devices: those on the PCI bus until the runtime has numbered them."""
        numbered = dict.fromkeys((*self._chips.values(), *self._cores.values()))
        return [*(numbered or self._unnumbered), *filter(None, [self._whole])]

    def numbered(self) -> list[Device]:
        """Return every device that has had values."""
        return [*self._known.values()]


def _device(id: str, name: str, parent: str = "", model: str = "", bdf: str = "") -> Device:  # noqa: A002
    device = Device(id, name, "npu", parent)
    facts = {c.HW_VENDOR: "Google", c.HW_MODEL: model, c.PCI_BDF: bdf}
    device.facts = {fact: text for fact, text in facts.items() if text}
    return device


class Total(NamedTuple):
    """The accumulated count and sum of a distribution."""

    events: int = 0
    seconds: float = 0.0


def total(samples: Iterable[Sample]) -> Total | None:
    """Return the accumulated total of distributions of microseconds; None if there is no valid one."""
    events, microseconds, is_valid = 0, 0, False
    for sample in samples:
        count: Number = (sample.distribution or {}).get("count", -1)
        spent: Number = count * (sample.distribution or {}).get("mean", -1)
        if 0 <= count < 1 << 53 and 0 <= spent <= _MAX_MICROSECONDS:
            events, microseconds, is_valid = events + int(count), microseconds + round(spent), True
    return Total(events, microseconds / 1e6) if is_valid else None


class Accumulator:
    """Monotonic totals over programs that each count from 0."""

    def __init__(self) -> None:
        self._last: dict[tuple[object, str], Total] = {}
        self._sums: dict[object, Total] = {}

    def sums(self, name: str, answers: Mapping[str, Samples], key: Callable[[Sample], Key | None]) -> dict[Key, Total]:
        """Return the totals of a distribution over all programs, grouped by a key of its samples.

        Args:
            name: The name of the distribution.
            answers: The samples of each program.
            key: Returns the key of a sample; None to leave the sample out.
        """
        sums: dict[Key, Total] = {}
        for program, samples in answers.items():
            groups: dict[Key, list[Sample]] = {}
            for sample in samples.get(name, ()):
                group = key(sample)
                if group is not None:
                    groups.setdefault(group, []).append(sample)
            for group, listed in groups.items():
                now = total(listed)
                if now is not None:
                    sums[group] = self._add((name, group), program, now)
        return sums

    def _add(self, key: object, program: str, now: Total) -> Total:
        """Add the increase of a program's total since its last answer."""
        last = self._last.get((key, program), Total())
        if now.events < last.events:  # another program
            last = Total()
        before = self._sums.get(key, Total())
        # Seconds are a count times a rounded mean, which may fall a little.
        seconds = before.seconds + max(0.0, now.seconds - last.seconds)
        self._last[key, program] = now
        self._sums[key] = Total(before.events + now.events - last.events, seconds)
        return self._sums[key]
