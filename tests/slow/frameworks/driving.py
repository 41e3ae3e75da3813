"""What a case does with a server or a task queue while it runs."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support.children import PATIENCE
from tests.support.waiting import wait_for


@dataclass(frozen=True)
class Driven:
    """A program that runs.

    Attributes:
        folder: The folder of the run.
        port: The port that it listens on.
        python: The Python of its virtual environment.
        environment: Its variables.
    """

    folder: Path
    port: int
    python: Path
    environment: Mapping[str, str]


def requests(path: str, clients: int, each: int) -> Callable[[Driven], None]:
    """Return a function that sends requests: from so many clients at the same time, and so many from each."""

    def drive(driven: Driven) -> None:
        open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        url = f"http://127.0.0.1:{driven.port}{path}"

        def client() -> None:
            for _ in range(each):
                with open_url(url, timeout=PATIENCE) as answer:
                    answer.read()

        def listens() -> bool:
            try:
                socket.create_connection(("127.0.0.1", driven.port), PATIENCE).close()
            except OSError:
                return False
            return True

        wait_for(listens, PATIENCE, f"server on port {driven.port}")
        with ThreadPoolExecutor(clients) as pool:
            for future in [pool.submit(client) for _ in range(clients)]:
                future.result()

    return drive


def tasks(count: int) -> Callable[[Driven], None]:
    """Return a function that sends tasks to the queue and waits until all have been done."""

    def drive(driven: Driven) -> None:
        line = [str(driven.python), "-m", "tests.slow.frameworks.programs.tasks", str(count)]
        subprocess.run(line, env=driven.environment, check=True, timeout=PATIENCE, capture_output=True)
        wait_for(lambda: len([*driven.folder.glob("*.done")]) == count, PATIENCE, "end of the tasks")

    return drive
