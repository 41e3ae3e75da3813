"""A program with wrong settings, all of which have a secret. Everything that this package says is printed.

Usage: secrets.py MARK
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import fields

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, InMemoryMetricReader, PeriodicExportingMetricReader
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import Config, HardwareInstrumentor
from opentelemetry.instrumentation.hardware.settings.endpoints import Endpoint

MARK = sys.argv[1]
SECRET = f"http://user:{MARK}@host/path?key={MARK}"

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
logging.getLogger("opentelemetry.instrumentation.hardware").setLevel(logging.DEBUG)
for row in fields(Config):
    for value in (SECRET, [SECRET], f"{SECRET},/,0", {SECRET: SECRET}, f"own={SECRET}", f"user:{MARK}@host:4317", 7):
        print(repr(Config.read({row.name: value})))
        try:
            row.metadata["read"](value)
        except ValueError as error:
            print(row.name, error)
headers = {"own": {"url": f"http://127.0.0.1:1/m?key={MARK}", "headers": {"X-Key": MARK}, "timeout": 1}}
config = Config.read({"openmetrics": headers})
print(repr(config), config, Endpoint("own", SECRET), config.openmetrics)
reader = InMemoryMetricReader()
provider = MeterProvider([reader, PeriodicExportingMetricReader(ConsoleMetricExporter(), 3_600_000)])
for options in ({}, {"openmetrics": headers}):
    HardwareInstrumentor().instrument(meter_provider=provider, **options)
    until(lambda: "system.cpu.time" in str(reader.get_metrics_data()), "values of the host")
    provider.force_flush()
    HardwareInstrumentor().uninstrument()
print("done", len(os.environ))
