"""What is open under a number: a program may close descriptors of ours, and have files of its own in their place."""

from __future__ import annotations

import os


def opened(descriptor: int) -> tuple[int, int] | None:
    """What tells the open file from every other one; None where none is open."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino
