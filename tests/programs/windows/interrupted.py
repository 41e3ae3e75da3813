"""`otel-hardware run` on Windows that gets a signal: windows/interrupted.py SIGNAL"""

import signal
import sys
import threading

from opentelemetry.instrumentation.hardware.cli import main

if __name__ == "__main__":
    timer = threading.Timer(5, signal.raise_signal, [getattr(signal, sys.argv[1])])
    timer.start()
    sys.exit(main(["run"]))
