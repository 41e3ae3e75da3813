"""Hardware sensors: selection, values, failures, and the same machines as read by lm-sensors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from errno import EIO
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.sources import sensors
from tests.sources.reading import all_of, often, opened, series_of
from tests.sources.tree import Fabricated, Tree
from tests.support import children
from tests.tools import program

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import hwmon

METRICS = {
    "temp": c.HW_TEMPERATURE.name,
    "fan": c.HW_FAN_SPEED.name,
    "in": c.HW_VOLTAGE.name,
    "power": c.HW_POWER.name,
    "energy": c.HW_ENERGY.name,
}


def readings(document: list[tuple[str, Any]]) -> Iterator[tuple[str, str, float]]:
    """The metric, label and value of each input in the output of ``sensors -j``, GPUs excluded."""
    for chip, features in document:
        for label, values in features if not chip.startswith("amdgpu") else ():
            for name, value in values if isinstance(values, list) else ():
                match = re.fullmatch("([a-z]+)[0-9]+_(input|average)", name)
                if match and match[1] in METRICS:
                    yield METRICS[match[1]], label, value


# By machine, the temperatures of thermal zones, which lm-sensors does not read.
ZONES = {"grace": {41.5}, "jetson": {48.281, 46.0}}


@pytest.mark.parametrize("machine", ["intel", "epyc", "grace", "raspberry", "jetson"])
def test_every_sensor_is_reported_as_lm_sensors_reads_it(machine: str) -> None:
    program("sensors")

    def run(*command: str) -> str:
        outcome = children.succeed(children.command("machines/sensors_machine", machine, *command))
        return outcome.stdout

    theirs = {
        (metric, round(value, 3)): label
        for metric, label, value in readings(
            json.loads(run("sensors", "-j", "-c", "/dev/null"), object_pairs_hook=list)
        )
        if metric != c.HW_TEMPERATURE.name or -55 <= value <= 125  # of an input with a sensor
    }
    flags = ("--sources", "hwmon", "--detail", "sensors", "--window", "0.1", "--format", "json")
    ours = {
        (metric["name"].replace("hw.host.power", "hw.power"), round(metric["value"], 3)): metric["attributes"]
        for metric in json.loads(run("otel-hardware", "snapshot", *flags))["metrics"]
        if metric["name"] in (*METRICS.values(), "hw.host.power") and metric["name"] != "hw.energy"
    }
    assert theirs
    assert ours.keys() - theirs.keys() == {(c.HW_TEMPERATURE.name, value) for value in ZONES.get(machine, ())}
    assert theirs.keys() - ours.keys() == set()
    for reading, label in theirs.items():
        location, name = ours[reading].get("hw.sensor_location", ""), ours[reading]["hw.name"]
        unlabelled = location == "package" or label == "power1"
        assert unlabelled or label.lower() in f"{location} {name.lower()}", (label, ours[reading])


def ids(machine: Fabricated, **settings: Any) -> set[object]:
    with opened("hwmon", machine, **settings) as source:
        return {series.attributes[c.HW_ID] for series in all_of(source)}


@pytest.mark.parametrize("machine", [sensors.intel, sensors.epyc, sensors.grace, sensors.raspberry, sensors.jetson])
def test_ids_do_not_depend_on_the_order_of_drivers(machine: Callable[[int], Fabricated]) -> None:
    """The kernel numbers drivers in the order in which they are loaded."""
    before, after = machine(0), machine(0)
    count = len({path.split("/")[4] for path in after.tree.files if path.startswith(sensors.HWMON)})
    turned = {f"hwmon{number}": f"hwmon{40 + count - number}" for number in range(20)}
    after.tree.files = {
        "/".join(turned.get(part, part) for part in path.split("/")): text for path, text in after.tree.files.items()
    }
    assert ids(before, detail="sensors") == ids(after, detail="sensors")


def test_several_unnamed_power_meters_are_not_the_machine() -> None:
    meters = [
        sensors.driver(number, "power_meter", f"acpi/ACPI000D:0{number}", power1_average=300_000_000 + number)
        for number in (0, 1)
    ]
    machine = Fabricated(Tree(meters[0] | meters[1]))
    with pytest.raises(Unavailable):
        ids(machine)
    with opened("hwmon", machine, detail="sensors") as source:
        assert {series.metric for series in all_of(source)} == {c.HW_POWER}


@pytest.mark.parametrize("driver", ["amdgpu", "xe", "blackhole", "amdxdna"])
def test_sensors_of_devices_of_other_sources_are_left_out(driver: str) -> None:
    files = sensors.driver(0, driver, "0000:c4:00.1", temp1_input=41_000, power1_input=2_500_000)
    with pytest.raises(Unavailable):
        ids(Fabricated(Tree(files)), detail="sensors")


def _temperatures(*drivers: dict[str, Any]) -> dict[tuple[object, object], object]:
    """The default temperatures of a machine with these drivers: by id and location."""
    files = {path: text for each in drivers for path, text in each.items()}
    with opened("hwmon", Fabricated(Tree(files))) as source:
        found = series_of(all_of(source), c.HW_TEMPERATURE)
    return {(each.attributes[c.HW_ID], each.attributes[c.HW_SENSOR_LOCATION]): value for each, value in found.items()}


def test_package_is_labelled_otherwise_before_linux_4_16() -> None:
    """Of RHEL 7."""
    both = (
        sensors.driver(
            number,
            "coretemp",
            f"platform/coretemp.{number}",
            temp1_label=f"Physical id {package}",
            temp1_input=millidegrees,
        )
        | sensors.driver(number, "coretemp", temp2_label="Core 0", temp2_input=40_000)
        for number, package, millidegrees in ((0, 1, 51_000), (1, 0, 47_000))
    )
    assert _temperatures(*both) == {("package-1", "package"): 51.0, ("package-0", "package"): 47.0}


@pytest.mark.parametrize(
    ("zones", "of_cpu"),
    [
        ("package bigcore0 bigcore2 littlecore center gpu npu", {"package", "bigcore0", "bigcore2", "littlecore"}),
        ("cpu0-0-top cpu0-0-btm cpu2-3-top cpuss0-top gpuss-0 aoss0", {"cpu0-0-top", "cpu2-3-top"}),
    ],
    ids=["RK3588", "Snapdragon X"],
)
def test_temperatures_of_the_cores_of_an_arm_chip_are_those_of_its_cpu(zones: str, of_cpu: set[str]) -> None:
    """The kernel makes a driver of each zone, named after it."""
    files = [
        {
            f"{sensors.THERMAL}/thermal_zone{n}/type": f"{zone}-thermal\n",
            f"{sensors.THERMAL}/thermal_zone{n}/temp": "41625\n",
        }
        | sensors.driver(n, f"{zone}_thermal".replace("-", "_"), f"thermal/thermal_zone{n}", temp1_input=41_625)
        for n, zone in enumerate(zones.split())
    ]
    assert _temperatures(*files) == {("package-0", f"{zone}-thermal"): 41.625 for zone in of_cpu}


def test_cpu_without_a_package_sensor_is_reported_by_its_cores() -> None:
    """An Atom, or a Xeon before Sandy Bridge."""
    cores = {f"temp{core + 2}_label": f"Core {core}" for core in (0, 1)}
    inputs = {f"temp{core + 2}_input": 40_000 + 3_000 * core for core in (0, 1)}
    found = _temperatures(sensors.driver(0, "coretemp", "platform/coretemp.0", **cores, **inputs))
    assert found == {("package-0", "core 0"): 40.0, ("package-0", "core 1"): 43.0}


@pytest.mark.parametrize(
    ("name", "label"),
    [("apm_xgene", "SoC Temperature"), ("altra_hwmon", "SoC Temp 000"), ("smpro_hwmon", "temp1 SoC")],
)
def test_cpu_of_ampere_is_reported(name: str, label: str) -> None:
    others: dict[str, Any] = {"temp2_label": "temp2 SoC VRD", "temp2_input": 62_000, "power1_label": "CPU power"}
    found = _temperatures(
        sensors.driver(0, name, "platform/x", temp1_label=label, temp1_input=38_000, power1_input=9, **others)
    )
    assert found == {("package-0", "package"): 38.0}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("AMD EPYC 7281 16-Core Processor", ["package-0-die-0", "package-0-die-3", "package-1-die-0"]),
        ("AMD Ryzen Threadripper 2990WX 32-Core Processor", ["package-0-die-0", "package-0-die-3", "package-0-die-4"]),
        ("AMD EPYC 7351P 16-Core Processor", ["package-0-die-0", "package-0-die-3", "package-1-die-0"]),
        ("AMD EPYC 9654 96-Core Processor", ["package-0", "package-3", "package-4"]),
        ("", ["package-0", "package-3", "package-4"]),
    ],
)
def test_dies_of_zen_1_are_not_packages(model: str, expected: list[str]) -> None:
    """The dies of the first EPYC and Threadripper have a PCI device each."""
    dies = [
        sensors.driver(number, "k10temp", f"pci/0000:00:{0x18 + die:x}.3", temp1_label="Tctl", temp1_input=40_000)
        for number, die in enumerate((0, 3, 4))
    ]
    found = _temperatures(*dies, {"/proc/cpuinfo": f"processor\t: 0\nmodel name\t: {model}\nstepping\t: 2\n"})
    assert list(found) == [(each, "package") for each in expected]


def test_virtual_disks_that_read_0_kelvin_are_no_sensors() -> None:
    """The disks of EC2 instances: a source that fails again and again would be logged on each of them."""
    virtual = {"temp1_label": "Composite", "temp1_input": -273_150, "temp1_crit": -273_150}
    machine = Fabricated(Tree(sensors.driver(0, "nvme", "nvme/nvme0", **virtual)))
    with pytest.raises(Unavailable, match="no CPU or NVMe temperature"):
        ids(machine)
    machine.tree.files |= sensors.driver(1, "nvme", "nvme/nvme1", temp1_label="Composite", temp1_input=31_850)
    assert ids(machine) == {"nvme1"}


def test_driver_without_a_name_is_called_by_its_folder() -> None:
    files = sensors.driver(3, "", temp1_input=41_000)
    machine = Fabricated(Tree({path: text for path, text in files.items() if not path.endswith("/name")}))
    with opened("hwmon", machine, detail="sensors") as source:
        (found,) = all_of(source).items()
    assert (found[0].attributes[c.HW_NAME], found[1]) == ("hwmon3", 41.0)


def test_fix_names_the_setting_for_other_sensors() -> None:
    machine = sensors.virtual(1)
    with pytest.raises(Unavailable) as caught:
        ids(machine)
    assert "OTEL_PYTHON_HARDWARE_DETAIL=sensors" in caught.value.fix
    assert ids(machine, detail="sensors") == {"acpitz"}


@pytest.mark.parametrize("text", ["", "\n", "N/A\n", "0x10\n", "-128000\n", "127000\n", "65261850\n", OSError(EIO, "")])
def test_invalid_temperature_is_absent_and_named(text: str | OSError) -> None:
    machine = sensors.intel(0)
    path = f"{sensors.HWMON}/hwmon0/temp1_input"
    with opened("hwmon", machine) as source:
        whole = all_of(source)
        machine.tree.files[path] = text
        lost = whole.keys() - all_of(source).keys()
        assert {series.metric for series in lost} == {c.HW_TEMPERATURE, c.HW_TEMPERATURE_PEAK}
        assert {series.attributes[c.HW_ID] for series in lost} == {"package-0"}
        assert source.unsupported == [f"{path}: no readable and plausible value"]
        machine.tree.files[path] = "61000\n"
        assert all_of(source) == whole
        assert source.unsupported == []


def test_power_that_an_acpi_meter_does_not_know_is_absent() -> None:
    meter = sensors.driver(0, "power_meter", "acpi/ACPI000D:00", power1_average=412_000_000)
    machine = Fabricated(Tree(meter))
    (path,) = (path for path in meter if path.endswith("power1_average"))
    with opened("hwmon", machine) as source:
        (power,) = all_of(source).values()
        assert power == 412
        machine.tree.files[path] = f"{0xFFFFFFFF * 1000}\n"
        with pytest.raises(OSError, match="no sensor can be read"):
            all_of(source)


def test_meter_of_a_machine_that_reads_nothing_is_absent() -> None:
    """Of HPE if the kernel cannot ask the BMC: the driver returns 0 as the power."""
    meter = sensors.driver(0, "power_meter", "acpi/ACPI000D:00", power1_average=0, power1_average_interval=300_000)
    with pytest.raises(Unavailable, match="no power meter"):
        ids(Fabricated(Tree(meter)))


def test_source_fails_if_no_sensor_can_be_read() -> None:
    machine = sensors.intel(0)
    with opened("hwmon", machine) as source:
        all_of(source)
        machine.tree.files.clear()
        list(chain(source.read_slow()))
        with pytest.raises(OSError, match="no sensor can be read"):
            often(source)


def test_prepare_needs_a_driver_or_a_thermal_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hwmon, "_HWMON", str(tmp_path / "hwmon"))
    monkeypatch.setattr(hwmon, "_THERMAL", str(tmp_path / "thermal"))
    assert not hwmon.Hwmon.prepare(Config())
    (tmp_path / "thermal" / "cooling_device0").mkdir(parents=True)
    assert not hwmon.Hwmon.prepare(Config())
    (tmp_path / "thermal" / "thermal_zone0").mkdir()
    assert hwmon.Hwmon.prepare(Config())
    (tmp_path / "thermal" / "thermal_zone0").rmdir()
    (tmp_path / "hwmon" / "hwmon3").mkdir(parents=True)
    assert hwmon.Hwmon.prepare(Config())
