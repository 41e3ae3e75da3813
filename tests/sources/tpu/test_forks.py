"""Fork during a gRPC call to a TPU runtime: no child hangs, crashes or keeps a connection.

Over gRPC's own library these children hang (in `os.fork` itself, where GRPC_ENABLE_FORK_SUPPORT is set) or are aborted
(where they start a program). https://github.com/grpc/grpc/blob/master/doc/fork_support.md
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.children import command, run
from tests.tools.tpu import busy, serving

COUNT = 24


@contextmanager
def place(how: str) -> Iterator[str]:
    """The address of a runtime that serves or hangs, or where connections are refused."""
    if how == "refused":
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            yield f"localhost:{bound.getsockname()[1]}"
        return
    with serving(busy()) as tpu:
        if how == "hangs":
            tpu.answering.clear()
        yield tpu.address


@pytest.mark.parametrize("how", ["serves", "hangs", "refused"])
def test_fork_during_a_grpc_call_leaves_children_working(how: str) -> None:
    wanted = "hw.npu.info" if how == "serves" else ""
    with place(how) as address:
        line = command("machines/tpu_storm", address, wanted, COUNT, 60, 0.1 if how == "hangs" else 0.5)
        outcome = run(line, {"GRPC_ENABLE_FORK_SUPPORT": "1"})
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout) == {"outcomes": [0] * COUNT, "loaded": False}
