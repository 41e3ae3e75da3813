"""What can be done about NVIDIA's devices that are out of order."""

from __future__ import annotations

from typing import Final

_REMEDIES: Final = {
    "GPU is lost": "the kernel's log says why, and a restart of the machine brings it back",
    "GPU requires": "nvidia-smi --gpu-reset, once nothing uses it, or a restart of the machine",
}
"""How the driver says that a device is out of order, and what to do."""


def silent(device: str, reason: str) -> str:
    """That a device does not answer, with what can be done."""
    remedy = next((remedy for words, remedy in _REMEDIES.items() if reason.startswith(words)), "")
    return f"{device} does not answer: {reason}{remedy and '; '}{remedy}"
