"""uWSGI, which forks in C: every worker answers and reports itself, and one of them reports the host.

UWSGI_STARTS is how often each way is started, and UWSGI the program.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version
from tests.support import children
from tests.support.sink import Sink
from tests.support.waiting import wait_for
from tests.tools.daemon import free_addresses

PROGRAM = os.environ.get("UWSGI", str(Path(sys.executable).parent / "uwsgi"))
REQUESTS = 5  # sent at once: more than one worker can take, with two threads

STARTS = int(os.environ.get("UWSGI_STARTS", "1"))
APP = str(children.PROGRAMS / "processes/uwsgi_app.py")

# Seconds between two exports of the master. If the SDK's thread exports at the moment when uWSGI forks, the workers
# hang, also without this package.
INTERVAL = 3600

HOST, PROCESS = "system.memory.usage", "process.memory.usage"

pytestmark = [
    pytest.mark.skipif(not Path(PROGRAM).exists(), reason="pyuwsgi is not installed"),
    pytest.mark.skipif(
        Version(version("opentelemetry-sdk")) < Version("1.44"),
        reason="before 1.44, the resource of a forked worker has the process.pid of its parent",
    ),
]

WAYS = {
    "master": ["--master", "--processes=2"],
    "master-threads": ["--master", "--processes=2", "--enable-threads", "--threads=2"],
    "master-lazy": ["--master", "--processes=2", "--lazy-apps"],
    "master-lazy-threads": ["--master", "--processes=2", "--lazy-apps", "--enable-threads"],
    "fork-hooks": ["--master", "--processes=2", "--py-call-osafterfork"],
    "alone": ["--enable-threads"],
    "without-master": ["--processes=2", "--enable-threads"],
}


def serve(sink: Sink, options: list[str], extra: dict[str, str]) -> None:
    """Start uWSGI, and kill it when each worker has answered and exported twice, and one of them the host."""
    (address,) = free_addresses(1)
    count = 2 if "--processes=2" in options else 1
    hooked: dict[int, int] = {}

    def exported(pid: int) -> int:
        return sum(export.pid == pid and PROCESS in export.names() for export in sink.exports)

    def hosts() -> set[int]:
        return {export.pid for export in sink.exports if HOST in export.names()}

    def have_exported() -> bool:
        return len(hooked) == count and all(exported(pid) >= 2 for pid in hooked) and bool(hosts())

    def request(number: int) -> None:
        with suppress(OSError):
            answer = urllib.request.urlopen(f"http://{address}/", timeout=20).read().split()
            hooked[int(answer[0])] = int(answer[1])

    def ask() -> bool:
        """Send requests at once: of those one after the other, the same worker may take all."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            list(threads.map(request, range(REQUESTS)))
        return have_exported() or ("UWSGI_INTERVAL" in extra and len(hooked) == count)

    line = [PROGRAM, f"--http-socket={address}", f"--wsgi-file={APP}", *options]
    environment = sink.environment(INTERVAL) | children.AUTO_INSTRUMENTATION | extra
    environment["OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL"] = "0.25"
    line += ["--need-app", "--disable-logging", "--logto=/dev/null"]
    with children.started(line, environment):
        wait_for(ask, children.PATIENCE, f"answer of {count} workers")
        wait_for(have_exported, children.PATIENCE, "two exports of each worker, and of the host")
    assert len(hosts()) == 1
    runs = 1 if "UWSGI_HOOK" in extra else 0
    assert {*hooked.values()} == {runs}, "the application's own hook ran once in each worker"
    assert {export.pid for export in sink.exports if PROCESS in export.names()} == {*hooked}


@pytest.mark.parametrize("way", WAYS)
def test_each_worker_answers_and_reports_itself(way: str) -> None:
    if way == "fork-hooks" and sys.version_info >= (3, 13):
        pytest.skip("with this option, the workers of uWSGI 2.0.30 crash on Python 3.13, also without this package")
    for _ in range(STARTS):
        with Sink() as sink:
            serve(sink, WAYS[way], {})


@pytest.mark.parametrize("hook", ["decorator", "attribute"])
def test_hook_of_the_application_runs_too_and_workers_export_periodically(hook: str) -> None:
    with Sink() as sink:
        serve(sink, WAYS["master"], {"UWSGI_HOOK": hook, "UWSGI_INTERVAL": "200"})
