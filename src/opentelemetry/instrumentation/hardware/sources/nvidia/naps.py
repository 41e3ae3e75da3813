"""GPUs that the system puts to sleep when nobody uses them, as in laptops: asking one wakes it, and keeps it awake."""

from __future__ import annotations

from contextlib import suppress

from opentelemetry.instrumentation.hardware.system.files import Files

_GPUS = "/proc/driver/nvidia/gpus"


class Naps:
    """Those GPUs, by their address on the bus, and which of them sleep now; the kernel tells without waking them."""

    def __init__(self, kernel: Files | None) -> None:
        self._kernel = kernel
        self._gpus: list[str] = []
        self._status: dict[str, str] = {}
        if kernel is not None:
            with suppress(OSError):
                self._gpus = [name.lower() for name in kernel.names(_GPUS)]
            for gpu in self._gpus:
                power = f"/sys/bus/pci/devices/{gpu}/power"
                with suppress(OSError):
                    if kernel.read(f"{power}/control").strip() == b"auto":
                        self._status[gpu] = f"{power}/runtime_status"

    def __contains__(self, gpu: object) -> bool:
        """Whether a GPU sleeps."""
        status = self._status.get(str(gpu))
        if status is None or self._kernel is None:
            return False
        try:
            return self._kernel.read(status).strip() == b"suspended"
        except OSError:
            return False

    def all(self) -> bool:
        """Whether every GPU sleeps, so that nobody is there to be asked."""
        return bool(self._gpus) and all(gpu in self for gpu in self._gpus)
