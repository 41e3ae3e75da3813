"""GPUs in runtime suspend are not asked, which would wake them; the kernel says which these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sources.reading import opened
from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.nvidia.naps import Naps

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
    """A machine without a library, which knows whether somebody wanted one."""

    wanted = 0

    def custom(self, name: str, make: Callable[[], Any]) -> Any:
        self.wanted += 1
        raise DriverError(12, "there is no library")


@pytest.mark.parametrize(
    ("gpus", "asleep", "everyone"),
    [
        ({"a": ("auto", "suspended"), "b": ("auto", "active")}, {INNER}, False),
        ({"a": ("auto", "suspended"), "b": ("auto", "suspended")}, {INNER, OUTER}, True),
        ({"a": ("on", "active"), "b": ("on", "suspended")}, set(), False),  # what may not sleep is not asked about
        ({"a": ("auto", "resuming")}, set(), False),
        ({}, set(), False),
    ],
)
def test_runtime_status_tells_which_gpus_sleep(
    gpus: dict[str, tuple[str, str]], asleep: set[str], everyone: bool
) -> None:
    naps = Naps(Tree(machine(**gpus)))
    assert {gpu for gpu in (INNER, OUTER) if gpu in naps} == asleep
    assert naps.all() is everyone


def test_sleeping_gpu_may_wake_and_its_file_may_vanish() -> None:
    tree = Tree(machine(a=("auto", "suspended")))
    naps = Naps(tree)
    assert INNER in naps
    tree.files[f"/sys/bus/pci/devices/{INNER}/power/runtime_status"] = "active\n"
    assert INNER not in naps
    del tree.files[f"/sys/bus/pci/devices/{INNER}/power/runtime_status"]
    assert INNER not in naps


def test_library_is_not_loaded_while_every_gpu_sleeps() -> None:
    tree = Tree(machine(a=("auto", "suspended")))
    drivers = Watched(tree)
    with opened("nvidia", drivers, nvidia_smi="off") as source:
        assert [*source.read(), *source.read_slow()] == []
        assert drivers.wanted == 0
        (sentence,) = source.unsupported
        assert "sleep" in sentence
        tree.files[f"/sys/bus/pci/devices/{INNER}/power/runtime_status"] = "active\n"
        assert [*source.read()] == []
        with pytest.raises(Exception, match="no library"):
            [*source.read_slow()]
        assert drivers.wanted == 1
