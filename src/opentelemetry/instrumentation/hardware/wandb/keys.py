"""W&B's system metrics: one row of keys per moment, with W&B's own formulas.

A key is not one of our metrics in another unit: W&B counts loopback and calls MiB "MB", and whoever compares a new
dashboard with an old one wants the same numbers. The keys are spelled as on W&B's pages; an export of W&B's own history
writes ``system.`` before each. https://docs.wandb.ai/models/ref/python/experiments/system-metrics
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.wandb import host
from opentelemetry.instrumentation.hardware.wandb.probe import Key, Probe


def modules() -> dict[str, ModuleType]:
    """The module of each vendor that has W&B keys, by the name of its source.

    A source without a module of its name in this folder has no keys. NVIDIA's is the first, because its keys win where
    two vendors have a GPU of the same index.
    """
    found = {module.name for module in pkgutil.iter_modules([os.path.dirname(__file__)])} - {"host", "keys", "probe"}
    names = sorted(found, key=lambda name: (name != "nvidia", name))
    return {name: importlib.import_module(f"{__package__}.{name}") for name in names}


class Rows:
    """Rows of W&B's keys for one process and the machine it runs on.

    Args:
        config: The settings.
        pid: The observed process.
        report: Called with a sentence about keys that are missing.
    """

    def __init__(self, config: Config, pid: int, report: Callable[[str], None]) -> None:
        self._report = report
        self._host = host.Probe(config, pid)
        self._vendors = []
        for name, module in modules().items():
            if config.selects(name):
                probe: Probe[Any] = module.Probe(config, pid)
                if probe.expected:
                    self._vendors.append(_Vendor(name, probe, module.KEYS, report))

    def start(self) -> None:
        """Make the first reading, at which totals and windows begin, and report missing keys.

        Raises:
            OSError: The process has ended.
        """
        self.read()
        if self._host.error:
            self._report(f"no disk.* keys of some paths: {self._host.error}")
        for vendor in self._vendors:
            if vendor.probe.error:
                self._report(f"no {vendor.keys}: {vendor.probe.error}")

    def read(self) -> dict[str, float]:
        """Return one row: ``_timestamp`` (Unix seconds), ``_runtime`` (seconds since the first reading), and the keys.

        Raises:
            OSError: The process has ended.
        """
        for vendor in self._vendors:
            vendor.request()
        history = self._host.read()
        values: dict[str, float] = {
            "_timestamp": history.now.time,
            "_runtime": history.now.clock - history.first.clock,
            **row(host.KEYS, history),
        }
        gpus: set[str] = set()
        for vendor in self._vendors:
            found = {key: value for key, value in vendor.read().items() if _gpu(key) not in gpus}
            gpus |= {gpu for key in found if (gpu := _gpu(key))}
            values.update(found)
        return values

    def close(self) -> None:
        """Release the drivers, except of a vendor that hangs."""
        for vendor in self._vendors:
            vendor.close()
        self._host.close()


class _Vendor:
    """A probe that is read in a separate thread, so that a driver that hangs affects only its own keys.

    Args:
        name: The vendor.
        probe: Returns the readings.
        table: Its keys.
        report: Called with a sentence when the driver hangs.
    """

    def __init__(
        self, name: str, probe: Probe[Any], table: tuple[Key[Any], ...], report: Callable[[str], None]
    ) -> None:
        self.probe = probe
        self.keys = f"{table[0].name.partition('.')[0]}.* keys of {name}"
        self._table = table
        self._report = report
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._rows: SimpleQueue[dict[str, float]] = SimpleQueue()
        self._hangs = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._requests.get():
            reading = self.probe.read()
            self._rows.put({} if reading is None else row(self._table, reading))
        self.probe.close()

    def request(self) -> None:
        """Begin a reading, unless the previous one still hangs. A late row is dropped."""
        if self._hangs and self._rows.empty():
            return
        if self._hangs:
            self._rows.get()
            self._hangs = False
        self._requests.put(True)

    def read(self) -> dict[str, float]:
        """Return the row of the reading that was begun; empty if the driver hangs."""
        if self._hangs:
            return {}
        try:
            return self._rows.get(timeout=self.probe.timeout)
        except Empty:
            self._hangs = True
            self._report(f"no {self.keys}: the driver has not responded for {self.probe.timeout:g} s")
            return {}

    def close(self) -> None:
        """Release the driver, unless it hangs."""
        self._requests.put(False)
        self._thread.join(0 if self._hangs else self.probe.timeout)


def row(table: tuple[Key[Any], ...], reading: Any) -> dict[str, float]:
    """Return the values of all keys of a table, rounded to four digits."""
    pairs = (pair for key in table for pair in key.values(reading))
    return {name: value if isinstance(value, int) else round(value, 4) for name, value in pairs}


def _gpu(key: str) -> str:
    """Return the index of the GPU in a key; "" for other keys."""
    found = re.match(r"gpu\.(?:process\.)?([0-9]+)\.", key)
    return found[1] if found else ""


def tables() -> Iterator[tuple[str, tuple[Key[Any], ...]]]:
    """Return every table of keys: the host's, then each vendor's by the name of its source."""
    yield "host", host.KEYS
    for name, module in modules().items():
        yield name, module.KEYS


def keys_by_metric() -> Mapping[str, list[str]]:
    """Return W&B's keys by the name of each metric."""
    found: dict[str, list[str]] = {}
    for _, table in tables():
        for key in table:
            for metric in key.metrics:
                names = found.setdefault(metric.name, [])
                if key.name not in names:
                    names.append(key.name)
    return found
