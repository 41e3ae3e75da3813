"""Output recorded on real machines by others: a folder outside of the repository, named by HARDWARE_SAMPLES."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

_FOLDER = os.environ.get("HARDWARE_SAMPLES")

SAMPLES = Path(_FOLDER) if _FOLDER else None  # the folder. If it is None, tests that need it are skipped.

needs_samples = pytest.mark.skipif(SAMPLES is None, reason="HARDWARE_SAMPLES does not name a folder of recorded output")


def samples(*patterns: str) -> list[Any]:
    """Return the matching files, for `pytest.mark.parametrize`; one skipped case if there is no folder.

    Raises:
        FileNotFoundError: The folder exists, and a pattern matches no file in it.
    """
    if SAMPLES is None:
        return [pytest.param(None, marks=needs_samples, id="no-samples")]
    found = []
    for pattern in patterns:
        matches = sorted(SAMPLES.glob(pattern))
        if not matches:
            raise FileNotFoundError(f"{SAMPLES} has no {pattern}")
        found += [pytest.param(path, id=path.relative_to(SAMPLES).as_posix()) for path in matches]
    return found
