"""The callbacks of examples/training, run by the real Trainers of Hugging Face and Lightning."""

from __future__ import annotations

import pytest
from tests.support import trainers
from tests.support.trainers import problems
from tests.tools import Missing


@pytest.mark.parametrize("program", trainers.PROGRAMS)
def test_callback_makes_a_span_for_each_step_and_epoch(program: str) -> None:
    try:
        trainers.interpreter()
    except Missing as missing:
        pytest.skip(str(missing))
    assert problems(trainers.spans(program)) == []
