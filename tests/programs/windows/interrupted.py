"""`otel-hardware run` on Windows that gets a signal when it waits for one: windows/interrupted.py SIGNAL"""

import signal
import sys
import threading
import time

from opentelemetry.instrumentation.hardware.cli import main


def interrupt(number: int, default: object) -> None:
    """Raise a signal a second after it has got a handler."""
    while signal.getsignal(number) is default:
        time.sleep(0.05)
    time.sleep(1)
    signal.raise_signal(number)


if __name__ == "__main__":
    chosen = getattr(signal, sys.argv[1])
    threading.Thread(target=interrupt, args=(chosen, signal.getsignal(chosen)), daemon=True).start()
    sys.exit(main(["run"]))
