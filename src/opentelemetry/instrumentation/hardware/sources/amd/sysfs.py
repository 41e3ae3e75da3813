"""The files of the kernel's driver amdgpu.

https://docs.kernel.org/gpu/amdgpu/thermal.html documents those of a card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, File, fact, hwmon_folder
from opentelemetry.instrumentation.hardware.sources.amd import fields as f
from opentelemetry.instrumentation.hardware.sources.amd import gpu_metrics
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty, read_or_empty, read_text

# Files with the names of models, of libdrm and of ROCm's copy of it.
_MODEL_NAMES: Final = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")

_ERROR_KINDS: Final = {b"ce": "corrected", b"ue": "uncorrected", b"de": "deferred"}

# Device numbers of chips with CPU and GPU that have the ``gpu_metrics`` of a discrete GPU.
_MI300A: Final = frozenset({"74A0", "74A9"})


def version(files: Files) -> str:
    """Version of the driver, or of the kernel if the driver is part of it."""
    return read_text(files, "/sys/module/amdgpu/version") or read_text(files, "/proc/sys/kernel/osrelease")


def model_names(files: Files) -> dict[str, str]:
    """Names of models by device number and revision: ``740F/02``."""
    for path in _MODEL_NAMES:
        lines = read_text(files, path).splitlines()
        rows = [[cell.strip() for cell in line.split(",", 2)] for line in lines if not line.startswith("#")]
        names = {f"{row[0].upper()}/{row[1].upper()}": row[2] for row in rows if len(row) == 3}
        if names:
            return names
    return {}


# -- identity


def facts(files: Files, card: Card, models: Mapping[str, str]) -> dict[str, str | int]:
    """The attributes of ``hw.gpu.info`` that the files of a card have."""
    folder, device = card.folder, card.device
    revision = (read_text(files, f"{folder}/revision") or "0x0").upper()[2:].zfill(2)
    kind = None
    with suppress(OSError, ValueError):
        form, _ = gpu_metrics.revision(files.read(f"{folder}/gpu_metrics"))
        kind = "integrated" if form > 1 or device in _MI300A else "discrete"
    found = {
        c.HW_VENDOR: "AMD",
        c.HW_MODEL: fact(files, f"{folder}/product_name", ".{1,100}")
        or models.get(f"{device}/{revision}", f"device 0x{device.lower()}"),
        c.HW_SERIAL_NUMBER: fact(files, f"{folder}/serial_number", "(?!0+$)[0-9A-Za-z-]{1,64}"),
        c.HW_FIRMWARE_VERSION: fact(files, f"{folder}/vbios_version", "[0-9A-Za-z._-]{1,64}"),
        c.PCI_BDF: card.address,
        c.GPU_TYPE: kind,
    }
    return known(found)


# -- values


def error_counts(files: Files, path: str) -> dict[Field, int]:
    """The counts in a file of ``ras``, which has the errors of one block of the chip.

    Raises:
        OSError: The file cannot be read.
    """
    found = re.findall(rb"^(ue|ce|de): ?([0-9]{1,18})$", files.read(path), re.MULTILINE)
    prefix = f.RAS_BLOCKS.get(path.rpartition("/")[2].removesuffix("_err_count"), "chip_")
    return {f.RAS[prefix, _ERROR_KINDS[kind]]: int(count) for kind, count in found}


def find_files(files: Files, folder: str) -> tuple[list[File], list[File], list[str]]:
    """The files of a card that are sampled, those that are read slowly, and those of ``ras``.

    Raises:
        OSError: The card is gone.
    """
    present = frozenset(files.names(folder))
    often = [File(f"{folder}/{name}", field) for name, field in f.SYSFS.items() if name in present]
    slow = [
        File(f"{folder}/{name}", field, highest_clock if name.startswith("pp_dpm") else None)
        for name, field in f.SYSFS_SLOW.items()
        if name in present
    ]
    hwmon = hwmon_folder(files, folder, ("amdgpu",))
    if hwmon:
        _find_sensors(files, hwmon, often, slow)
    ras = names_or_empty(files, f"{folder}/ras") if "ras" in present else ()
    errors = [f"{folder}/ras/{name}" for name in sorted(ras) if name.endswith("_err_count")]
    return often, slow, errors


def _find_sensors(files: Files, folder: str, often: list[File], slow: list[File]) -> None:
    """Add the files of the sensors, which have labels."""
    present = sorted(names_or_empty(files, folder))
    labels = {name: read_text(files, f"{folder}/{name}") for name in present if "_label" in name}
    for name in present:
        sensor, _, kind = name.partition("_")
        labelled = f"{labels.get(f'{sensor}_label')}_{kind}"
        for table, found in ((f.HWMON, often), (f.HWMON_SLOW, slow)):
            field = table.get(labelled) or table.get(name)
            if field is not None:
                found.append(File(f"{folder}/{name}", field))
    power = [File(f"{folder}/{name}", f.POWER) for name in ("power1_average", "power1_input") if name in present]
    often += ([file for file in power if file.read_plausible(files) is not None] or power)[:1]
    slow += [File(file.path, f.POWER_INSTANT) for file in power[1:] if file.read_plausible(files) is not None]
    top = read_text(files, f"{folder}/pwm1_max") if "pwm1_max" in present else "255"
    if "pwm1" in present and top.isdecimal() and 0 < int(top) < 1 << 16:
        slow.append(File(f"{folder}/pwm1", Field(c.HW_FAN_SPEED_RATIO, unit=(1, int(top)), most=1)))


def highest_clock(text: bytes) -> int:
    """The highest frequency in ``pp_dpm_sclk``, in MHz; 0 if there is none. Its lines look like ``1: 800Mhz *``."""
    levels = re.findall(rb"^(?:[0-9]+|S): ([0-9]{1,5})Mhz", text, re.MULTILINE | re.IGNORECASE)
    return max(map(int, levels), default=0)


def has_unretired_pages(files: Files, folder: str) -> bool:
    """Whether ``gpu_vram_bad_pages`` lists a page that is still to be retired (P) or could not be retired (F)."""
    pages = read_or_empty(files, f"{folder}/ras/gpu_vram_bad_pages")
    return re.search(rb": [PF]\s*$", pages, re.MULTILINE) is not None
