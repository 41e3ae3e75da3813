"""The drivers: one kernel for each source, and Python modules on first use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.children import descriptors

from opentelemetry.instrumentation.hardware.drivers import Drivers, Module, plain
from opentelemetry.instrumentation.hardware.kernel import Space
from opentelemetry.instrumentation.hardware.model import Unavailable

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the Linux kernel")


@linux
def test_one_source_has_one_kernel_and_closing_is_safe_at_any_time() -> None:
    def opened() -> int:  # other tests may have left some
        return list(descriptors().values()).count("/proc/stat")

    before = opened()
    drivers = Drivers()
    drivers.close()
    kernel = drivers.kernel()
    assert drivers.kernel() is kernel
    kernel.read("/proc/stat")
    assert opened() == before + 1
    drivers.close()
    drivers.close()
    assert opened() == before


def test_what_a_source_brings_along_is_closed_with_the_rest_where_it_can_be() -> None:
    class Own:
        def __init__(self) -> None:
            self.closed = 0

        def close(self) -> None:
            self.closed += 1

    drivers = Drivers()
    own = drivers.own("own", Own)
    assert type(drivers.own("another", object)) is object
    drivers.close()
    assert own.closed == 1


def test_what_is_shared_is_made_once_and_anew_after_it_was_closed() -> None:
    drivers = Drivers()
    first = drivers.shared("cpus", object)
    assert drivers.shared("cpus", object) is first
    assert drivers.shared("disks", object) is not first
    drivers.close()
    assert drivers.shared("cpus", object) is not first


def test_a_system_that_is_not_linux_has_no_such_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(Unavailable, match="this system is not Linux"):
        Drivers().kernel()


def test_a_module_is_imported_at_its_first_call() -> None:
    code = (
        "import sys; from opentelemetry.instrumentation.hardware.drivers import Drivers\n"
        "module = Drivers().module('psutil'); assert 'psutil' not in sys.modules\n"
        "module.call('cpu_count'); assert 'psutil' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_that_is_not_installed_is_unavailable_and_says_what_to_do() -> None:
    with pytest.raises(Unavailable) as caught:
        Module("no_such_module_anywhere").call("anything")
    assert "no_such_module_anywhere cannot be imported" in caught.value.reason
    assert caught.value.fix == "pip install no_such_module_anywhere"


def test_a_function_that_a_module_does_not_have_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="psutil has no win_service_iter on this system"):
        Module("psutil").call("win_service_iter")
    with pytest.raises(Unavailable, match=r"psutil has no Process\.num_handles on this system"):
        Module("psutil").call("Process.num_handles", os.getpid())


def test_a_method_is_called_on_an_object_that_is_made_of_the_first_argument() -> None:
    psutil = Module("psutil")
    assert psutil.call("Process.name", os.getpid()) == psutil.call("Process.as_dict", os.getpid(), ["name"])["name"]


def test_answers_are_plain_data() -> None:
    import psutil

    memory = Module("psutil").call("virtual_memory")
    assert type(memory) is dict
    assert memory["total"] == psutil.virtual_memory().total
    for core in Module("psutil").call("cpu_times", True):
        assert type(core) is dict
    assert plain({1: (2, Space(1, 2, 3))}) == {"1": [2, {"total": 1, "free": 2, "available": 3, "id": 0}]}
    assert plain(psutil.Process()) == os.getpid()
