"""The attributes of spans. The semantic conventions define none of them.

Those that are named like a metric mean the same quantity over the time of the span.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class SpanAttribute(NamedTuple):
    """An attribute of a span.

    Attributes:
        name: Its name, spelled nowhere else.
        unit: UCUM.
        help: One sentence.
    """

    name: str
    unit: str
    help: str


SPAN_ENERGY: Final = SpanAttribute(
    "hw.energy", "J", "Energy of the accelerators that the process and its descendants use, while the span ran."
)
SPAN_UNCERTAINTY: Final = SpanAttribute(
    "hw.uncertainty.energy",
    "J",
    "Bound of the error of hw.energy. If the energy is below it, the span has neither attribute.",
)
SPAN_SHARE_ENERGY: Final = SpanAttribute(
    "hw.share.energy",
    "J",
    "The span's own part of hw.energy, without that of its children and of others that ran at the same time. These "
    "parts can be added up.",
)
SPAN_SHARE_METHOD: Final = SpanAttribute(
    "hw.share.method",
    "",
    "With `SPANS_SHARES=tokens`, how the energy was divided. `tokens`: in proportion to the tokens per second of the "
    "span. `equal`: in equal parts; a span without tokens counts with the mean of the others.",
)
SPAN_DEVICES: Final = SpanAttribute(
    "hw.devices",
    "",
    "`visible`: the values are those of all accelerators that the program may use, because the driver does not show "
    "which of them it uses. Absent otherwise.",
)
SPAN_GPU_TIME: Final = SpanAttribute("hw.gpu.time", "s", "Time during which these GPUs were busy, summed over them.")
SPAN_GPU_UTILIZATION: Final = SpanAttribute(
    "hw.gpu.utilization", "1", "hw.gpu.time as a share of the duration, averaged over these GPUs."
)
SPAN_GPU_MEMORY_PEAK: Final = SpanAttribute(
    "hw.gpu.memory.peak", "By", "Highest memory in use on any of these GPUs, by all programs."
)
SPAN_GPU_THROTTLE_TIME: Final = SpanAttribute(
    "hw.gpu.throttle.time",
    "s",
    "Time during which clocks were throttled by power or temperature, summed over these GPUs. For spans of at least "
    "one second.",
)
SPAN_CPU_ENERGY: Final = SpanAttribute(
    "hw.cpu.energy", "J", "Energy of the host's CPU packages, by all programs, where it can be read."
)
SPAN_CPU_TIME: Final = SpanAttribute("process.cpu.time", "s", "CPU time of the process, of all its threads.")
SPAN_TREE_CPU_TIME: Final = SpanAttribute(
    "process.tree.cpu.time",
    "s",
    "CPU time of the process and its descendants, if they used any. For spans of at least one second.",
)
SPAN_TREE_MEMORY_PEAK: Final = SpanAttribute(
    "process.tree.memory.peak",
    "By",
    "Highest resident memory of the process and its descendants. For spans of at least one second.",
)

SPAN_ATTRIBUTES: Final = tuple(value for value in vars().values() if isinstance(value, SpanAttribute))

# Attributes with the tokens that a span processed; the former names come second.
# https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
TOKEN_COUNTS: Final = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
)
