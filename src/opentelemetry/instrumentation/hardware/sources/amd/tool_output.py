"""The output of ``amd-smi`` of ROCm 6 and 7, and of ``rocm-smi`` of ROCm 4.3 to 7.

Both print warnings around the JSON document, and ``N/A`` or 0 for what they cannot read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.accelerators.facts import ABSENT, fact
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sysfs import PCIE_GENERATIONS
from opentelemetry.instrumentation.hardware.model import Series
from opentelemetry.instrumentation.hardware.sources.amd import fields as f

_INSTINCT = "0x7(40[8cf]|410|4[ab].|5[ab].)"  # PCI device numbers of MI200, MI300 and MI350

_CARD = re.compile("card([0-9]{1,4})")

# Clocks of rocm-smi: ``(1700Mhz)``, ``1 (1502Mhz)``, and ranges, of which the upper end counts.
_CLOCK = re.compile(r"^(?:[0-9]+ )?\(?([0-9.]+Mhz)\)?$|^[0-9]+Mhz - (?=[0-9.]+Mhz$)", re.IGNORECASE)

_PERCENT: Final = "GPU Memory Allocated (VRAM%)"

Texts: TypeAlias = "Mapping[str, str]"  # a tool's keys or paths, and its values as text

_MAX_DOCUMENTS = 200
_MAX_GPUS = 1024
_MAX_DEPTH = 6


class GpuOutput(NamedTuple):
    """What a run reports about one GPU.

    Attributes:
        number: The tool's number of the GPU.
        address: Its PCI address; empty if it is unknown.
        facts: Those of :data:`~.fields.FACTS`; "" if unknown.
        values: The texts of the fields, plausible or not.
        unsupported: By series, why it is left out.
    """

    number: int
    address: str
    facts: Mapping[str, str]
    values: Mapping[Field, str]
    unsupported: Mapping[Series | str, str]


def _documents(printed: bytes) -> Iterator[Any]:
    """The JSON documents in the output, also between other text."""
    text = printed.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    end = 0
    for _ in range(_MAX_DOCUMENTS):
        begin = re.compile(r"[\[{]").search(text, end)
        if begin is None:
            return
        try:
            document, end = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            end = begin.end()
        else:
            yield document


# -- amd-smi


def parse_amd_smi(printed: bytes) -> dict[int, dict[str, str]]:
    """By number of a GPU, all values by their path: ``mem_usage/used_vram``.

    Raises:
        ValueError: There is no document of the tool.
    """
    for document in _documents(printed):
        entries = document.get("gpu_data") if isinstance(document, dict) else document
        gpus = {
            entry["gpu"]: dict(_leaves(entry))
            for entry in (entries[:_MAX_GPUS] if isinstance(entries, list) else ())
            if isinstance(entry, dict) and type(entry.get("gpu")) is int and 0 <= entry["gpu"] < 1 << 16
        }
        if gpus:
            return gpus
    raise ValueError("amd-smi printed no JSON document with GPUs")


def _leaves(part: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every value with its path, as text with its unit; of a list of engines, also of several partitions, the mean."""
    for name, value in part.items():
        if isinstance(value, list):
            yield f"{path}{name}", _mean(value)
        elif not isinstance(value, dict):
            yield f"{path}{name}", _text(value)
        elif value and all(part.startswith("xcp_") for part in value):
            yield (
                f"{path}{name}",
                _mean([engine for part in value.values() if isinstance(part, list) for engine in part]),
            )
        elif set(value) == {"value", "unit"}:
            yield f"{path}{name}", f"{_text(value['value'])} {_text(value['unit'])}".strip()
        elif depth < _MAX_DEPTH:
            yield from _leaves(value, f"{path}{name}/", depth + 1)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    return json.dumps(value) if type(value) in (int, float) else ""


def _mean(engines: Sequence[object]) -> str:
    """The mean of the engines with a number; ``N/A`` without one, because the GPU does not have them."""
    texts = (str(_text(each.get("value") if isinstance(each, dict) else each)) for each in engines)
    shares = [float(text.removesuffix("%")) for text in texts if re.fullmatch("[0-9]{1,3}(\\.[0-9]+)? ?%?", text)]
    return str(sum(shares) / len(shares)) if shares else "N/A"


def _error_counts(texts: Texts) -> Mapping[str, str]:
    """The section ``ecc_blocks`` by type of error, as ``errors/sram_correctable_count``."""
    counts: dict[str, int] = {}
    for path, text in texts.items():
        section, _, rest = path.partition("/")
        block, _, kind = rest.partition("/")
        if section == "ecc_blocks" and re.fullmatch("[0-9]{1,18}", text):
            name = f"errors/{f.RAS_BLOCKS.get(block.lower(), 'chip_')}{kind}"
            counts[name] = counts.get(name, 0) + int(text)
    unavailable = {"errors": texts["ecc_blocks"]} if "ecc_blocks" in texts else {}
    return {**unavailable, **{name: str(count) for name, count in counts.items()}}


def amd_smi_gpus(metric: Mapping[int, Texts], static: Mapping[int, Texts]) -> list[GpuOutput]:
    """The GPUs in the outputs of ``amd-smi metric`` and ``amd-smi static``."""
    gpus = {}
    for number, values in metric.items():
        printed = {**static.get(number, {}), **values, **_error_counts(values)}
        texts = gpus[number] = {path.lower(): text for path, text in printed.items()}  # some versions print GFX_0
        for path in f.AMD_SMI:  # a section that is missing as a whole is printed as "usage": "N/A"
            section = texts.get(path.partition("/")[0], "0")
            if path not in texts and section.lower() in ABSENT:
                texts[path] = section
        speed = re.fullmatch("([0-9]{1,3}(?:\\.[0-9]+)?) ?GT/s", texts.get("pcie/speed", ""))
        if speed and float(speed[1]) in PCIE_GENERATIONS:
            texts["pcie/generation"] = str(PCIE_GENERATIONS[float(speed[1])])
    return _gpus(gpus, f.AMD_SMI, f.AMD_SMI_FACTS)


# -- rocm-smi


def parse_rocm_smi(printed: bytes) -> dict[int, dict[str, str]]:
    """By number of a card, all texts by their key. The driver's version is added to each.

    Raises:
        ValueError: There is no document of the tool.
    """
    for document in _documents(printed):
        if isinstance(document, dict) and any(name == "system" or _CARD.fullmatch(name) for name in document):
            system = document.get("system")
            driver = system.get("Driver version") if isinstance(system, dict) else None
            return {
                int(card[1]): {
                    key: _CLOCK.sub(r"\1", text.strip())
                    for key, text in {"Driver version": driver, **values}.items()
                    if isinstance(text, str)
                }
                for name, values in document.items()
                if (card := _CARD.fullmatch(name)) and isinstance(values, dict)
            }
    raise ValueError("rocm-smi printed no JSON document with cards")


def rocm_smi_gpus(cards: Mapping[int, Texts]) -> list[GpuOutput]:
    """The GPUs in the output of ``rocm-smi``."""
    sizes = {"VRAM Total Memory (B)", "VRAM Total Used Memory (B)"}  # more exact than whole percent
    gpus = {
        number: {key: text for key, text in texts.items() if key != _PERCENT or not sizes <= texts.keys()}
        for number, texts in cards.items()
    }
    return _gpus(gpus, f.ROCM_SMI, f.ROCM_SMI_FACTS)


# -- both


def _gpus(
    gpus: Mapping[int, Texts], fields: Mapping[str, Field], keys: Mapping[str, tuple[str, ...]]
) -> list[GpuOutput]:
    """The GPUs in an output. GPUs without a known field, such as partitions, are left out."""
    outputs = []
    for number, texts in gpus.items():
        facts = {
            name: next(filter(None, (fact(texts.get(key, ""), f.FACTS[name]) for key in of_tool)), "")
            for name, of_tool in keys.items()
        }
        values: dict[Series, tuple[Field, str]] = {}
        for key, field in fields.items():
            known = values.get(field.series)
            if key in texts and (
                known is None or (not known[0].is_plausible(known[1]) and field.is_plausible(texts[key]))
            ):
                values[field.series] = field, texts[key]
        unsupported: dict[Series | str, str] = {}
        if f.ENERGY.series in values and not _counts_energy(facts):
            del values[f.ENERGY.series]
            unsupported[f.ENERGY.series] = "this model counts in an unknown unit, and the counter wraps within minutes"
        if values or unsupported:
            address = facts["address"].lower()
            outputs.append(GpuOutput(number, address, facts, dict(values.values()), unsupported))
    return outputs


def _counts_energy(facts: Mapping[str, str]) -> bool:
    """Whether the energy counter has 64 bits and a known unit: on Instinct boards after MI100."""
    model = facts["model"].lower()
    named = re.search(r"instinct|\bmi[2-9][0-9]", model) and "mi100" not in model
    return bool(named or re.fullmatch(_INSTINCT, facts["device"]))
