"""A program that waits for its first readings, and prints, as JSON, the settings that reached the package.

Usage: configured.py [STATUS]
"""

import json
import sys
from dataclasses import fields

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

session = HardwareInstrumentor()._telemetry.session
if session is not None:
    session.read_now(60)
config = {} if session is None else {row.name: getattr(session.config, row.name) for row in fields(session.config)}
settings = {name: value for name, value in config.items() if value is not None}
print(json.dumps({name: [type(value).__name__, value] for name, value in settings.items()}))
sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
