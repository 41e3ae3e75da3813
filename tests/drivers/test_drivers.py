"""Drivers: one object per tool, custom drivers, and Python modules on first use."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule, plain
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace


def test_custom_driver_with_close_is_closed() -> None:
    class Custom:
        def __init__(self) -> None:
            self.closed = 0

        def close(self) -> None:
            self.closed += 1

    drivers = Drivers()
    custom = drivers.custom("custom", Custom)
    assert type(drivers.custom("another", object)) is object
    drivers.close()
    assert custom.closed == 1


def test_each_tool_has_one_command_and_one_stream() -> None:
    drivers = Drivers()
    python, other = Tool("python", sys.executable), Tool("other", sys.executable)
    for get in (drivers.command, drivers.stream):
        assert get(python) is get(python)
        assert get(other) is not get(python)
    with pytest.raises(Unavailable):
        drivers.command(Tool("there-is-no-such-tool"))


def test_driver_error_has_code_and_text() -> None:
    error = DriverError(15, "GPU is lost")
    assert (error.code, error.text, str(error)) == (15, "GPU is lost", "GPU is lost (15)")


def test_files_are_unavailable_outside_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(Unavailable, match="this system is not Linux"):
        Drivers().files()


def test_module_is_imported_at_first_call() -> None:
    code = (
        "import sys; from opentelemetry.instrumentation.hardware.drivers import Drivers\n"
        "module = Drivers().python_module('psutil'); assert 'psutil' not in sys.modules\n"
        "module.call('cpu_count'); assert 'psutil' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_module_is_unavailable_with_pip_install_as_fix() -> None:
    with pytest.raises(Unavailable) as caught:
        PythonModule("no_such_module_anywhere").call("anything")
    assert "no_such_module_anywhere cannot be imported" in caught.value.reason
    assert caught.value.fix == "pip install no_such_module_anywhere"


def test_missing_module_function_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="psutil has no win_service_iter on this system"):
        PythonModule("psutil").call("win_service_iter")
    with pytest.raises(Unavailable, match=r"psutil has no Process\.num_handles on this system"):
        PythonModule("psutil").call("Process.num_handles", os.getpid())


def test_method_call_constructs_object_from_first_argument() -> None:
    psutil = PythonModule("psutil")
    name = psutil.call("Process.name", os.getpid())
    assert psutil.call("Process.as_dict", os.getpid(), ["name"]) == {"name": name}


def test_module_answers_are_plain_data() -> None:
    import psutil

    memory = PythonModule("psutil").call("virtual_memory")
    assert type(memory) is dict
    assert memory["total"] == psutil.virtual_memory().total
    for core in PythonModule("psutil").call("cpu_times", True):
        assert type(core) is dict
    assert plain({1: (2, FilesystemSpace(1, 2, 3))}) == {"1": [2, {"total": 1, "free": 2, "available": 3}]}
    assert plain(psutil.Process()) == os.getpid()
