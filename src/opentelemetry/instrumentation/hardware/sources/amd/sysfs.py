"""The files of the kernel's driver amdgpu.

https://docs.kernel.org/gpu/amdgpu/thermal.html documents those of a card.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.system.files import Files

DRM: Final = "/sys/class/drm"

_MODEL_NAMES: Final = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")
"""Files with the names of models, of libdrm and of ROCm's copy of it."""

_ERROR_KINDS: Final = {"ce": "corrected", "ue": "uncorrected", "de": "deferred"}


class Card(NamedTuple):
    """A GPU that amdgpu drives.

    Attributes:
        address: Its PCI address.
        folder: Its folder in sysfs.
        device: Its PCI device number, four hexadecimal digits.
    """

    address: str
    folder: str
    device: str


def is_loaded(files: Files) -> bool:
    """Whether the driver is loaded; it may also be built into the kernel."""
    state = read_text(files, "/sys/module/amdgpu/initstate")
    return state == "live" if state else bool(find_cards(files))


def version(files: Files) -> str:
    """Version of the driver, or of the kernel if the driver is part of it."""
    return read_text(files, "/sys/module/amdgpu/version") or read_text(files, "/proc/sys/kernel/osrelease")


def find_cards(files: Files) -> list[Card]:
    """The cards in the order of their addresses. Only ``uevent`` is read: it does not wake a suspended card."""
    try:
        names = files.names(DRM)
    except OSError:
        return []
    cards = []
    for name in names:
        if re.fullmatch("card[0-9]+", name):
            folder = f"{DRM}/{name}/device"
            lines = read_text(files, f"{folder}/uevent").splitlines()
            facts = dict(line.split("=", 1) for line in lines if "=" in line)
            address = facts.get("PCI_SLOT_NAME", "").lower()
            if facts.get("DRIVER") == "amdgpu" and address:
                cards.append(Card(address, folder, facts.get("PCI_ID", "").upper().partition(":")[2]))
    return sorted(cards)


def model_names(files: Files) -> dict[str, str]:
    """Names of models by device number and revision: ``740F/02``."""
    for path in _MODEL_NAMES:
        lines = read_text(files, path).splitlines()
        rows = [[cell.strip() for cell in line.split(",", 2)] for line in lines if not line.startswith("#")]
        names = {f"{row[0].upper()}/{row[1].upper()}": row[2] for row in rows if len(row) == 3}
        if names:
            return names
    return {}


def hwmon_folder(files: Files, folder: str) -> str | None:
    """The folder with a card's sensors."""
    folders = (f"{folder}/hwmon/{name}" for name in sorted(list_names(files, f"{folder}/hwmon")))
    return next((each for each in folders if read_text(files, f"{each}/name") == "amdgpu"), None)


def read_text(files: Files, path: str) -> str:
    """Content of a file that is read once; empty if it cannot be read."""
    try:
        return files.read(path).decode(errors="replace").strip()
    except OSError:
        return ""


def list_names(files: Files, folder: str) -> Collection[str]:
    """Names in a folder; none if it cannot be listed."""
    try:
        return files.names(folder)
    except OSError:
        return ()


def describe(error: OSError) -> str:
    """An error without the name of the file."""
    return error.strerror or str(error)


# -- files with more than one number


def highest_clock(text: bytes) -> int:
    """The highest frequency in ``pp_dpm_sclk``, in MHz; 0 if there is none. Its lines look like ``1: 800Mhz *``."""
    levels = re.findall(rb"^(?:[0-9]+|S): ([0-9]{1,5})Mhz", text, re.MULTILINE | re.IGNORECASE)
    return max(map(int, levels), default=0)


def error_counts(text: bytes) -> Iterator[tuple[str, int]]:
    """The counts in a file of ``ras``: ``corrected``, ``uncorrected`` or ``deferred``, and the number of errors."""
    for kind, count in re.findall(rb"^(ue|ce|de): ?([0-9]{1,18})$", text, re.MULTILINE):
        yield _ERROR_KINDS[kind.decode()], int(count)


def has_unretired_pages(text: bytes) -> bool:
    """Whether ``gpu_vram_bad_pages`` lists a page that is still to be retired (P) or could not be retired (F)."""
    return re.search(rb": [PF]\s*$", text, re.MULTILINE) is not None
