"""The command `otel-hardware`, with the next version of the semantic conventions."""

import importlib.util
import sys
from pathlib import Path

import opentelemetry.instrumentation.hardware as package

name = f"{package.__name__}.catalog.conventions"
spec = importlib.util.spec_from_file_location(name, Path(package.__file__).parent / "catalog" / "conventions.py")
assert spec is not None
assert spec.loader is not None
conventions = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conventions)
conventions.FOLLOWED = conventions.V1_45  # type: ignore[attr-defined]

from opentelemetry.instrumentation.hardware.cli import main  # noqa: E402 - the catalog is made from FOLLOWED

sys.exit(main())
