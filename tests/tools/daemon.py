"""Servers as child processes of a test: ready at the beginning of the `with` block, stopped at its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tests.tools import program

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_DICE = SystemRandom()  # the other one is set to the same number before each test

# Tests do not use the environment's proxy for their own servers, whose certificates they have made themselves.
UNVERIFIED = ssl._create_unverified_context()
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=UNVERIFIED))


class Died(AssertionError):  # noqa: N818 - what happened, said in one word
    """A server did not start, exited unexpectedly, or did not stop correctly. The message has the end of its log."""


def wait(condition: Callable[[], T], seconds: float, what: str | Callable[[], str]) -> T:
    """Poll `condition` and return its first true value. Fails after `seconds` without one."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:g} s: {text}")
        pause.wait(0.02)
    return value


def free_addresses(count: int) -> list[str]:
    """Return different `127.0.0.1:port` addresses on which no server listens.

    The ports are outside the kernel's ephemeral range, so that no connection takes one before the server does.
    """
    found: list[str] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = _DICE.randrange(10_000, 32_768)
            with suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(f"127.0.0.1:{port}")
    return found


def own(directory: Path, name: str) -> Path:
    """Create a new directory in `directory`, so that several servers of a kind can share it."""
    return Path(tempfile.mkdtemp(dir=directory, prefix=f"{name}-"))


def get(url: str, seconds: float = 30.0, body: bytes | None = None) -> str:
    """Return the answer to an HTTP GET, or to a POST of `body`.

    Raises:
        OSError: The server is unreachable, or the status is an error.
    """
    try:
        with _DIRECT.open(url, body, timeout=seconds) as response:
            answer: bytes = response.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise
    return answer.decode()


class Daemon:
    """A server that is ready once a GET of the address `ready` succeeds, and that writes its log into `directory`.

    It can be entered again after it was stopped, and uses the same addresses.

    Attributes:
        status: The exit status of the last run; negative for a signal.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        ready: str,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        seconds: float = 60.0,
    ) -> None:
        self._command = [str(part) for part in command]
        self._ready = ready
        self._environment = os.environ | dict(environment or {})
        self._seconds = seconds
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.status: int | None = None
        self.log = directory / f"{Path(self._command[0]).name}.log"

    @property
    def pid(self) -> int:
        """The PID while the server runs."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait(self._answers, self._seconds, lambda: f"{self._ready} answers; {self._log_tail()}")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        alone = self._process.poll()
        if alone is not None:
            # Shown in place of what the block failed with, as that is most likely only what came of it.
            raise Died(f"ended by itself with status {alone}; {self._log_tail()}") from error
        self.status = self._stop()
        if self.status not in (0, -signal.SIGTERM) and error is None:
            raise Died(f"ended with status {self.status} when asked to; {self._log_tail()}")

    def kill(self) -> None:
        """Kill the server, as a crash would. `__enter__` starts it again."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ask the server to end. `__enter__` starts it again."""
        self._stop()

    def hang(self, hanging: bool = True) -> None:
        """Keep the server from running, with its connections open, or let it go on."""
        os.kill(self.pid, signal.SIGSTOP if hanging else signal.SIGCONT)

    def _answers(self) -> bool:
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            raise Died(f"ended with status {status} before it was ready; {self._log_tail()}")
        try:
            get(self._ready, 1.0)
        except OSError:
            return False
        return True

    def _stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(15.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _log_tail(self) -> str:
        return f"end of {self.log}:\n{self.log.read_text(errors='replace')[-4000:]}"


class NodeExporter(Daemon):
    """Debian's Prometheus node exporter: an independent reader of the same machine."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        (address,) = free_addresses(1)
        self.address = address
        self.url = f"http://{address}/metrics"
        binary = program("prometheus-node-exporter")
        command: list[str | Path] = [binary, f"--web.listen-address={address}", *arguments]
        super().__init__(command, self.url, own(directory, "node-exporter"))


class Prometheus(Daemon):
    """Debian's Prometheus, which scrapes the given addresses every second.

    If a scrape takes longer because the machine is busy, there is no value until the next one.
    """

    def __init__(self, directory: Path, targets: Mapping[str, str], rules: Sequence[Path] = ()) -> None:
        (address,) = free_addresses(1)
        self.url = f"http://{address}"
        jobs = [{"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()]
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rule.resolve()) for rule in rules],
            "scrape_configs": jobs,
        }
        directory = own(directory, "prometheus")
        config = directory / "prometheus.json"
        # JSON is YAML, too.
        config.write_text(json.dumps(settings))
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'prometheus-data'}",
            f"--web.listen-address={address}",
        ]
        super().__init__(command, f"{self.url}/-/ready", directory)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of a PromQL expression now."""
        text = get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        answer: dict[str, Any] = json.loads(text)
        return [(series["metric"], float(series["value"][1])) for series in answer["data"]["result"]]

    def last(self, selector: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the last value of each series in the database."""
        return self.query(f"last_over_time({selector}[1d])")
