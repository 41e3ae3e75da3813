"""Which Python processes only serve others, by the command lines that multiprocessing, loky and Ray give them."""

from __future__ import annotations

import sys

import pytest

from opentelemetry.instrumentation.hardware.system.interpreter import is_helper

SITE = "/usr/lib/python3/site-packages"


@pytest.mark.parametrize(
    ("arguments", "helps"),
    [
        (["-c", "from multiprocessing.resource_tracker import main;main(7)"], True),
        (["-s", "-E", "-c", "from multiprocessing.semaphore_tracker import main;main(5)"], True),
        (["-c", "from joblib.externals.loky.backend.resource_tracker import main; main(4, False)"], True),
        (["-c", "from multiprocessing.forkserver import main; main(5, 6, ['__main__'], **{})"], True),
        (
            ["-c", "import sys; from multiprocessing.forkserver import main; main(5, 6, [], sys_argv=sys.argv[1:])"],
            True,
        ),
        (["-u", f"{SITE}/ray/_private/log_monitor.py", "--session-dir=/tmp/ray"], True),
        (["-u", f"{SITE}/ray/_private/runtime_env/agent/main.py"], True),
        (["-u", f"{SITE}/ray/dashboard/agent.py"], True),
        (["-u", f"{SITE}/ray/autoscaler/_private/monitor.py"], True),
        ([f"{SITE}/ray/_private/workers/default_worker.py"], False),
        (["-c", "from multiprocessing.spawn import spawn_main; spawn_main(4)", "--multiprocessing-fork"], False),
        (["-c", "from mine import main; main()"], False),
        (["train.py", "-c", "from multiprocessing.resource_tracker import main"], False),
        (["-m", "train", "-c", "from multiprocessing.resource_tracker import main"], False),
        (["-c"], False),
        ([], False),
    ],
)
def test_command_lines_of_helpers(monkeypatch: pytest.MonkeyPatch, arguments: list[str], helps: bool) -> None:
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *arguments])
    monkeypatch.delitem(sys.modules, "multiprocessing.forkserver", raising=False)
    assert is_helper() is helps
