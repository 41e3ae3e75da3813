"""The code blocks of the documentation, and an environment that runs them as a reader pastes them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.children import PROGRAMS, ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

# A reader's program that runs until the test has seen its metrics, and creates the file `stop`.
WAITING = """\
import pathlib, time
end = time.monotonic() + 240
while not pathlib.Path("stop").exists() and time.monotonic() < end:
    time.sleep(0.05)
"""

_FENCE = re.compile(r" *```(\w*)")
_REASON = re.compile(r"<!-- not run: (.+) -->")


class Block(NamedTuple):
    """A code block.

    Attributes:
        page: The file.
        line: The number of its first line.
        language: The word after the fence; "" for output and diagrams of text.
        text: Its lines.
        reason: Why it is not run, from a comment before it: ``<!-- not run: REASON -->``.
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start, language, reason = 0, "", ""
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if not start:
            before = _REASON.fullmatch(lines[number - 2].strip()) if number > 1 else None
            start, language, reason = number, fence[1], before[1] if before else ""
            continue
        indent = len(line) - len(line.lstrip())
        text = "\n".join(each[indent:] for each in lines[start : number - 1])
        yield Block(page, start + 1, language, text + "\n", reason)
        start = 0


def the_block(page: Path, words: str) -> Block:
    """Return the only block of a page that contains some words."""
    (found,) = [block for block in blocks(page) if words in block.text]
    return found


def desk(folder: Path, program: str) -> dict[str, str]:
    """Prepare a folder in which blocks run: the checkout, the reader's programs, and a pip that installs nothing.

    Args:
        folder: An empty folder.
        program: The text of the reader's program, `train.py`.

    Returns:
        The environment variables to add.
    """
    for part in ROOT.iterdir():
        if not part.name.startswith(".") and part.name != "dist":
            (folder / part.name).symlink_to(part)
    (folder / "train.py").write_text(program)
    commands = folder / ".commands"
    commands.mkdir()
    _script(folder / "train", 'test "$*" = "--epochs 3"')
    _script(commands / "pip", f"exec '{sys.executable}' '{PROGRAMS / 'tools/only_pip.py'}' \"$@\"")
    path = (str(commands), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return {"PATH": os.pathsep.join(path)}


def bash(block: Block) -> list[str]:
    """Return the command line that runs a block and fails with its first failure."""
    # With status 1, `doctor` reports a problem, such as a source that does not respond because the machine is busy.
    text = re.sub("^otel-hardware doctor$", r"\g<0> || test $? = 1", block.text, flags=re.MULTILINE)
    return ["bash", "-euo", "pipefail", "-c", text]


def substitute(text: str, replacements: Mapping[str, str]) -> str:
    """Replace words that must occur in a text."""
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    return text


def _script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def commands(readme: Path, first_word: str) -> str:
    """Return the block of shell commands in a README with a line that begins with a word."""
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", readme.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [text for text in blocks if re.search(rf"^\s*{re.escape(first_word)}\b", text, re.MULTILINE)]
    return found
