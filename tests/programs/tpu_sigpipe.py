"""Calls a TPU runtime that closed the connection, in a program that SIGPIPE ends."""

from __future__ import annotations

import signal
from contextlib import closing
from tempfile import TemporaryDirectory

from tests.sources.tpu.test_rpc import Client, answer, devices, server

from opentelemetry.instrumentation.hardware.sources.tpu.driver import Services


def answer_once(client: Client) -> None:
    client.send(answer(client.request()))


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
with (
    TemporaryDirectory() as folder,
    server(answer_once, answer_once, path=f"{folder}/socket") as address,
    closing(Services()) as services,
):
    for _ in range(2):
        devices(services, address)
