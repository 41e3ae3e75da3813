"""W&B's keys of a GPU while its driver hangs, loses it and resets it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.children import end_of, started
from tests.support.waiting import wait_for
from tests.tools.nvml import HANG, FakeNvml, h100, moving, refused

LONG = 60.0  # seconds until a row counts as missing


@contextmanager
def series(driver: FakeNvml) -> Iterator[Callable[[], dict[str, float]]]:
    """A command that prints rows; the yielded function returns the next one."""
    line = ["otel-hardware", "snapshot", "--format", "wandb", "--every", "0.1", "--window", "0.1"]
    with started(line, driver.environment) as child:
        stdout = child.stdout
        yield lambda: {key: value for key, value in json.loads(stdout.readline()).items() if key.startswith("gpu.")}
        child.send_signal(signal.SIGINT)
        _, err = end_of(child)
        assert child.returncode == 0, err


def test_gpu_keys_follow_the_driver_through_windows_losses_and_hangs(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, {**h100(), "UtilizationRates": HANG})
    with series(driver) as following:
        assert following() == following() == {}, "it hangs from the first call on"
        driver.set_lines({"gpu0.UtilizationRates": (88, 53)})
        for percent in (76, 10):
            driver.set_lines({"gpu0.GpmCounter.2": moving(0, percent)})

            def measured(rate: float = percent) -> bool:
                return following().get("gpu.0.smActive") == pytest.approx(rate, rel=1e-3)

            wait_for(measured, LONG, "GPM window since the row before")
        for what, fault in (("lost", {"gpu0": refused(15)}), ("reset", {"gpu0.UtilizationRates": refused(18)})):
            driver.set_lines(fault)
            wait_for(lambda: following() == {}, LONG, f"row without the GPU that is {what}")
            driver.set_lines({"gpu0": None, "gpu0.UtilizationRates": (88, 53)})
            wait_for(lambda: following().get("gpu.0.gpu") == 88, LONG, f"row with the GPU that was {what}")
        for _ in range(2):  # it hangs again at the end, which does not hold up the command's
            driver.set_lines({"gpu0.UtilizationRates": (88, 53)})
            wait_for(lambda: following().get("gpu.0.gpu") == 88, LONG, "row with the GPU that hung")
            driver.set_lines({"gpu0.UtilizationRates": HANG})
            wait_for(lambda: following() == {}, LONG, "row without the GPU that hangs")
