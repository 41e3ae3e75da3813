"""``python -m opentelemetry.instrumentation.hardware``: the same as the command ``otel-hardware``."""

import sys

from opentelemetry.instrumentation.hardware.cli import main

if __name__ == "__main__":
    sys.exit(main())
