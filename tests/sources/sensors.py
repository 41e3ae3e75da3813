"""Fabricated machines with hardware sensors: their files below /sys/class/hwmon and /sys/class/thermal at each tick.

No two sensors of a machine have the same value, so that a test can recognize them by it.
"""

from __future__ import annotations

from errno import ENODATA, ENXIO
from typing import Any

from tests.sources.machines import SPARSE, Files, Story
from tests.sources.tree import Fabricated, Tree

HWMON = "/sys/class/hwmon"
THERMAL = "/sys/class/thermal"


def driver(number: int, name: str, device: str = "", /, **files: Any) -> Files:
    """A driver; ``device`` is the bus and name of its device.

    A file ``device__x`` is x below the device: the kernel's older interface for drivers, which has the name there too.
    """
    folder = f"{HWMON}/hwmon{number}"
    old = any(file.startswith("device__") for file in files)
    found: Files = {f"{folder}/device/name" if old else f"{folder}/name": f"{name}\n"}
    if device:
        bus, _, address = device.partition("/")
        found[f"{folder}/device"] = f"../../devices/{address}"
        found[f"{folder}/device/subsystem"] = f"../../bus/{bus}"
    for file, text in files.items():
        found[f"{folder}/{file.replace('__', '/')}"] = text if isinstance(text, OSError) else f"{text}\n"
    return found


def cores(first: int, tick: int, count: int, warmest: int) -> dict[str, Any]:
    """The cores of an Intel CPU, from temp2 on."""
    found: dict[str, Any] = {}
    for core in range(count):
        found |= {f"temp{core + 2}_label": f"Core {first + core}", f"temp{core + 2}_crit": 100_000}
        found[f"temp{core + 2}_input"] = warmest - 1000 * (core + 1) + 500 * tick
    return found


def intel(tick: int) -> Fabricated:
    """Two Intel CPUs, an NVMe and a SATA disk, two DIMMs, a board's chip, a power meter and an AMD GPU."""
    package: dict[str, Any] = {"temp1_max": 84_000, "temp1_crit": 100_000}
    unset: dict[str, Any] = {"temp2_max": 65_261_850, "temp2_min": -273_150}  # of an NVMe disk without these thresholds
    files = (
        driver(
            0,
            "coretemp",
            "platform/coretemp.0",
            temp1_label="Package id 0",
            temp1_input=61_000 + 1000 * tick,
            **package,
        )
        | driver(1, "coretemp", "platform/coretemp.1", temp1_label="Package id 1", temp1_input=48_000, **package)
        | driver(0, "coretemp", **cores(0, tick, 3, 61_250))
        | driver(1, "coretemp", **cores(0, tick, 3, 48_250))
        | driver(2, "nvme", "nvme/nvme0", temp1_label="Composite", temp1_input=38_850 + 1000 * tick, temp1_max=81_850)
        | driver(2, "nvme", temp1_crit=84_850, temp2_label="Sensor 1", temp2_input=42_850, **unset)
        | driver(3, "drivetemp", "scsi/0:0:0:0", temp1_input=31_000, temp1_max=55_000, temp1_crit=60_000)
        | driver(4, "jc42", "i2c/0-0018", temp1_input=35_500, temp1_crit=95_000)
        | driver(5, "jc42", "i2c/0-0019", temp1_input=36_750, temp1_crit=95_000)
        | driver(6, "nct6798", "platform/nct6775.656", in0_input=872, in1_input=1_000, in0_max=1_744, pwm1=153)
        | driver(6, "nct6798", fan1_input=1_205, fan2_input=0, fan1_label="Front Fan", temp1_label="SYSTIN")
        | driver(6, "nct6798", temp1_input=33_000, temp2_label="AUXTIN0", temp2_input=127_000, temp3_label="SYSTIN")
        | driver(6, "nct6798", temp3_input=34_000, intrusion0_alarm=1)
        | driver(7, "power_meter", "acpi/ACPI000D:00", device__power1_average=412_000_000 + 1_500_000 * tick)
        | driver(7, "power_meter", device__power1_oem_info="", device__power1_is_battery=0)
        | driver(8, "amdgpu", "pci/0000:0c:00.0", temp1_label="edge", temp1_input=52_000, power1_average=95_000_000)
        | driver(10, "acpitz", "thermal/thermal_zone0", temp1_input=27_800)
    )
    files[f"{HWMON}/hwmon3/device/block/sda/size"] = "7814037168\n"
    files[f"{THERMAL}/thermal_zone0/type"] = "x86_pkg_temp\n"  # not read, because coretemp has the CPUs
    files[f"{THERMAL}/thermal_zone0/temp"] = "61000\n"
    return Fabricated(Tree(files))


def fading(tick: int) -> Fabricated:
    """The same machine; two of its sensors fail, and one of them recovers."""
    machine = intel(0)
    if tick:
        machine.tree.files[f"{HWMON}/hwmon1/temp1_input"] = OSError(ENXIO, "No such device or address")
    if tick == 1:
        machine.tree.files[f"{HWMON}/hwmon2/temp1_input"] = OSError(ENODATA, "No data available")
    return machine


def epyc(tick: int) -> Fabricated:
    """Two AMD CPUs, one with an offset of its control temperature, and an old kernel with an NVMe disk."""
    files = (
        driver(0, "k10temp", "pci/0000:00:18.3", temp1_label="Tctl", temp1_input=57_125 + 125 * tick)
        | driver(
            0, "k10temp", temp2_label="Tdie", temp2_input=47_125 + 125 * tick, temp3_label="Tccd1", temp3_input=46_250
        )
        | driver(1, "k10temp", "pci/0000:00:19.3", temp1_label="Tctl", temp1_input=52_500)
        | driver(2, "spd5118", "i2c/1-0050", temp1_input=39_250, temp1_max=55_000, temp1_crit=85_000)
        | driver(4, "nvme", "pci/0000:01:00.0", temp1_label="Composite", temp1_input=40_850)
        | driver(3, "mlx5", "pci/0000:41:00.0", temp1_label="asic", temp1_input=58_000, temp1_crit=105_000)
    )
    files[f"{HWMON}/hwmon4/device/nvme/nvme1/model"] = "x\n"
    return Fabricated(Tree(files))


def grace(tick: int) -> Fabricated:
    """Two Grace CPUs in a Grace Hopper machine: four power meters each, and one thermal zone per CPU cluster."""
    files: Files = {}
    meters = [("Module", 420), ("Grace", 137), ("CPU", 91), ("SysIO", 23)]
    for number, (name, power) in enumerate(meter for meter in meters for _ in range(2)):
        files |= driver(
            number,
            "power_meter",
            f"acpi/ACPI000D:{number:02}",
            device__power1_average=(power + number) * 1_000_000 + 250_000 * tick,
            device__power1_oem_info=f"{name} Power Socket {number % 2}",
            device__power1_average_interval=50,
        )
    files[f"{THERMAL}/thermal_zone0/type"] = "acpitz\n"
    files[f"{THERMAL}/thermal_zone0/temp"] = f"{41_500 + 100 * tick}\n"
    files[f"{THERMAL}/cooling_device0/type"] = "Processor\n"
    return Fabricated(Tree(files))


def raspberry(tick: int) -> Fabricated:
    """A Raspberry Pi 5 with its fan."""
    return Fabricated(
        Tree(
            driver(0, "cpu_thermal", temp1_input=54_550 + 550 * tick, temp1_crit=110_000)
            | driver(1, "rp1_adc", "platform/1f000c8000.adc", in1_input=1_481, in2_input=2_443, in3_input=1_398)
            | driver(1, "rp1_adc", in4_input=1_365, temp1_input=51_987)
            | driver(2, "pwmfan", "platform/cooling_fan", fan1_input=2_949, pwm1=75)
            | driver(3, "rpi_volt", "platform/soc:firmware:raspberrypi-hwmon", in0_lcrit_alarm=0)
        )
    )


def jetson(tick: int) -> Fabricated:
    """A board without a CPU temperature in hwmon: thermal zones of the CPU, the GPU and one that is off."""
    files = driver(0, "ina3221", "i2c/1-0040", in1_label="VDD_IN", in1_input=19_072, curr1_input=344)
    for number, (zone, temperature) in enumerate(
        (("CPU-therm", 48_281), ("gpu-thermal", 46_000), ("cv0-thermal", -256_000))
    ):
        files[f"{THERMAL}/thermal_zone{number}/type"] = f"{zone}\n"
        files[f"{THERMAL}/thermal_zone{number}/temp"] = f"{temperature + 125 * tick}\n"
    return Fabricated(Tree(files))


def laptop(tick: int) -> Fabricated:
    """Two CPU packages by their thermal zones alone, and a power meter that measures a battery."""
    files = driver(0, "power_meter", "acpi/ACPI000D:00", power1_average=7_000_000, power1_is_battery=1)
    for number in range(2):
        files[f"{THERMAL}/thermal_zone{number}/type"] = "x86_pkg_temp\n"
        files[f"{THERMAL}/thermal_zone{number}/temp"] = f"{61_000 + 2_000 * number + 1_000 * tick}\n"
    return Fabricated(Tree(files))


def virtual(tick: int) -> Fabricated:
    """A virtual machine, with a board's sensor at most."""
    return Fabricated(Tree(driver(0, "acpitz", temp1_input=27_800) if tick else {}))


ALL = SPARSE | {"detail": ["sensors"]}

SENSORS = (
    Story("hwmon", "intel", "fabricated: two Intel CPUs, NVMe and SATA disks, a power meter", intel),
    Story("hwmon", "intel-sensors", "fabricated: the same; DETAIL=sensors", intel, settings=ALL),
    Story("hwmon", "fading", "fabricated: the same; sensors fail and recover", fading),
    Story("hwmon", "epyc", "fabricated: two AMD CPUs", epyc),
    Story("hwmon", "epyc-sensors", "fabricated: the same; DETAIL=sensors", epyc, settings=ALL),
    Story("hwmon", "grace", "fabricated: two Grace CPUs", grace),
    Story("hwmon", "grace-sensors", "fabricated: the same; DETAIL=sensors", grace, settings=ALL),
    Story("hwmon", "raspberry-pi", "fabricated: a Raspberry Pi 5 with a fan; DETAIL=sensors", raspberry, settings=ALL),
    Story("hwmon", "jetson", "fabricated: a board with thermal zones; DETAIL=sensors", jetson, settings=ALL),
    Story("hwmon", "laptop", "fabricated: thermal zones of two CPU packages", laptop),
    Story("hwmon", "virtual", "fabricated: a virtual machine without sensors", virtual),
)
