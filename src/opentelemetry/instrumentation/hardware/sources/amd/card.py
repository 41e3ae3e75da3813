"""One GPU of AMD's, by the files that the kernel's driver amdgpu has for it under ``/sys/class/drm``.

https://docs.kernel.org/gpu/amdgpu/thermal.html says what each file holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Device
from opentelemetry.instrumentation.hardware.accelerators.unsupported import note
from opentelemetry.instrumentation.hardware.model import Number, Point, Rate
from opentelemetry.instrumentation.hardware.sources.amd.metrics import Metrics, revision
from opentelemetry.instrumentation.hardware.system.files import Files

DRM: Final = "/sys/class/drm"

FAN: Final = ("fan.ratio", "fan.speed")
"""What is said of a fan, which is a device of its own."""

_SENSORS: Final = {"edge": "edge", "junction": "junction", "mem": "memory"}
_DOMAINS: Final = {"sclk": "graphics", "mclk": "memory"}
_RAILS: Final = {"vddgfx": "gpu", "vddnb": "soc"}
_APUS: Final = frozenset({"74A0", "74A9"})
"""MI300A: chips of CPU and GPU whose table of metrics has the form of a board's."""

_ALL_ONES = (1 << 32) - 1


@dataclass(frozen=True)
class _Form:
    """How a number is spelled: in what unit, and what of it can be true.

    A device that is awake is above freezing and draws power: a 0 there says that there is no such sensor.
    """

    per: int = 1
    times: int = 1
    least: int = 0
    most: int = 1 << 62

    def __call__(self, said: bytes) -> Number:
        """The number in base units.

        Raises:
            ValueError: it is none that can be true.
        """
        word = said.strip()
        if not (word.isdigit() and len(word) < 20):
            raise ValueError(f"it says {said[:40].decode(errors='replace').strip()!r}")
        number = int(word)
        if not self.least <= number <= self.most:
            raise ValueError(f"{number} cannot be true")
        return number / self.per if self.per > 1 else number * self.times


_PERCENT = _Form(per=100, most=100)
_BYTES = _Form(most=1 << 50)
_CAPACITY = _Form(least=1, most=1 << 50)
_CELSIUS = _Form(per=1000, least=1, most=150_000)
_THRESHOLD = _Form(per=1000, least=20_000, most=150_000)
_WATTS = _Form(per=10**6, least=1, most=20_000 * 10**6)
_HERTZ = _Form(most=50 * 10**9)
_VOLTS = _Form(per=1000, least=1, most=100_000)
_RPM = _Form(most=100_000)
_DELAY = _Form(most=60_000)
_COUNT = _Form(most=_ALL_ONES - 1)


class _Read(NamedTuple):
    """A file and what it says."""

    path: str
    quantity: str
    parse: Callable[[bytes], Number]


class Card:
    """One GPU.

    Args:
        kernel: reads its files.
        name: of its folder: ``card0``.
        bdf: its PCI address.
        index: its place in the order of the addresses.
        pci: vendor and device number, ``1002:740F``.

    Attributes:
        device: makes its points; None as long as it was never seen awake.
        lost: why it does not answer.
        asleep: whether it is suspended; nothing is read of it then, because that would wake it.
        rest: seconds between two readings of it that let it fall asleep meanwhile; 0 where it is at work, or never
            sleeps.
        refused: by quantity, why it is not said.
    """

    def __init__(self, kernel: Files, name: str, bdf: str, index: int, pci: str) -> None:
        self.name = name
        self.bdf = bdf
        self.index = index
        self.folder = f"{DRM}/{name}/device"
        self.device: Device | None = None
        self.fan: Device | None = None
        self.lost = ""
        self.asleep = False
        self.rest = 0.0
        self.refused: dict[str, str] = {}
        self._kernel = kernel
        self._pci = pci
        self._facts: dict[str, str | int] = {}
        self._often: list[_Read] = []
        self._seldom: list[_Read] = []
        self._errors: list[str] = []
        self._metrics: Metrics | None = None
        self._energy: Number | Rate | None = None
        self._total: Number | None = None
        self._nap = 0.0
        self._found = False

    # -- what there is

    def find(self, taken: set[str], names: Mapping[str, str], driver: str | None) -> None:
        """Look what files it has.

        Raises:
            OSError: it is gone.
        """
        kernel, folder = self._kernel, self.folder
        present = frozenset(kernel.names(folder))
        often = [
            _Read(f"{folder}/gpu_busy_percent", "utilization.general", _PERCENT),
            _Read(f"{folder}/mem_busy_percent", "utilization.memory", _PERCENT),
            _Read(f"{folder}/mem_info_vram_used", "memory.used", _BYTES),
        ]
        seldom = [_Read(f"{folder}/pcie_replay_count", "errors.pcie_replay", _COUNT)]
        seldom += [
            _Read(f"{folder}/pp_dpm_{clock}", f"frequency.limit.{domain}", _highest)
            for clock, domain in _DOMAINS.items()
        ]
        self._often = [each for each in often if each.path.rpartition("/")[2] in present]
        self._seldom = [each for each in seldom if each.path.rpartition("/")[2] in present]
        self._sensors()
        self._errors = []
        if "ras" in present:
            self._errors = sorted(name for name in self._names("ras") if name.endswith("_err_count"))
        self._metrics = Metrics() if "gpu_metrics" in present else None
        self._total = None
        self._nap = self._patience()
        if self.device is None:
            self._identify(taken, names, driver)
        self._found = True

    def _sensors(self) -> None:
        """The files of its sensors, by what their labels say."""
        kernel = self._kernel
        folder = next((found for found in self._monitors() if text(kernel, f"{found}/name") == "amdgpu"), None)
        if folder is None:
            return
        place = folder.removeprefix(f"{self.folder}/")
        present = frozenset(self._names(place))

        def add(reads: list[_Read], file: str, quantity: str, form: _Form) -> None:
            if file in present:
                reads.append(_Read(f"{folder}/{file}", quantity, form))

        for file in sorted(present):
            kind, _, part = file.partition("_")
            if part == "label":
                label = text(kernel, f"{folder}/{file}")
                if label in _SENSORS:
                    where = f"temperature.{_SENSORS[label]}"
                    limit = f"temperature.limit.{_SENSORS[label]}"
                    add(self._often, f"{kind}_input", where, _CELSIUS)
                    add(self._seldom, f"{kind}_crit", f"{limit}.high.degraded", _THRESHOLD)
                    add(self._seldom, f"{kind}_emergency", f"{limit}.high.critical", _THRESHOLD)
                elif label in _DOMAINS:
                    add(self._often, f"{kind}_input", f"frequency.{_DOMAINS[label]}", _HERTZ)
                elif label in _RAILS:
                    add(self._seldom, f"{kind}_input", f"voltage.{_RAILS[label]}", _VOLTS)
        power = [file for file in ("power1_average", "power1_input") if file in present]
        says = (file for file in power if self._once(f"{place}/{file}", _WATTS) is not None)
        add(self._often, next(says, power[0] if power else ""), "power", _WATTS)
        for file, limit in (("cap", "enforced"), ("cap_max", "max"), ("cap_default", "default")):
            add(self._seldom, f"power1_{file}", f"power.limit.{limit}", _WATTS)
        add(self._seldom, "fan1_input", "fan.speed", _RPM)
        top = text(kernel, f"{folder}/pwm1_max") if "pwm1_max" in present else "255"
        if top.isdecimal() and 0 < int(top) < 1 << 16:
            add(self._seldom, "pwm1", "fan.ratio", _Form(per=int(top), most=int(top)))

    def _patience(self) -> float:
        """After how many seconds the system puts it to sleep when nobody asks it, and a little more; 0: never."""
        if text(self._kernel, f"{self.folder}/power/control") != "auto":
            return 0.0
        milliseconds = self._once("power/autosuspend_delay_ms", _DELAY)
        return 0.0 if milliseconds is None else milliseconds / 1000 + 1

    def _monitors(self) -> Iterator[str]:
        return (f"{self.folder}/hwmon/{name}" for name in sorted(self._names("hwmon")))

    def _names(self, folder: str) -> Sequence[str]:
        """What is in one of its folders; nothing where it cannot be looked into."""
        try:
            return self._kernel.names(f"{self.folder}/{folder}")
        except OSError:
            return ()

    def _identify(self, taken: set[str], names: Mapping[str, str], driver: str | None) -> None:
        unique = self._fact("unique_id", "[0-9a-f]{8,32}", "0+")
        known = unique if unique and unique not in taken else self.bdf  # two dies of a board may have the same
        taken.add(known)
        self.device = Device(known, f"GPU {self.index}")
        self.fan = Device(f"{known}/fan0", f"GPU {self.index} fan 0", "fan", known)
        device = self._pci.partition(":")[2]
        revised = f"{device}/{(text(self._kernel, f'{self.folder}/revision') or '0x0').upper()[2:].zfill(2)}"
        facts = {
            c.HW_VENDOR: "AMD",
            c.HW_MODEL: self._fact("product_name", ".{1,100}") or names.get(revised) or f"device 0x{device.lower()}",
            c.HW_SERIAL_NUMBER: self._fact("serial_number", "[0-9A-Za-z-]{1,64}", "0+|N/A|unknown"),
            c.HW_DRIVER_VERSION: driver,
            c.HW_FIRMWARE_VERSION: self._fact("vbios_version", r"[0-9A-Za-z._-]{1,64}"),
            c.PCI_BDF: self.bdf,
            c.GPU_INDEX: self.index,
            c.GPU_TYPE: self._type(device),
        }
        self._facts = {name: fact for name, fact in facts.items() if fact is not None}

    def _fact(self, file: str, form: str, instead: str = "") -> str | None:
        said = text(self._kernel, f"{self.folder}/{file}")
        wrong = not re.fullmatch(form, said) or (instead and re.fullmatch(instead, said, re.IGNORECASE))
        return None if wrong or not said.isprintable() else said

    def _type(self, device: str) -> str | None:
        try:
            form, _ = revision(self._kernel.read(f"{self.folder}/gpu_metrics"))
        except (OSError, ValueError):
            return None
        return "integrated" if form > 1 or device in _APUS else "discrete"

    def _once(self, file: str, form: _Form) -> Number | None:
        try:
            return form(self._kernel.read(f"{self.folder}/{file}"))
        except (OSError, ValueError):
            return None

    # -- how it is

    def sleeps(self) -> bool:
        """Whether it is suspended; asking that does not wake it."""
        try:
            self.asleep = self._kernel.read(f"{self.folder}/power/runtime_status").startswith(b"suspend")
        except OSError:  # a kernel without power management
            self.asleep = False
        return self.asleep

    @property
    def found(self) -> bool:
        """Whether it is known what files it has."""
        return self._found

    def points(self) -> Iterator[Point]:
        """What is read often."""
        numbers = self.numbers()
        if self.device is not None:
            yield from self.device.points(numbers)

    def numbers(self) -> dict[str, Number | Rate]:
        """By quantity, what is read often. One that says nothing at all is gone."""
        said, problem = self._said(self._often)
        self.rest = 0.0 if said.get("utilization.general") else self._nap
        if not said:
            self.lose(problem or "it has no files that say anything")
            return {}
        self._well()
        if self._total is None and "memory.used" in said:
            self._total = self._once("mem_info_vram_total", _CAPACITY)
        if self._total is not None and said.get("memory.used", 0) <= self._total:
            said["memory.total"] = self._total
        elif "memory.used" in said:
            self.refused["memory.used"] = "it is more than the total, or there is no total"
            del said["memory.used"]
        return {**said, **self._table("power" in said)}

    def _table(self, powered: bool) -> dict[str, Number | Rate]:
        """What the firmware's table says beside that."""
        found: dict[str, Number | Rate] = {}
        if self._metrics is not None:
            try:
                found |= self._metrics.read(self._kernel.read(f"{self.folder}/gpu_metrics"))
                self.refused.pop("gpu_metrics", None)
            except ValueError as error:
                self.refused["gpu_metrics"] = str(error)
            except OSError as error:
                self.refused["gpu_metrics"] = why(error)
        self._energy = found.get("energy", self._energy)
        if self._energy is not None and powered:
            found["energy"] = self._energy  # a counter that did not answer once is not replaced by an estimate
        return found

    def points_seldom(self) -> Iterator[Point]:
        """What it is, its state, and what hardly changes."""
        if self.device is None or self.fan is None:
            return
        yield self.device.info(self._facts)
        if self.lost:
            yield from self.device.status("failed")
            return
        said = self.numbers_seldom()
        fan = {str(name): said.pop(name) for name in FAN if name in said}
        yield from self.device.status("degraded" if self._damaged() else "ok")
        yield from self.device.points(said)
        yield from self.fan.points(fan)

    def numbers_seldom(self) -> dict[str, Number]:
        """By quantity, what hardly changes, and errors."""
        return {**self._said(self._seldom)[0], **self._counts()}

    def _said(self, reads: Sequence[_Read]) -> tuple[dict[str, Number], str]:
        """What its files say; and why the last one that did not say a number did not."""
        found: dict[str, Number] = {}
        problem = ""
        read, refused = self._kernel.read, self.refused
        for path, quantity, parse in reads:
            try:
                found[quantity] = parse(read(path))
            except ValueError as error:
                refused[quantity] = problem = str(error)
            except OSError as error:
                refused[quantity] = problem = why(error)
            else:
                if refused:
                    refused.pop(quantity, None)
        return found, problem

    def _counts(self) -> dict[str, Number]:
        """Errors of its memory, and of all else that corrects or finds errors."""
        found: dict[str, Number] = {}
        for file in self._errors:
            where = "" if file == "umc_err_count" else "chip_"
            try:
                said = self._kernel.read(f"{self.folder}/ras/{file}").decode(errors="replace")
            except OSError as error:
                self.refused[f"errors.{where}corrected"] = why(error)
                continue
            for kind, count in re.findall(r"^(ue|ce|de): ?([0-9]{1,18})$", said, re.MULTILINE):
                name = f"errors.{where}{_KINDS[kind]}"
                found[name] = found.get(name, 0) + int(count)
        return found

    def _damaged(self) -> bool:
        """Whether pages of its memory wait to be taken out of use, or could not be."""
        if not self._errors:
            return False
        try:
            pages = self._kernel.read(f"{self.folder}/ras/gpu_vram_bad_pages")
        except OSError:
            return False
        return re.search(rb": [PF]\s*$", pages, re.MULTILINE) is not None

    def lose(self, reason: str) -> None:
        """Note that it does not answer."""
        note(f"GPU {self.index}", self.bdf, self.lost, reason)
        self.lost = reason
        self._found = False

    def _well(self) -> None:
        note(f"GPU {self.index}", self.bdf, self.lost, "")
        self.lost = ""


_KINDS: Final = {"ce": "corrected", "ue": "uncorrected", "de": "deferred"}


def text(kernel: Files, path: str) -> str:
    """What a file says; nothing where it cannot be read."""
    try:
        return kernel.read(path).decode(errors="replace").strip()
    except OSError:
        return ""


def why(error: OSError) -> str:
    """What an error means, without the file's name."""
    return error.strerror or str(error)


def _highest(said: bytes) -> Number:
    """The highest level of a table of clocks, whose lines are like ``1: 800Mhz *``."""
    levels = re.findall(rb"^(?:[0-9]+|S): ([0-9]{1,5})Mhz", said, re.MULTILINE | re.IGNORECASE)
    megahertz = max(map(int, levels), default=0)
    if not megahertz:
        raise ValueError("it says no frequency")
    return megahertz * 10**6
