"""The live view: whole screens on simulated machines, keys, colours, and a real terminal.

`pytest tests/cli/test_top.py --rewrite` writes the screens in `tests/cli/top/` and the picture of the README. Look at
what changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.screens import Act, picture, shown
from tests.tools import fake_nvml, need
from textual.pilot import Pilot

from opentelemetry.instrumentation.hardware.cli.top.app import Top

FOLDER = Path(__file__).parent / "top"
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "top.svg"

SIZES = [(80, 24), (120, 40), (200, 50)]


def compare(found: str, path: Path, rewrite: bool) -> None:
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found.splitlines() == path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("gpus", [0, 1, 16])
def test_screen(gpus: int, size: tuple[int, int], tmp_path: Path, rewrite: bool) -> None:
    need(fake_nvml)
    screen = shown(tmp_path, gpus, size)
    lines = screen.text.splitlines()
    assert len(lines) == size[1]
    assert max(map(len, lines)) <= size[0]
    compare(screen.text, FOLDER / f"{gpus}-gpus-{size[0]}x{size[1]}.txt", rewrite)


def test_picture_of_the_readme(tmp_path: Path, rewrite: bool) -> None:
    need(fake_nvml)
    compare(picture(shown(tmp_path, 4, (120, 40)).strips), PICTURE, rewrite)


def pressing(*keys: str) -> Act:
    async def act(pilot: Pilot[None], app: Top) -> None:
        await pilot.press(*keys)

    return act
