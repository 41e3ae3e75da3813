"""The command ``otel-hardware``, with Ctrl-C amid one of its imports.

Usage: interrupted.py NUMBER ARGUMENT...

The signal comes when the command imports a module that is not loaded yet, for the so many-th time.
"""

import os
import sys

CTRL_C = 2  # the module that knows its name is one of those to interrupt
left = int(sys.argv[1])


def watch(event: str, arguments: object) -> None:
    global left
    if event == "import":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), CTRL_C)


sys.addaudithook(watch)

from opentelemetry.instrumentation.hardware.cli import main  # noqa: E402

sys.exit(main(sys.argv[2:]))
