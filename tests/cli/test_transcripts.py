"""The complete output of commands on simulated machines: transcripts in `cli/`, byte for byte.

`pytest tests/cli/test_transcripts.py --rewrite` regenerates them from their command lines. Look at what changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk import environment_variables
from tests.support.commands import transcript
from tests.tools.nvml import FakeNvml, Gpu, a100, geforce, h100, mig, refused

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))

_LOST: Gpu = {"UUID": h100(1)["UUID"]} | {call: refused(15) for call in h100(1) if call != "UUID"}

# The GPUs of a transcript's machine.
GPUS: dict[str, list[Gpu]] = {
    "gpu": [geforce(0)],
    "gpus": [h100(0), geforce(1)],
    "gpus-mig": [mig(a100(0), 0, {0: (1, 0), 3: (5, 0)}), a100(1)],
    "gpus-failed": [h100(0), _LOST],
    "gpus-live": [{**h100(index), "CurrentClocksEventReasons": 4} for index in range(3)],
}


# The NVML calls that a transcript's GPU supports: those with values that do not depend on the real time.
SHOWN = (
    *("Name", "UUID", "PciInfo", "Architecture", "MinorNumber", "UtilizationRates", "MemoryInfo", "PerformanceState"),
    *(
        "Temperature",
        "PowerUsage",
        "EnforcedPowerLimit",
        "NumFans",
        "FanSpeed",
        "CurrentClocks",
        "MigMode",
        "MaxMig",
        "mig",
    ),
)


def brief(gpu: Gpu) -> Gpu:
    return {call: value for call, value in gpu.items() if call.startswith(SHOWN)}


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, tmp_path: Path, rewrite: bool) -> None:
    if path.stem == "run-file" and not hasattr(environment_variables, "OTEL_CONFIG_FILE"):
        pytest.skip("this SDK ignores OTEL_CONFIG_FILE")
    env = FakeNvml(tmp_path, *map(brief, GPUS[path.stem])).environment if path.stem in GPUS else {}
    found = transcript(path, env)
    if rewrite:
        path.write_text(found, encoding="utf-8")
    assert found.splitlines() == path.read_text(encoding="utf-8").splitlines()
