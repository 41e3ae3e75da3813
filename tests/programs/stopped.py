"""A program that is stopped, all of it, in the midst of a reading that it waits for.

Prints how often its source was read to the end within the second that it waits. Whoever starts it lets it go on.
"""

from __future__ import annotations

import os
import signal
import threading

from tests.stage import ENERGY, Stage

from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.rounds import fresh

stage = Stage(interval=3600.0, expected=3600.0)
ended = 0


def stopped(now: float) -> list[Point]:
    global ended
    os.kill(os.getpid(), signal.SIGSTOP)
    threading.Event().wait(0.05)  # it goes on, a little later than who waits for it
    ended += 1
    return [ENERGY(2)]


(thread,) = stage.rounds
thread.start()
stage.fresh(60.0)
stage.player.read = stopped
fresh(stage.rounds, 1.0)
print(ended, flush=True)
thread.stop()
thread.join(60.0)
