"""What every program of the launchers does: say which process it is, and run until the end of the case.

LAUNCHED is the folder of the case. A process writes its role into the file of its PID there; the file ``stop`` ends it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path


def present(role: str) -> None:
    """Announce this process."""
    folder = Path(os.environ["LAUNCHED"])
    part = folder / f"{os.getpid()}.part"
    part.write_text(role)
    part.rename(folder / f"{os.getpid()}.role")


def wait() -> None:
    """Wait for the end of the case."""
    while not os.path.exists(Path(os.environ["LAUNCHED"], "stop")):
        time.sleep(0.05)


def instrument_after_fork() -> None:
    """Do what the post-fork hook of a server does.

    With LAUNCHED_FLUSH=1 the parent exports only at its end, and the child exports by itself.
    """
    from opentelemetry.metrics import get_meter_provider

    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    HardwareInstrumentor().instrument()
    if os.environ.get("LAUNCHED_FLUSH"):

        def flush() -> None:
            while True:
                get_meter_provider().force_flush()  # type: ignore[attr-defined] # it is the SDK's
                time.sleep(0.3)

        threading.Thread(target=flush, daemon=True).start()
