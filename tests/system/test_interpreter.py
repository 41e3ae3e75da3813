"""Which Python processes only serve others, by the command lines that multiprocessing, loky and Ray give them."""

from __future__ import annotations

import sys

import pytest

from opentelemetry.instrumentation.hardware.system.interpreter import helper

SITE = "/usr/lib/python3/site-packages"


@pytest.mark.parametrize(
    ("arguments", "served"),
    [
        (["-c", "from multiprocessing.resource_tracker import main;main(7)"], "resource_tracker"),
        (["-s", "-E", "-c", "from multiprocessing.semaphore_tracker import main;main(5)"], "semaphore_tracker"),
        (
            ["-X", "dev", "-W", "error", "-c", "from multiprocessing.resource_tracker import main;main(7)"],
            "resource_tracker",
        ),
        (["-X", "utf8", "train.py"], ""),
        (["-X"], ""),
        (["-c", "from joblib.externals.loky.backend.resource_tracker import main; main(4, False)"], "resource_tracker"),
        (["-c", "from multiprocessing.forkserver import main; main(5, 6, ['__main__'], **{})"], "forkserver"),
        (
            ["-c", "import sys; from multiprocessing.forkserver import main; main(5, 6, [], sys_argv=sys.argv[1:])"],
            "forkserver",
        ),
        (["-u", f"{SITE}/ray/_private/log_monitor.py", "--session-dir=/tmp/ray"], "ray"),
        (["-u", f"{SITE}/ray/_private/runtime_env/agent/main.py"], "ray"),
        (["-u", f"{SITE}/ray/dashboard/agent.py"], "ray"),
        (["-u", f"{SITE}/ray/autoscaler/_private/monitor.py"], "ray"),
        ([f"{SITE}/ray/_private/workers/default_worker.py"], ""),
        (["-c", "from multiprocessing.spawn import spawn_main; spawn_main(4)", "--multiprocessing-fork"], ""),
        (["-c", "from mine import main; main()"], ""),
        (["train.py", "-c", "from multiprocessing.resource_tracker import main"], ""),
        (["-m", "train", "-c", "from multiprocessing.resource_tracker import main"], ""),
        (["-c"], ""),
        ([], ""),
    ],
)
def test_command_lines_of_helpers(monkeypatch: pytest.MonkeyPatch, arguments: list[str], served: str) -> None:
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *arguments])
    monkeypatch.delitem(sys.modules, "multiprocessing.forkserver", raising=False)
    assert helper() == served
