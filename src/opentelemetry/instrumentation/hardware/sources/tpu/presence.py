"""Detect a TPU: the chips on the PCI bus, and the services in settings and environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.tpu import addresses
from opentelemetry.instrumentation.hardware.sources.tpu.fields import MODELS
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty, read_text

_GOOGLE: Final = "1ae0"
_DEVICES: Final = "/sys/bus/pci/devices"


class Presence:
    """The chips of this host, and the addresses of services.

    Attributes:
        chips: The models of the chips on the PCI bus, by address.
        runtime: The addresses of metric services.
        profiler: The address of a profiler, or the name of a TPU node; "" for none.
    """

    def __init__(self, config: Config, environ: Mapping[str, str], files: Files | None) -> None:
        self.chips = pci_chips(files) if files is not None else {}
        named = any(address not in ("auto", "off") for address in config.tpu_runtime or ())
        is_local = bool(self.chips) or named or addresses.has_runtime(environ)
        self.runtime = addresses.runtime(config.tpu_runtime, environ) if is_local else ()
        is_remote = not is_local or config.tpu_profiler not in (None, "auto")
        self.profiler = addresses.profiler(config.tpu_profiler, environ) if is_remote else ""

    def __bool__(self) -> bool:
        return bool(self.chips or self.runtime or self.profiler)


def pci_chips(files: Files) -> dict[str, str]:
    """Return the models of the chips by address. A chip with several PCI functions is listed once."""
    chips: dict[str, tuple[str, str]] = {}
    for bdf in sorted(names_or_empty(files, _DEVICES)):
        if _id(files, bdf, "vendor") == _GOOGLE:
            device = _id(files, bdf, "device")
            model = MODELS.get(device) or MODELS.get(f"{device}/{_id(files, bdf, 'subsystem_device')}")
            if model is not None:
                chips.setdefault(bdf.rpartition(".")[0], (bdf, model))
    return dict(chips.values())


def _id(files: Files, bdf: str, name: str) -> str:
    """Return an id of a PCI device in hexadecimal; "" if it cannot be read."""
    return read_text(files, f"{_DEVICES}/{bdf}/{name}").removeprefix("0x")
