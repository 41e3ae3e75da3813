"""W&B's keys of Trainium, from neuron-monitor's report about one runtime."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium
from opentelemetry.instrumentation.hardware.sources.trainium.report import CORE_MEMORY, HOST_MEMORY, Runtime
from opentelemetry.instrumentation.hardware.wandb.probe import Key, SourceProbe

_LOCAL_RANK: Final = "LOCAL_RANK"
"""The variable of torchrun. A rank uses the core with its number."""


class Probe(SourceProbe[Trainium, "Runtime | None"]):
    """The runtime of the process, or of a child of it."""

    source_class = Trainium

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(config, pid)
        self.expected = self.expected and config.neuron_monitor != "off"

    def convert(self, source: Trainium, points: list[Point]) -> Runtime | None:
        """Return the runtime with those of its cores that are reported."""
        rank = source.context.environ.get(_LOCAL_RANK, "")
        core = int(rank) if re.fullmatch("[0-9]{1,4}", rank) else None
        runtime = _choose(source, core)
        if runtime is None:
            return None
        cores = {core} if core in runtime.listed_cores else runtime.listed_cores
        reported = {each for each in cores if f"neuroncore{each}" in source.selection}
        percent = {core: share for core, share in runtime.percent.items() if core in reported}
        sizes = {core: sizes for core, sizes in runtime.cores.items() if core in reported}
        return replace(runtime, percent=percent, cores=sizes)


def _choose(source: Trainium, core: int | None) -> Runtime | None:
    """Return the runtime of the process itself, else the one that uses the core of its rank, else that of a child.

    In a container, the runtimes have the host's PIDs, so that the core of the rank may be all that is known. W&B takes
    the first runtime of any rank.
    """
    own = [runtime for runtime in source.runtimes if runtime.pid == source.context.pid]
    of_rank = [each for each in (*source.runtimes, *source.all_runtimes) if core in each.used_cores]
    return next(iter([*own, *of_rank, *source.runtimes]), None)


def _host_key(prefix: str, category: str, remark: str) -> Key[Runtime]:
    formula = f"host memory of the runtime for {category}{remark}"
    metrics = (c.AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE,)
    return Key(f"{prefix}.{category}", "bytes", formula, lambda runtime: runtime.host.get(category), metrics)


def _core_key(category: str) -> Key[Runtime]:
    return Key(
        f"trn.{{i}}.neuroncore_memory_usage.{category}",
        "bytes",
        f"device memory of the runtime on a core for {category}",
        lambda runtime: {core: sizes.get(category) for core, sizes in runtime.cores.items()},
        (c.AWS_NEURON_NEURONCORE_MEMORY_USAGE,),
    )


_HOST: Final = "trn.host_total_memory_usage"
_DOCUMENTED: Final = " (as W&B's pages spell it)"

KEYS: Final[tuple[Key[Runtime], ...]] = (
    Key(
        "trn.{i}.neuroncore_utilization", "%", "utilization of a core by the runtime of the process; "
        "under torchrun the core numbered like LOCAL_RANK",
        lambda runtime: runtime.percent, (c.HW_NPU_UTILIZATION,),
    ),
    Key(
        _HOST, "bytes", "host memory of the runtime",
        lambda runtime: runtime.used.get("host"), (c.AWS_NEURON_RUNTIME_MEMORY_USAGE,),
    ),
    Key(
        "trn.neuron_device_total_memory_usage", "bytes", "device memory of the runtime",
        lambda runtime: runtime.used.get("device"), (c.AWS_NEURON_RUNTIME_MEMORY_USAGE,),
    ),
    *(_host_key("trn.host_memory_usage", category, "") for category in HOST_MEMORY),
    *(_host_key(_HOST, category, _DOCUMENTED) for category in HOST_MEMORY),
    *(_core_key(category) for category in CORE_MEMORY),
)  # fmt: skip
"""The keys that W&B reports for Trainium."""
