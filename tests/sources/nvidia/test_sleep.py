"""GPUs in runtime suspend are not read, which would wake them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sources.reading import opened
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware.accelerators.sleep import RuntimePower
from opentelemetry.instrumentation.hardware.drivers import DriverError

INNER, OUTER = "0000:01:00.0", "0000:41:00.0"
FILES = {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15"}


def machine(**gpus: tuple[str, str]) -> dict[str, str | bytes | OSError]:
    """A machine whose GPUs, at `a` and `b`, have this control and status."""
    files: dict[str, str | bytes | OSError] = dict(FILES)
    for gpu, (control, status) in zip((INNER, OUTER), gpus.values()):
        files[f"/proc/driver/nvidia/gpus/{gpu}/information"] = "Model: NVIDIA"
        files[f"/sys/bus/pci/devices/{gpu}/power/control"] = f"{control}\n"
        files[f"/sys/bus/pci/devices/{gpu}/power/runtime_status"] = f"{status}\n"
    return files


class Watched(Fabricated):
    """A machine without a library, which counts the attempts to load one."""

    loads = 0

    def custom(self, name: str, make: Callable[[], Any]) -> Any:
        self.loads += 1
        raise DriverError(12, "there is no library")


@pytest.mark.parametrize(
    ("gpus", "suspended", "are_all"),
    [
        ({"a": ("auto", "suspended"), "b": ("auto", "active")}, {INNER}, False),
        ({"a": ("auto", "suspended"), "b": ("auto", "suspended")}, {INNER, OUTER}, True),
        (
            {"a": ("on", "active"), "b": ("on", "suspended")},
            set(),
            False,
        ),  # the state of a device that may not be suspended is not read
        ({"a": ("auto", "resuming")}, set(), False),
        ({}, set(), False),
    ],
)
def test_suspended_gpus_are_those_with_that_runtime_status(
    gpus: dict[str, tuple[str, str]], suspended: set[str], are_all: bool
) -> None:
    power = RuntimePower(Tree(machine(**gpus)), (INNER, OUTER)[: len(gpus)])
    assert {gpu for gpu in (INNER, OUTER) if power.is_suspended(gpu)} == suspended
    assert power.are_all_suspended() is are_all


def test_suspended_gpu_may_resume_and_its_file_may_vanish() -> None:
    tree = Tree(machine(a=("auto", "suspended")))
    power = RuntimePower(tree, [INNER])
    assert power.is_suspended(INNER)
    tree.files[f"/sys/bus/pci/devices/{INNER}/power/runtime_status"] = "active\n"
    assert not power.is_suspended(INNER)
    del tree.files[f"/sys/bus/pci/devices/{INNER}/power/runtime_status"]
    assert not power.is_suspended(INNER)


def test_library_is_not_loaded_while_all_gpus_are_suspended() -> None:
    tree = Tree(machine(a=("auto", "suspended")))
    drivers = Watched(tree)
    with opened("nvidia", drivers, nvidia_smi="off") as source:
        assert [*source.read_all()] == []
        assert drivers.loads == 0
        (sentence,) = source.unsupported
        assert "suspended" in sentence
        tree.files[f"/sys/bus/pci/devices/{INNER}/power/runtime_status"] = "active\n"
        assert [*source.read()] == []
        with pytest.raises(Exception, match="no library"):
            [*source.read_slow()]
        assert drivers.loads == 1
