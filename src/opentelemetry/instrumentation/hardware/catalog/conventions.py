"""The version of the semantic conventions that the catalog follows, and what the next version changes.

Names and values that differ between the two stand here only. Everything else is the same in both.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Conventions(NamedTuple):
    """What a version of the semantic conventions changed.

    Attributes:
        version: Its version.
        device: The attribute with the name of a disk.
        memory_states: The values of ``system.memory.state``. Their sum is the total memory.
    """

    version: str
    device: str
    memory_states: tuple[str, ...]


V1_44: Final = Conventions("1.44.0", "system.device", ("used", "free", "cached", "buffers"))
V1_45: Final = Conventions("1.45.0", "system.device.name", ("used", "available"))

FOLLOWED: Final = V1_44
"""The newest version that the package opentelemetry-semantic-conventions defines. A test fails when it defines 1.45."""
