"""AMD's command-line tools ``amd-smi`` and ``rocm-smi``. A run reports all GPUs."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Point, Unavailable
from opentelemetry.instrumentation.hardware.sources.amd.fields import FAN_METRICS
from opentelemetry.instrumentation.hardware.sources.amd.processes import RocmDriver
from opentelemetry.instrumentation.hardware.sources.amd.tool_output import (
    GpuOutput,
    Texts,
    amd_smi_gpus,
    parse_amd_smi,
    parse_rocm_smi,
    rocm_smi_gpus,
)
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology, chip_number
from opentelemetry.instrumentation.hardware.system.files import Files

AMD_SMI: Final = Tool(
    "amd-smi",
    folders=("/opt/rocm/bin", "/usr/bin"),
    environment=("ROCM_PATH", "ROCM_HOME", "ROCM_SMI_LIB_PATH"),
    fix="it is part of ROCm",
)
ROCM_SMI: Final = AMD_SMI._replace(name="rocm-smi", fix="it is part of ROCm, and Debian's package rocm-smi")

# ``-a`` prints everything, in old versions without the size of the memory.
ROCM_SMI_ARGUMENTS: Final = ("-a", "--showmeminfo", "vram", "--json")

# Seconds between two runs. A run takes a quarter of a second of CPU time, with many GPUs several seconds.
MIN_INTERVAL: Final = 10.0

TIMEOUT: Final = 20.0  # seconds for a run. 15 s were too few for sixteen dies.


class ToolGpu(Device):
    """A GPU in the output of a tool. Its fan is a separate device.

    Args:
        unique: ``hw.id``.

    Attributes:
        output: The newest output; None if the GPU is not in it.
    """

    def __init__(self, index: int, unique: str, output: GpuOutput, tool: str) -> None:
        super().__init__(unique, f"GPU {index}", index=index, address=output.address)
        self.backoff = Backoff(1, 32)  # the tool is run anyway: retry at the next reading
        self._tool = tool
        self._fan = self.new_fan(0)
        self.output: GpuOutput | None = output
        chip = chip_number(output.facts["unique"])
        self.aliases = (f"GPU-{chip}", chip) if chip else ()
        facts: dict[str, str | int] = {
            c.HW_VENDOR: "AMD",
            c.HW_MODEL: output.facts["model"],
            c.HW_SERIAL_NUMBER: output.facts["serial"],
            c.HW_DRIVER_VERSION: output.facts["driver"],
            c.HW_FIRMWARE_VERSION: output.facts["vbios"],
            c.PCI_BDF: output.address,
            c.GPU_INDEX: index,
        }
        self.facts = known(facts)

    def read(self) -> Iterator[Point]:
        if self.output is None:
            raise DeviceFailed(f"{self._tool} does not list it any more")
        self.state = "ok"
        self.unsupported.update(self.output.unsupported)
        own, fan = dict[Field, object](), dict[Field, object]()
        for field, text in self.output.values.items():
            (fan if field.series.metric in FAN_METRICS else own)[field] = text
        yield from self.points(own)
        yield from self._fan.points(fan)


class ToolDriver(RocmDriver):
    """The GPUs that a tool lists.

    Raises:
        Unavailable: The tool is missing, or lists no GPU.
        OSError: It timed out or could not be started.
        ValueError: It printed no document.
    """

    name: ClassVar[str]
    min_interval = MIN_INTERVAL
    is_fresh = True

    def __init__(self, files: Files, topology: Topology, command: Command) -> None:
        super().__init__(files, topology)
        self._command = command
        self._gpus: dict[tuple[str, int], ToolGpu] = {}
        self._update(self.outputs())
        if not self._gpus:
            raise Unavailable(f"{self.name} lists no GPU")

    @abstractmethod
    def outputs(self) -> list[GpuOutput]:
        """Run the tool, and return what it reports about each GPU."""

    def run(self, *arguments: str) -> bytes:
        """Return what the tool prints. The exit code is ignored: it is 0 without a driver, 2 beside valid output."""
        output = self._command.run(list(arguments), TIMEOUT)
        if not output.stdout.strip():
            lines = [line.strip() for line in output.stderr.decode("utf-8", "replace").splitlines()]
            message = next((line[:200] for line in lines if line.isprintable() and line.strip("=-")), "")
            raise ValueError(f"{self.name} exited with {output.code}: {message or 'it printed nothing'}")
        return output.stdout

    def _update(self, outputs: Sequence[GpuOutput]) -> None:
        for gpu in self._gpus.values():
            gpu.output = None
        taken = {gpu.id for gpu in self._gpus.values()}
        places = Counter[str]()
        for output in sorted(outputs, key=lambda output: (output.address, output.number)):
            # The number changes if a GPU before it is gone. Partitions may have the same address.
            key = output.address, places[output.address] if output.address else output.number
            places[output.address] += 1
            if key in self._gpus:
                self._gpus[key].output = output
            else:  # two dies of a board may have the same number
                names = (chip_number(output.facts["unique"]), output.address, f"gpu{output.number}")
                unique = next(name for name in names if name and name not in taken)
                taken.add(unique)
                self._gpus[key] = ToolGpu(len(self._gpus), unique, output, self.name)

    def devices(self) -> Sequence[ToolGpu]:
        return [*self._gpus.values()]

    def sample(self) -> bool:
        self._update(self.outputs())
        return True


class AmdSmi(ToolDriver):
    """``amd-smi``. Facts and limits are read when the list of GPUs changes; some versions cannot print them.

    A block of the chip that cannot be read keeps its last counts of errors: their sum must not fall.
    """

    name = AMD_SMI.name
    _numbers: Sequence[int] | None = None
    _static: Mapping[int, Texts] = {}
    _errors: dict[int, Texts]

    def outputs(self) -> list[GpuOutput]:
        metric = parse_amd_smi(self.run("metric", "--json"))
        if [*metric] != self._numbers:
            try:
                self._static = parse_amd_smi(self.run("static", "--json"))
            except ValueError:
                if self._static:  # without their addresses, the GPUs that are left would be new ones
                    raise
            self._numbers, self._errors = [*metric], {}
        for number, texts in metric.items():
            errors = {path: text for path, text in texts.items() if path.startswith("ecc_blocks/") and text.isdecimal()}
            self._errors[number] = {**self._errors.get(number, {}), **errors}
            texts.update(self._errors[number])
        return amd_smi_gpus(metric, self._static)


class RocmSmi(ToolDriver):
    """``rocm-smi``."""

    name = ROCM_SMI.name

    def outputs(self) -> list[GpuOutput]:
        return rocm_smi_gpus(parse_rocm_smi(self.run(*ROCM_SMI_ARGUMENTS)))
