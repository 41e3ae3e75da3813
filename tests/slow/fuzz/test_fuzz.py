"""Every parser on the inputs that were findings once, and on inputs that Hypothesis mutates."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.slow.fuzz.targets import CORPUS, TARGETS
from tests.support.stage import PATIENT

FINDINGS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())

# Replacements for some bytes.
WORDS = (b"-1", b"1e999", b"NaN", b"9" * 400, b"\xff", b"\0", b"[" * 5000, b'"\\ud800"', b"&x;", b"\n", b"0.1", b"")


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_finding_stays_fixed(path: Path) -> None:
    TARGETS[path.parent.name].run(path.read_bytes())


def test_every_finding_has_a_target() -> None:
    assert {path.parent.name for path in FINDINGS} <= {*TARGETS}


@cache
def seeds(name: str) -> list[bytes]:
    return [*TARGETS[name].seeds()]


@pytest.mark.parametrize("name", TARGETS)
def test_valid_input_is_valid(name: str) -> None:
    for seed in seeds(name):
        TARGETS[name].run(seed)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # by re.compile()
@pytest.mark.parametrize("name", TARGETS)
@PATIENT
@given(data=st.data())
def test_mutated_input_is_valid_or_refused(name: str, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(seeds(name)))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        word = data.draw(st.sampled_from(WORDS) | st.binary(max_size=4))
        text = text[:at] + word + text[at + data.draw(st.integers(0, 40)) :]
    TARGETS[name].run(text)
