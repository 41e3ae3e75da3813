"""Every parser on the inputs that were findings once, and on inputs that Hypothesis mutates."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.slow.fuzz.targets import CORPUS, TARGETS
from tests.support.stage import PATIENT

FINDINGS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())

# Replacements for a value, which leave JSON whole.
VALUES = (
    *(b"-1", b"0.1", b"0", b'"N/A"', b"null", b"true", b"[]", b"{}", b"1e308", b"1e-33", b"-5", b'"-5"'),
    *(b"NaN", b"9" * 400, b'"\\ud800"'),
)

# Replacements for a value, or for some bytes.
WORDS = (
    *VALUES,
    *(b"1e999", b"\xff", b"\0", b"[" * 5000, b"&x;", b"\n", b"", b"N/A", b"101 %", b"\xc2\xb2"),
)

# A number, a text in quotes, or the text of an XML element.
VALUE = re.compile(rb'-?\d[\d.]*|"[^"\n]*"|(?<=>)[^<>\s][^<>]*(?=</)')


def spans(text: bytes) -> list[tuple[int, int]]:
    """Where values begin and end, also those in brackets."""
    found, opened = [each.span() for each in VALUE.finditer(text)], []
    for each in re.finditer(rb"[][{}]", text):
        if each.group() in b"[{":
            opened.append(each.start())
        elif opened:
            found.append((opened.pop(), each.end()))
    return found


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
    text = data.draw(st.sampled_from(seeds(name)) | st.binary(max_size=300))
    words = data.draw(st.sampled_from((VALUES, WORDS)))
    for _ in range(data.draw(st.integers(0, 8 if words is VALUES else 3))):
        values = spans(text)
        if values and (words is VALUES or bool(data.draw(st.booleans()))):
            at, end = data.draw(st.sampled_from(values))
        else:
            at = data.draw(st.integers(0, len(text)))
            end = at + data.draw(st.integers(0, 40))
        text = (
            text[:at]
            + data.draw(st.sampled_from(words) if words is VALUES else st.sampled_from(words) | st.binary(max_size=4))
            + text[end:]
        )
    TARGETS[name].run(text)
