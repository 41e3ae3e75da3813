"""The GPU of a Jetson by the files of its kernel driver, because NVML reports little of it: of Orin not more than its
name, of Thor with JetPack 7.0 no clock and no temperature.

Orin with JetPack 6 and 7 has ``/sys/class/devfreq/17000000.gpu``; with JetPack 5, the name ends with ``ga10b``. Older
Jetsons have others (``gv11b``, ``gp10b``, ``57000000.gpu``). That of Thor is ``gpu-gpc-0``.

* ``cur_freq``, ``max_freq``: the GPU's clock in Hz;
* ``device/load``, also ``/sys/devices/platform/gpu.0/load``: utilization per mille; not of Thor;
* ``/sys/class/thermal/thermal_zone*``: ``type`` is ``gpu-thermal`` (with JetPack 5, ``GPU-therm``), ``temp`` in m°C.

Names and formats are those that jetson_stats (https://github.com/rbonghi/jetson_stats) and glances read, and of a tree
that was recorded for the latter. This module itself has not run on a Jetson.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sleep import RuntimePower
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty, read_text

_DEVFREQ: Final = "/sys/class/devfreq"
_THERMAL: Final = "/sys/class/thermal"
_THOR: Final = "gpu-gpc-0"
_NAME: Final = f"[0-9a-f]+[.](gpu|ga10b|gv11b|gp10b|gm20b)|{_THOR}"
_LOADS: Final = ("/sys/devices/platform/gpu.0/load", "/sys/devices/gpu.0/load")
_MODEL: Final = "/sys/firmware/devicetree/base/model"


class Jetson:
    """The files of the GPU. They are searched until they are found."""

    def __init__(self, files: Files | None) -> None:
        self._files = files
        self._paths: Mapping[Field, str] = {}
        self.name = ""

    def paths(self) -> Mapping[Field, str]:
        """Return the file of each value; empty if this is no Jetson."""
        if not self._paths and self._files is not None:
            self._paths = dict(self._find(self._files))
        return self._paths

    def _find(self, files: Files) -> Iterator[tuple[Field, str]]:
        names = [name for name in names_or_empty(files, _DEVFREQ) if re.fullmatch(_NAME, name)]
        folders = [f"{_DEVFREQ}/{name}" for name in sorted(names)[:1]]
        loads = [path for path in (*(f"{folder}/device/load" for folder in folders), *_LOADS) if files.exists(path)]
        if not loads and _THOR not in names:
            return
        self.name = names[0] if names else "gpu.0"
        for load in loads[:1]:
            yield f.JETSON_LOAD, load
        for folder in folders:
            yield f.JETSON_CLOCK, f"{folder}/cur_freq"
            yield f.JETSON_CLOCK_LIMIT, f"{folder}/max_freq"
        for zone in sorted(names_or_empty(files, _THERMAL)):
            if read_text(files, f"{_THERMAL}/{zone}/type").casefold().startswith("gpu-therm"):
                yield f.JETSON_TEMPERATURE, f"{_THERMAL}/{zone}/temp"
                return

    def values(self) -> dict[Field, object]:
        """Read the files. Those that cannot be read are left out, such as a sensor that is switched off."""
        found = {field: read_text(self._files, path) for field, path in self.paths().items() if self._files}
        return {field: text for field, text in found.items() if text}

    def model(self) -> str:
        return read_text(self._files, _MODEL).rstrip("\0") if self._files else ""


class Host(NamedTuple):
    """What the host reports about its GPUs.

    Attributes:
        power: The runtime power state of all GPUs.
        jetson: The files of the GPU of a Jetson.
        total_memory: Returns the bytes of the host's memory, which is that of an integrated GPU too.
    """

    power: RuntimePower
    jetson: Jetson
    total_memory: Callable[[], int | None]


class _Gpu(Device):
    """The GPU of a Jetson without NVML."""

    def __init__(self, jetson: Jetson) -> None:
        super().__init__(jetson.name, "GPU 0")
        self._jetson = jetson
        model = jetson.model() or "Jetson"
        self.facts = {c.HW_VENDOR: "NVIDIA", c.HW_MODEL: model, c.GPU_INDEX: 0, c.GPU_TYPE: "integrated"}
        self.state = "ok"

    def read(self) -> Iterator[Point]:
        values = self._jetson.values()
        if not values:
            raise DeviceFailed(f"{next(iter(self._jetson.paths().values()))} cannot be read")
        for field in self._jetson.paths():
            self.unsupported.pop(field.series, None)
            if field not in values:
                self.unsupported[field.series] = "its file cannot be read"
        yield from self.points(values)


class Nvgpu(AcceleratorDriver):
    """The files of the kernel driver alone, on a Jetson without NVML."""

    def __init__(self, jetson: Jetson) -> None:
        self._gpus = [_Gpu(jetson)]
        self._has_load = f.JETSON_LOAD in jetson.paths()

    def devices(self) -> Sequence[Device]:
        return self._gpus

    def unsupported(self) -> Iterator[str]:
        missing = "hw.gpu.memory.*, hw.power, process.gpu.*"
        if not self._has_load:
            missing = f"hw.gpu.utilization, {missing}"
        yield f"{missing}: the kernel driver has no files for them"
