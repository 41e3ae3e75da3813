"""`otel-hardware run` on Windows that gets a signal when it waits for one: windows/interrupted.py SIGNAL"""

import signal
import sys
import threading
import time

from opentelemetry.instrumentation.hardware.cli import main
from opentelemetry.instrumentation.hardware.cli.signals import Signals


def interrupt(number: int) -> None:
    """Raise a signal a second after it has got the handler of `Signals`."""
    while getattr(signal.getsignal(number), "__module__", "") != Signals.__module__:
        time.sleep(0.05)
    time.sleep(1)
    signal.raise_signal(number)


if __name__ == "__main__":
    threading.Thread(target=interrupt, args=[getattr(signal, sys.argv[1])], daemon=True).start()
    sys.exit(main(["run"]))
