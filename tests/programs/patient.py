"""Runs another of these programs, whose last reading may take as long as a slow machine needs for it.

Usage: patient.py NAME ARGUMENT...
"""

import runpy
import sys
from pathlib import Path

from opentelemetry.instrumentation.hardware import instrumentor

instrumentor._LAST_CALL = 60.0
del sys.argv[0]
runpy.run_path(str(Path(__file__).with_name(f"{sys.argv[0]}.py")), run_name="__main__")
