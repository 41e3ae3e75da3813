"""What identifies a machine or its users is not in a recording, and the recording replays nevertheless."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from opentelemetry.instrumentation.hardware.cli.privacy import Mask
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.capture import Record, Replay
from opentelemetry.instrumentation.hardware.system.files import Files

NAMES = {"host names": ["gpu-17.corp.example", "gpu-17"], "user names": ["mallory"]}

PRIVATE = {
    "/proc/self/mountinfo": "36 1 0:41 / /home/mallory/data rw - nfs4 filer7.corp.example:/export rw,addr=10.20.30.40",
    "/proc/self/cgroup": "0::/docker/3f2a9c7e1b4d5a6f8091a2b3c4d5e6f7a8b9c0d1e2f30415263748596a7b8c9d",
    "/proc/7/cmdline": "python\0--token\0hunter2\0",
    "/sys/class/dmi/id/product_serial": "CZ3120XYZ",
    "/sys/class/net/eth0/address": "52:54:00:ab:cd:ef",
    "/proc/net/route": "eth0\t00000000\t0102A8C0\t0003\t0",
    "/proc/net/tcp": "0: 0A141E28:1F90 2801A8C0:C350 01",
    "/proc/net/if_inet6": "addr fe80::5054:ff:feab:cdef scope",
    "/var/log/hosts": "GPU-51310000-2330-4000-8000-000000000007 on GPU-17 gpu-17.corp.example of user mallory, "
    "in /Users/mallory/x",
    "/tmp/smi.xml": "<process_name>python train.py --key=hunter2</process_name><serial>1652922010987</serial>",
    "/tmp/tool.json": '{"serial_number": "QTFCOU7190012", "card": 0, "ip": "192.168.1.17"}',
}

MARKS = """
gpu-17 mallory filer7 10.20.30.40 3f2a9c7e1b4d hunter2 CZ3120XYZ 52:54:00:ab:cd:ef 0102A8C0 0A141E28 2801A8C0 fe80
51310000-2330 1652922010987 QTFCOU7190012 192.168.1.17
"""

KEPT = """
0000:1a:00.0 580.95.05 96.00.89.00.01 12.4.1 python eth0 /proc/self/mountinfo 00000000 nfs4 127.0.0.1
00:00:00:00:00:00 hunter 2.6.32 Linux
"""


class Marked(Drivers):
    """Files with marks."""

    def files(self) -> Files:
        class Fake:
            def read(self, path: str) -> bytes:
                return PRIVATE[path].encode()

        return cast(Files, Fake())


def recorded(paths: Sequence[str]) -> tuple[str, Mask]:
    output, mask = io.StringIO(), Mask(names=NAMES)
    drivers = Record(Marked(), output, "host", mask=mask, mask_answer=mask.answer)
    files = drivers.files()
    for path in paths:
        files.read(path)
    return output.getvalue(), mask


def test_no_mark_is_in_a_recording() -> None:
    text, mask = recorded([*PRIVATE])
    assert [mark for mark in MARKS.split() if mark.lower() in text.lower()] == []
    assert len(text.splitlines()) == len(PRIVATE) + 2
    assert mask.found.keys() >= {"host names", "user names", "UUIDs", "serial numbers", "IP addresses", "MAC addresses"}


def test_recording_replays() -> None:
    text, _ = recorded([*PRIVATE])
    files = Replay(text.splitlines()).files()
    for path in PRIVATE:
        assert files.read(path)
    assert files.read("/proc/net/route").startswith(b"eth0\t00000000\t")
    assert b" - nfs4 " in files.read("/proc/self/mountinfo")
    assert json.loads(files.read("/tmp/tool.json"))["card"] == 0


@pytest.mark.parametrize("text", KEPT.split())
def test_what_is_not_private_stays(text: str) -> None:
    assert Mask(names=NAMES)(f"a {text} b") == f"a {text} b"


def test_same_text_has_the_same_substitute_within_a_recording_only() -> None:
    uuid = "GPU-51310000-2330-4000-8000-000000000007"
    first, other = Mask(names=NAMES), Mask(names=NAMES)
    assert first(uuid) == first(uuid) != other(uuid)
    assert len(first(uuid)) == len(uuid)
    assert first(uuid) != first(uuid.replace("7", "8"))


@pytest.mark.parametrize("answer", [{"bytes": "CZ3120\n"}, "CZ3120", ["CZ3120"], 3, None])
def test_answers_of_all_forms_are_taken(answer: Any) -> None:
    mask = Mask(names=NAMES)
    found = mask.answer(("0", "Serial"), answer)
    assert type(found) is type(answer)
    assert "CZ3120" not in str(found) or isinstance(answer, list)
