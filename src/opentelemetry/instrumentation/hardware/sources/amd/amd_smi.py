"""AMD's GPUs by ``amd-smi metric --json``, in the shapes of ROCm 6 and 7.

A quantity is a number, an object of value and unit, text of both, or ``N/A``; and ``N/A`` stands for whole sections.
The tool's library prints warnings where it likes, before the document too. https://rocm.docs.amd.com/projects/amdsmi
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry.instrumentation.hardware.sources.amd.reading import (
    ABSENT,
    Card,
    Parse,
    Spellings,
    believed,
    documents,
    fact,
    identity,
    measure,
    tool,
)

TOOL: Final = tool("amd-smi", "it comes with ROCm")

METRIC: Final = ("metric", "--json")
STATIC: Final = ("static", "--json")

_DEPTH = 6


def _unit(unit: str) -> str:
    """A number, with its unit or without: a number alone has always been of that unit."""
    return rf"# ?(?:{unit})?"


_SHARE = measure(_unit("%"), 100, per=100)
_CELSIUS = measure(_unit("°?C"), 150, 1)
_THRESHOLD = measure(_unit("°?C"), 150, 20)
_WATTS = measure(_unit("W"), 20_000, 0.01)
_MIB = measure(_unit("Mi?B"), 1 << 30, 1, times=1 << 20)
_HERTZ = measure(_unit("MHz"), 50_000, times=10**6)
_VOLTS = measure(_unit("mV"), 100_000, 1, per=1000)
_RPM = measure(_unit("RPM"), 100_000)
_JOULES = measure(_unit("J"), 1 << 53, 0.001)
_COUNT = measure("#", (1 << 32) - 2)

NUMBERS: Final[Mapping[str, tuple[Parse, Spellings]]] = {
    "utilization.general": (_SHARE, ("usage/gfx_activity",)),
    "utilization.memory": (_SHARE, ("usage/umc_activity",)),
    "utilization.video": (_SHARE, ("usage/mm_activity",)),
    "memory.total": (_MIB, ("mem_usage/total_vram",)),
    "memory.used": (_MIB, ("mem_usage/used_vram",)),
    "temperature.edge": (_CELSIUS, ("temperature/edge",)),
    "temperature.junction": (_CELSIUS, ("temperature/hotspot",)),
    "temperature.memory": (_CELSIUS, ("temperature/mem",)),
    **{
        f"temperature.limit.{ours}.{limit}": (
            _THRESHOLD,
            tuple(f"limit/{word}_{theirs}_temperature" for theirs in theirs_all),
        )
        for ours, theirs_all in {"edge": ("edge",), "junction": ("hotspot",), "memory": ("vram", "mem")}.items()
        for limit, word in {"high.degraded": "slowdown", "high.critical": "shutdown"}.items()
    },
    "power": (_WATTS, ("power/socket_power", "power/current_socket_power", "power/average_socket_power")),
    "power.limit.enforced": (
        _WATTS,
        ("limit/ppt0/socket_power_limit", "limit/socket_power", "limit/current_power", "limit/power"),
    ),
    "power.limit.max": (_WATTS, ("limit/ppt0/max_power_limit", "limit/max_power")),
    "energy": (_JOULES, ("energy/total_energy_consumption",)),
    "frequency.graphics": (_HERTZ, ("clock/gfx_0/clk", "clock/gfx/clk")),
    "frequency.memory": (_HERTZ, ("clock/mem_0/clk", "clock/mem/clk")),
    "frequency.video": (_HERTZ, ("clock/vclk_0/clk", "clock/vclk0/clk")),
    "frequency.limit.graphics": (_HERTZ, ("clock/gfx_0/max_clk", "clock/gfx/max_clk")),
    "frequency.limit.memory": (_HERTZ, ("clock/mem_0/max_clk", "clock/mem/max_clk")),
    "voltage.gpu": (_VOLTS, ("power/gfx_voltage",)),
    "voltage.soc": (_VOLTS, ("power/soc_voltage",)),
    "voltage.memory": (_VOLTS, ("power/mem_voltage",)),
    "fan.ratio": (_SHARE, ("fan/usage",)),
    "fan.speed": (_RPM, ("fan/rpm",)),
    "errors.pcie_replay": (_COUNT, ("pcie/replay_count",)),
    "errors.corrected": (_COUNT, ("ecc_blocks/UMC/correctable_count",)),
    "errors.uncorrected": (_COUNT, ("ecc_blocks/UMC/uncorrectable_count",)),
    "errors.deferred": (_COUNT, ("ecc_blocks/UMC/deferred_count",)),
}
"""Every quantity: how its text is read, and where it stands, in the metrics or the static facts.

Left out: shares of time that the tool itself takes between two looks (violations), and the totals of errors, which are
those of all parts of the chip.
"""


def parse(printed: bytes, static: Mapping[int, Mapping[str, str]] | None = None) -> list[Card]:
    """The GPUs; those that say nothing known are left out, as the parts of a divided one do.

    Args:
        printed: what ``metric`` printed.
        static: what :func:`facts` made of what ``static`` printed.

    Raises:
        ValueError: there is no document of the tool.
    """
    cards = [_card(number, {**(static or {}).get(number, {}), **said}) for number, said in facts(printed).items()]
    return [card for card in cards if card.numbers or card.refused]


def facts(printed: bytes) -> dict[int, dict[str, str]]:
    """By number of a GPU all that is said of it, by path: ``mem_usage/used_vram``.

    Raises:
        ValueError: there is no document of the tool.
    """
    for document in documents(printed):
        listed = document.get("gpu_data") if isinstance(document, dict) else document
        found = {
            entry["gpu"]: dict(_leaves(entry))
            for entry in (listed if isinstance(listed, list) else ())
            if isinstance(entry, dict) and type(entry.get("gpu")) is int and 0 <= entry["gpu"] < 1 << 16
        }
        if found:
            return found
    raise ValueError("there is no document of amd-smi")


def _leaves(part: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every value by its path, as text with its unit."""
    for name, value in part.items():
        place = f"{path}{name}"
        if isinstance(value, dict):
            if set(value) == {"value", "unit"}:
                yield place, f"{_text(value['value'])} {_text(value['unit'])}".strip()
            elif depth < _DEPTH:
                yield from _leaves(value, f"{place}/", depth + 1)
        else:
            yield place, _text(value)


def _text(value: object) -> str:
    """A value as it was spelled; what is neither text nor a number is none that is known."""
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if type(value) in (int, float) else ""


def _card(number: int, said: Mapping[str, str]) -> Card:
    # Of a section that is not there it is said as a whole; no number is believed to be one of all that is in it.
    whole = {
        path: said[section]
        for _, spellings in NUMBERS.values()
        for path in spellings
        if path not in said and said.get(section := path.partition("/")[0], "0").lower() in ABSENT
    }
    facts = identity(
        said.get("asic/asic_serial"),
        (said.get("asic/market_name"),),
        said.get("asic/device_id"),
        said.get("board/product_serial"),
        said.get("vbios/version") or said.get("vbios/part_number"),
        said.get("bus/bdf"),
    )
    facts["driver"] = fact(said.get("driver/version") or said.get("driver/driver_version"))
    return believed(number, facts, {**said, **whole}, NUMBERS)
