"""The command ``otel-hardware``, with a signal during one of its imports.

Usage: interrupted.py SIGNAL NUMBER ARGUMENT...

The signal is sent when the command imports its NUMBER-th module that is not loaded yet.
"""

import os
import sys

number, left = int(sys.argv[1]), int(sys.argv[2])


def watch(event: str, arguments: object) -> None:
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)


sys.addaudithook(watch)

from opentelemetry.instrumentation.hardware.cli import main  # noqa: E402

sys.exit(main(sys.argv[3:]))
