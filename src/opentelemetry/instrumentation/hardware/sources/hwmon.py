"""Temperatures, fans, voltages and power from the Linux kernel's hardware monitoring drivers.

Files and units: https://docs.kernel.org/hwmon/sysfs-interface.html. By default only one temperature of each CPU and
NVMe disk and the power of CPUs and of the machine are reported; ``DETAIL=sensors`` adds all other sensors.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from errno import EIO
from glob import glob
from math import inf
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.model import Point, Rate, Series, Unavailable
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.files import link_or_empty, names_or_empty, read_text

_HWMON: Final = "/sys/class/hwmon"
_THERMAL: Final = "/sys/class/thermal"

# Drivers of GPUs and NPUs, which other sources report, and two with the counters of powercap.
_OTHER_SOURCES: Final = frozenset(
    {"amdgpu", "radeon", "nouveau", "i915", "xe", "amdxdna", "blackhole", "wormhole", "amd_energy", "zenergy"}
)

# ``hw.type`` by driver; all others measure the board, the case or its power supply.
_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal", "via_cputemp"), "cpu"),
    **dict.fromkeys(("apm_xgene", "altra_hwmon", "smpro_hwmon"), "cpu"),
    **dict.fromkeys(("nvme", "drivetemp"), "physical_disk"),
    **dict.fromkeys(("jc42", "spd5118"), "memory"),
    **dict.fromkeys(("mlx5", "bnxt_en", "ice", "ixgbe"), "network"),
}

# Labels of the temperature of a whole CPU, the preferred first: Intel's (the second one before Linux 4.16), AMD's,
# Ampere's, and a sensor without a label. Small and old CPUs of Intel have one of each core only.
_PACKAGE: Final = tuple(
    map(re.compile, ("(?:Package|Physical) id ([0-9]+)", "Tdie", "Tctl", "SoC Temp.*|temp1 SoC", "temp1"))
)

# Models with a PCI device for each die, and the highest number of dies of one: EPYC and Threadripper with Zen 1.
_DIES: Final = ((re.compile("EPYC 7[0-9]{2}1"), 4), (re.compile("Threadripper [12]9"), 8))

# Types of thermal zones that measure a CPU or its cores, also of the RK3588 and of Qualcomm (``cpu0-3-top``).
_CPU_ZONE: Final = re.compile(
    r"x86_pkg_temp|package-thermal|((big|little)core|cpu|soc)[0-9-]*(top)?[-_]?therm(al)?", re.IGNORECASE
)

_INPUT: Final = re.compile(r"((temp|fan|in|energy|power)[0-9]+)_(?:input|average)")

_LIMITS: Final = {"max": "high.degraded", "crit": "high.critical"}

# Plausible values in base units. A missing temperature sensor reads -128, -61 or 127 °C. An ACPI meter that does not
# know the power reports 0xFFFFFFFF mW, which older kernels pass on, or 0. Only a part of a machine can need no power.
_PLAUSIBLE: Final[Mapping[str, tuple[float, float]]] = {
    "temp": (-55, 125),
    "power": (0, 100_000),
    "meter": (1e-6, 100_000),
}

_LONGEST_NAME: Final = 255  # of a driver, a device or a sensor


class _Sensor(NamedTuple):
    """One file of a driver and the series of its value.

    Attributes:
        path: The file.
        kind: Temp, fan, in, energy, power, or meter for the power of the machine.
        series: Series of the value. That of the energy of a power is its integral over time.
        limits: Series of limits with their values.
    """

    path: str
    kind: str
    series: tuple[Series, ...]
    limits: tuple[Point, ...] = ()


# The files have integers in millidegrees Celsius, rpm, millivolts, microjoules and microwatts.
_SCALES: Final = {"temp": 1e3, "fan": 1, "in": 1e3, "energy": 1e6, "power": 1e6, "meter": 1e6}


class Hwmon(Source):
    """The sensors in /sys/class/hwmon, or the CPU's thermal zones if there is no CPU temperature among them."""

    name = "hwmon"
    rows = ("hw.temperature", "hw.fan.", "hw.voltage", "hw.power", "hw.energy", "hw.host.power")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        del config
        return bool(glob(f"{_HWMON}/hwmon*") or glob(f"{_THERMAL}/thermal_zone*"))

    def open(self) -> None:
        self._files = self.context.drivers.files()
        self._all = "sensors" in (self.context.config.detail or ())
        self._failures: dict[str, str] = {}
        self._used: set[Series] = set()
        self._often: list[_Sensor] = []
        self._slowly: list[_Sensor] = []
        self._count: Counter[str] = Counter()
        self._meters: list[tuple[Device, str]] = []
        for name in sorted(self._names(_HWMON), key=_number):
            self._add_driver(f"{_HWMON}/{name}")
        if len(self._meters) == 1:
            meter, path = self._meters[0]
            machine = {c.HW_ID: meter.id, c.HW_NAME: "machine"}
            self._add(_Sensor(path, "meter", (Series(c.HW_HOST_POWER, machine),)), often=True)
        elif self._all:  # power supplies or parts of the machine
            for meter, path in self._meters:
                self._add_other(meter, path, "power", meter.name)
        if not self._count["cpu"]:
            for name in sorted(self._names(_THERMAL), key=_number):
                if name.startswith("thermal_zone"):
                    self._add_zone(f"{_THERMAL}/{name}")
        # The virtual NVMe disks of clouds have a sensor that reads 0 K.
        if all(self._value(each.path, each.kind) is None for each in (*self._often, *self._slowly)):
            raise Unavailable(
                f"no CPU or NVMe temperature and no power meter in {_HWMON} and {_THERMAL}",
                "virtual machines have none; on a physical machine, sensors-detect finds the drivers to load"
                + ("" if self._all else f", and {PREFIX}DETAIL=sensors adds all other sensors"),
            )

    def _add_driver(self, folder: str) -> None:
        driver = self._text(f"{folder}/name") or self._text(f"{folder}/device/name") or folder.rpartition("/")[2]
        if driver in _OTHER_SOURCES:
            return
        device = link_or_empty(self._files, f"{folder}/device").rpartition("/")[2][:_LONGEST_NAME]
        if not any(map(_INPUT.fullmatch, self._names(folder))):  # an older interface between driver and kernel
            folder += "/device"
        # Sorted, so that the instantaneous power1_input is preferred to power1_average.
        inputs = {match[1]: match for name in sorted(self._names(folder)) if (match := _INPUT.fullmatch(name))}
        labels = {name: self._text(f"{folder}/{name}_label") or name for name in inputs}
        component = self._component(driver, device, folder, labels.values())
        package = next((name for form in _PACKAGE for name, label in labels.items() if form.fullmatch(label)), "")
        for name in sorted(inputs, key=_number):
            path, kind, label = f"{folder}/{inputs[name][0]}", inputs[name][2], labels[name]
            if driver == "power_meter":
                self._add_meter(component, folder, path)
            elif kind == "temp" and component.type == "cpu" and name == package:
                self._add_temperature(component, path, "package", often=True)
            elif kind == "temp" and component.type == "cpu" and not package:
                self._add_temperature(component, path, label.lower(), often=True)
            elif kind == "temp" and (self._all or (driver == "nvme" and label == "Composite")):
                self._add_temperature(component, path, label.lower())
            elif kind != "temp" and self._all:
                self._add_other(component, path, kind, label)

    def _component(self, driver: str, device: str, folder: str, labels: Iterable[str]) -> Device:
        kind = _TYPES.get(driver, "enclosure")
        if kind == "cpu":
            number = next((match[1] for label in labels if (match := _PACKAGE[0].fullmatch(label))), "")
            if driver in ("k10temp", "zenpower") and (slot := re.fullmatch(r".*:([0-9a-f]+)\.[0-7]", device)):
                number = self._node(int(slot[1], 16) - 0x18)  # the nodes of AMD's CPUs are PCI devices 18 and up
            number = number or str(self._count[kind])
            self._count[kind] += 1
            return Device(f"package-{number}", f"CPU {number}", kind)
        if kind == "physical_disk":  # SATA disks, and NVMe disks before Linux 5.14, are named below their device
            device = next(iter(self._names(f"{folder}/device/{'nvme' if driver == 'nvme' else 'block'}")), device)
            return Device(device or driver, device or driver, kind)
        if kind == "memory":
            return Device(f"dimm-{device}", f"DIMM {device}", kind)
        return Device(f"{driver}-{device}" if device else driver, driver, kind)

    def _node(self, number: int) -> str:
        """The number of AMD's package that is a node, or those of a package and its die, as powercap has them."""
        cpus = read_text(self._files, "/proc/cpuinfo")
        dies = next((dies for model, dies in _DIES if model.search(cpus)), 1)
        return str(number) if dies == 1 else f"{number // dies}-die-{number % dies}"

    def _add_temperature(self, component: Device, path: str, location: str, often: bool = False) -> None:
        if component.series(Series(c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: location})) in self._used:
            location = f"{location} {_input_of(path)}"
        where = {c.HW_SENSOR_LOCATION: location}
        limits = []
        for suffix, limit in _LIMITS.items() if path.endswith("_input") else ():
            value = self._value(path.replace("_input", f"_{suffix}"), "temp")
            if value is not None:
                series = Series(c.HW_TEMPERATURE_LIMIT, {**where, c.HW_LIMIT_TYPE: limit})
                limits.append(component.series(series)(value))
        metrics = (c.HW_TEMPERATURE, c.HW_TEMPERATURE_PEAK) if often else (c.HW_TEMPERATURE,)
        gauges = tuple(component.series(Series(metric, where)) for metric in metrics)
        self._add(_Sensor(path, "temp", gauges, tuple(limits)), often)

    def _add_meter(self, meter: Device, folder: str, path: str) -> None:
        """Add an ACPI power meter. Its OEM information names the part that it measures, by default the machine.

        NVIDIA Grace: https://docs.nvidia.com/grace-perf-tuning-guide/power-thermals.html. The power of a Grace socket
        includes its CPU and SysIO rails; that of a module also includes the GPU.
        """
        part = self._text(f"{folder}/power1_oem_info")
        grace = re.fullmatch("(Module|Grace|CPU|SysIO) Power Socket ([0-9]+)", part)
        if self._text(f"{folder}/power1_is_battery") == "1":
            return
        if not part:
            self._meters.append((meter, path))
        elif grace and grace[1] == "Grace":
            package = Device(f"package-{grace[2]}", f"CPU {grace[2]}", "cpu")
            series = (package.series(Series(metric)) for metric in (c.HW_POWER, c.HW_POWER_PEAK, c.HW_ENERGY))
            self._add(_Sensor(path, "power", tuple(series)), often=True)
        elif self._all:
            rail = Device(meter.id, part, meter.type)
            if grace and grace[1] != "Module":
                rail = Device(meter.id, part, "cpu", f"package-{grace[2]}")
            self._add(_Sensor(path, "power", (rail.series(Series(c.HW_POWER)),)))

    def _add_other(self, component: Device, path: str, kind: str, label: str) -> None:
        if kind == "in":
            series = component.series(Series(c.HW_VOLTAGE, {c.HW_SENSOR_LOCATION: label.lower()}))
        else:
            metric = {"fan": c.HW_FAN_SPEED, "power": c.HW_POWER, "energy": c.HW_ENERGY}[kind]
            part = Device(f"{component.id}/{_input_of(path)}", label, component.type, component.id)
            series = part.series(Series(metric))
        if series not in self._used:
            self._add(_Sensor(path, kind, (series,)))

    def _add_zone(self, folder: str) -> None:
        zone, path = self._text(f"{folder}/type"), f"{folder}/temp"
        if zone == "x86_pkg_temp":
            number = self._count[zone]
            self._count[zone] += 1
            self._add_temperature(Device(f"package-{number}", f"CPU {number}", "cpu"), path, "package", True)
        elif _CPU_ZONE.fullmatch(zone):
            self._add_temperature(Device("package-0", "CPU 0", "cpu"), path, zone.lower(), True)
        elif zone and self._all:
            self._add_temperature(Device("thermal", "thermal zones", "enclosure"), path, zone.lower())

    def _add(self, sensor: _Sensor, often: bool = False) -> None:
        self._used.update(sensor.series)
        (self._often if often else self._slowly).append(sensor)

    def read(self) -> Iterator[Point]:
        """Read the temperature and power of CPUs and the power of the machine."""
        yield from self._points(self._often)
        if len(self._failures) == len(self._often) + len(self._slowly):
            raise OSError(EIO, "no sensor can be read", _HWMON)

    def read_slow(self) -> Iterator[Point]:
        """Read the other sensors: an NVMe disk executes a command for it, and those of a board are on a slow bus."""
        yield from self._points(self._slowly)
        for sensor in (*self._often, *self._slowly):
            yield from sensor.limits

    def _points(self, sensors: Sequence[_Sensor]) -> Iterator[Point]:
        for sensor in sensors:
            value = self._value(sensor.path, sensor.kind)
            if value is None:
                self._failures[sensor.path] = f"{sensor.path}: no readable and plausible value"
                continue
            self._failures.pop(sensor.path, None)
            for series in sensor.series:
                is_integral = sensor.kind == "power" and series.metric is c.HW_ENERGY
                yield series(Rate(value) if is_integral else value)
        self.unsupported = list(self._failures.values())

    def _value(self, path: str, kind: str) -> float | None:
        """The value of a file in base units; None if it cannot be read or is not plausible."""
        try:
            value = int(self._text(path)) / _SCALES[kind]
        except (ValueError, OverflowError):
            return None
        least, most = _PLAUSIBLE.get(kind, (-inf, inf))
        return value if least <= value <= most else None

    def _names(self, folder: str) -> Sequence[str]:
        return names_or_empty(self._files, folder)

    def _text(self, path: str) -> str:
        return read_text(self._files, path)[:_LONGEST_NAME]


def _input_of(path: str) -> str:
    """The input that a file belongs to: temp3 of temp3_input."""
    return os.path.basename(path).partition("_")[0]


def _number(name: str) -> tuple[str, int]:
    """A sort key that puts hwmon10 after hwmon9."""
    prefix = name.rstrip("0123456789")
    return prefix, int(name[len(prefix) :] or 0)
