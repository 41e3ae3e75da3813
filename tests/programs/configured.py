"""A program that waits for its first readings, and prints, as JSON, the settings that reached the package.

Usage: configured.py [STATUS]
"""

import json
import sys

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

session = HardwareInstrumentor()._session
if session is not None:
    session.read_now(60)
settings = {} if session is None else {name: value for name, value in vars(session.config).items() if value is not None}
print(json.dumps({name: [type(value).__name__, value] for name, value in settings.items()}))
sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
