"""Record and Replay: calls and answers are written to a capture and replayed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any

import pytest
from tests.sources.reading import Portable
from tests.sources.tree import Fabricated, Tree
from tests.support.stage import Clock

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.drivers.capture import Record, Replay
from opentelemetry.instrumentation.hardware.drivers.child import Output
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext, discover
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace, Usage
from opentelemetry.instrumentation.hardware.version import __version__


class _GoneError(Exception):
    """An error that a module defines."""


def _recorded(
    drivers: Drivers,
    make_calls: Callable[[Record], object],
    mask: Callable[[str], str] = lambda text: text,
    header: Mapping[str, object] | None = None,
) -> list[str]:
    """The lines of a capture of some calls."""
    output = StringIO()
    record = Record(drivers, output, "host", header, mask, Clock())
    make_calls(record)
    record.close()
    return output.getvalue().splitlines()


def _raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what the test is about
        call()
    return caught.value


# -- complete sources


@pytest.mark.parametrize("name", ["host", "filesystem", "container", "process"])
@pytest.mark.parametrize("drivers", [Drivers, Portable], ids=["files", "psutil"])
def test_replayed_source_reads_what_it_read_while_recorded(name: str, drivers: type[Drivers]) -> None:
    clock, output = Clock(), StringIO()
    record = Record(drivers(), output, name, clock=clock)

    def between() -> None:
        clock.now += 5
        record.next()

    read = _readings(name, record, between)
    replay = Replay(output.getvalue().splitlines())
    assert _readings(name, replay, replay.next) == read
    assert read[0] or (name, drivers) == ("container", Portable)
    assert replay.ticks == [0.0, 5.0, 10.0][: len(replay.ticks)]


def _readings(name: str, drivers: Drivers, between: Callable[[], object]) -> list[dict[Series, Value] | str]:
    """Three readings of a source, or the reason why it is absent."""
    readings: list[dict[Series, Value] | str] = []
    source = discover()[name]()(SourceContext(Config(), drivers, os.getpid()))
    try:
        source.open()
    except Unavailable as missing:
        return [missing.reason]
    for tick in range(3):
        if tick:
            between()
        readings.append(dict([*source.read_all()]))
    source.close()
    return readings


def test_own_pid_is_masked_and_replayed_as_the_pid_of_another_process() -> None:
    """The pid of the recording process differs each time, so a placeholder is recorded."""
    lines = _recorded(
        Drivers(),
        lambda record: (
            record.files().read(f"/proc/{os.getpid()}/stat"),
            record.files().names(f"/proc/{os.getpid()}/task"),
            record.files().affinity(os.getpid()),
            record.python_module("psutil").call("Process.num_threads", os.getpid()),
        ),
    )
    calls = [json.loads(line)[:3] for line in lines[2:]]
    assert calls == [
        ["files", "read", ["/proc/{pid}/stat"]],
        ["files", "names", ["/proc/{pid}/task"]],
        ["files", "affinity", ["{pid}"]],
        ["psutil", "call", ["Process.num_threads", "{pid}"]],
    ]
    replay = Replay(lines)
    replay._pid = 123  # another process
    assert "123" in replay.files().names("/proc/123/task")
    assert replay.files().affinity(123) == len(os.sched_getaffinity(0))


# -- calls and answers

ANSWERS: list[Any] = [
    b"text\nof a file \xc3\xa9 \xff\x00 that is no UTF-8",
    b"",
    ["a", "b"],
    7,
    2**63,
    -1.5,
    None,
    True,
    FilesystemSpace(10, 4, 3),
    Usage(1.5, 0.25, 1, 2, 3, 4, 512, 1024),
    Output(-11, b"<gpu>\xff\x00", b""),
    {"bytes": 3, "packets": 4},
    {"bytes": {"sent": 1}},
    {"eth0": {"sent": 1, "names": ["x", {"y": None}]}},
    [{"a": 1}, [b"deep"]],
    {},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=repr)
def test_answer_of_every_type_survives_record_and_replay(answer: Any) -> None:
    drivers = Fabricated(Tree(), {"tool": {"ask": lambda: answer}})
    lines = _recorded(drivers, lambda record: record.python_module("tool").call("ask"))
    replayed = Replay(lines).python_module("tool").call("ask")
    assert replayed == answer
    assert type(replayed) is type(answer)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory"),
        PermissionError(13, "Permission denied"),
        ProcessLookupError(3, "No such process"),
        OSError(95, "Operation not supported"),
        Unavailable("there is no such tool", "install it"),
        Unavailable("no fix"),
        ValueError("nonsense"),
        _GoneError("the process is gone"),
    ],
    ids=repr,
)
def test_error_of_every_type_survives_record_and_replay(error: Exception) -> None:
    drivers = Fabricated(Tree(), {"tool": {"ask": error}})
    lines = _recorded(drivers, lambda record: _raised(lambda: record.python_module("tool").call("ask")))
    replayed = _raised(lambda: Replay(lines).python_module("tool").call("ask"))
    assert type(replayed).__name__ == type(error).__name__
    assert str(replayed) == str(error)
    if isinstance(error, OSError):
        assert isinstance(replayed, OSError)
        assert (type(replayed), replayed.errno) == (type(error), error.errno)
    if isinstance(error, Unavailable):
        assert isinstance(replayed, Unavailable)
        assert (replayed.reason, replayed.fix) == (error.reason, error.fix)


def test_record_raises_the_error_that_it_writes() -> None:
    error = PermissionError(13, "Permission denied")
    drivers = Fabricated(Tree({"/proc/x": error}))
    assert _raised(lambda: _recorded(drivers, lambda record: record.files().read("/proc/x"))) is error


def test_unavailable_driver_is_replayed_as_unavailable() -> None:
    lines = _recorded(Fabricated(None), lambda record: _raised(record.files))
    error = _raised(Replay(lines).files)
    assert isinstance(error, Unavailable)
    assert str(error) == "this system is not Linux"


def test_call_without_recorded_answer_raises_an_error_that_names_it() -> None:
    lines = _recorded(Fabricated(Tree({"/proc/stat": "cpu 1\n"})), lambda record: record.files().read("/proc/stat"))
    replay = Replay(lines)
    with pytest.raises(FileNotFoundError, match=r"the capture has no answer to files\.read\('/proc/other'\)"):
        replay.files().read("/proc/other")
    with pytest.raises(FileNotFoundError):
        replay.files().link("/proc/stat")
    with pytest.raises(Unavailable, match=r"the capture has no answer to psutil\.call\('cpu_times', True\)"):
        replay.python_module("psutil").call("cpu_times", True)


def test_calls_without_an_answer_are_not_recorded() -> None:
    def make_calls(record: Record) -> None:
        record.custom("counted", Counted).close()

    lines = _recorded(Drivers(), make_calls)
    assert len(lines) == 2
    Replay(lines).custom("counted", Counted).close()
    Replay(lines).close()


# -- time


def test_repeated_call_in_a_tick_is_cached_and_unchanged_answer_is_not_rewritten() -> None:
    counted = iter(range(100))
    drivers = Fabricated(Tree({"/proc/still": "same"}), {"tool": {"count": lambda: next(counted)}})
    output, clock = StringIO(), Clock()
    record = Record(drivers, output, "host", clock=clock)
    answers = []
    for _ in range(3):
        answers.append([record.python_module("tool").call("count") for _ in range(2)])
        record.files().read("/proc/still")
        clock.now += 2.5
        record.next()
    assert answers == [[0, 0], [1, 1], [2, 2]], "one answer per tick"
    lines = output.getvalue().splitlines()
    assert [line for line in lines if "tick" in line] == [json.dumps({"tick": at}) for at in (0.0, 2.5, 5.0, 7.5)]
    assert sum("still" in line for line in lines) == 1


def test_replay_answers_from_the_newest_tick_that_has_an_answer() -> None:
    replay = Replay(
        [
            '{"capture": "host"}',
            '{"tick": 0}',
            '["files", "uptime", [], 10.0]',
            '["files", "online", [], 4]',
            '{"tick": 3}',
            '["files", "uptime", [], 13.0]',
            '{"tick": 6}',
            '["files", "online", [], {"error": ["OSError", 5, "gone"]}]',
        ]
    )
    files = replay.files()
    assert (replay.time, files.uptime(), files.online()) == (0, 10.0, 4)
    assert replay.next()
    assert (replay.time, files.uptime(), files.online()) == (3, 13.0, 4)
    assert replay.next()
    assert (replay.time, files.uptime()) == (6, 13.0)
    with pytest.raises(OSError, match="gone"):
        files.online()
    assert not replay.next(), "there is no more"
    assert (replay.time, files.uptime()) == (6, 13.0), "the last tick stays current"


def test_replay_does_not_answer_from_later_ticks() -> None:
    replay = Replay(['{"capture": "x"}', '{"tick": 0}', '{"tick": 1}', '["files", "uptime", [], 1.0]'])
    with pytest.raises(FileNotFoundError):
        replay.files().uptime()
    replay.next()
    assert replay.files().uptime() == 1.0


# -- the file


def test_header_has_source_nature_machine_date_and_version() -> None:
    header = json.loads(_recorded(Drivers(), lambda record: None)[0])
    assert header["capture"] == "host"
    assert header["nature"] == "recorded"
    assert header["package"] == __version__
    assert header["machine"].startswith(os.uname().sysname)
    assert len(header["date"]) == len("2026-01-01")
    assert os.uname().nodename not in header["machine"].split()
    more = {"nature": "made by hand", "settings": {"detail": ["cpu"]}}
    header = json.loads(_recorded(Drivers(), lambda record: None, header=more)[0])
    assert (header["nature"], header["settings"]) == ("made by hand", {"detail": ["cpu"]})
    assert Replay(_recorded(Drivers(), lambda record: None, header=more)).header == header


def test_mask_applies_to_calls_and_answers_alike() -> None:
    tree = Tree({"/sys/secret/name": "the secret name\n", "/sys/secret/other": "x"})

    def make_calls(record: Record) -> None:
        files = record.files()
        folder = files.names("/sys")[0]
        assert files.read(f"/sys/{folder}/name") == b"the secret name\n", "the mask applies to the capture only"

    lines = _recorded(Fabricated(tree), make_calls, lambda text: text.replace("secret", "xxxxxx"))
    assert "secret" not in "\n".join(lines)
    files: Files = Replay(lines).files()
    assert files.names("/sys") == ["xxxxxx"]
    assert files.read("/sys/xxxxxx/name") == b"the xxxxxx name\n"


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "the capture has no tick"),
        (['{"capture": "host"}'], "the capture has no tick"),
        (['{"tick": 0}'], "line 1 of the capture: the first line has no"),
        (["nonsense"], "line 1 of the capture: Expecting value"),
        (['{"capture": "host"}', '["files", "uptime", [], 1]'], "line 2 of the capture: expected a tick"),
        (['{"capture": "host"}', '{"tick": 0}', '["files", "uptime", []]'], "line 3 of the capture: expected a tick"),
        (['{"capture": "host"}', '{"tock": 0}'], "line 2 of the capture: 'tick'"),
        (['{"capture": "host"}', '{"tick": "soon"}'], "line 2 of the capture: could not convert"),
        (['{"capture": "host"}', '{"tick": 0}', "7"], "line 3 of the capture: expected a tick"),
    ],
)
def test_invalid_capture_is_refused_with_the_line_number(lines: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Replay(lines)


class Counted:
    """A custom driver."""

    def power(self, device: str) -> int:
        if device == "lost":
            raise DriverError(15, "GPU is lost")
        return 250

    def close(self) -> None:
        """Nothing is open."""


def test_custom_driver_is_recorded_and_replayed() -> None:
    output = StringIO()
    recorded = Record(Drivers(), output, "counted").custom("counted", Counted)
    assert recorded.power("0") == 250
    with pytest.raises(DriverError, match="lost"):
        recorded.power("lost")
    replayed = Replay(output.getvalue().splitlines()).custom("counted", Counted)
    assert replayed.power("0") == 250
    with pytest.raises(DriverError) as refused:
        replayed.power("lost")
    assert (refused.value.code, refused.value.text) == (15, "GPU is lost")


def test_command_is_recorded_and_replayed() -> None:
    output = StringIO()
    recorded = Record(Drivers(), output, "tool").command(Tool("sh"))
    expected = Output(3, b"out\n", b"err\n")
    assert recorded.run(["-c", "echo out; echo err >&2; exit 3"], 60.0) == expected
    with pytest.raises(TimeoutError):
        recorded.run(["-c", "sleep 3600"], 0.1)
    lines = output.getvalue().splitlines()
    answer = {"Output": {"code": 3, "stdout": {"bytes": "out\n"}, "stderr": {"bytes": "err\n"}}}
    assert json.loads(lines[2]) == ["sh", "run", [["-c", "echo out; echo err >&2; exit 3"], 60.0], answer]
    again = Replay(lines).command(Tool("sh"))
    assert again.run(["-c", "echo out; echo err >&2; exit 3"], 60.0) == expected
    with pytest.raises(TimeoutError, match=r"sh timed out after 0\.1 s"):
        again.run(["-c", "sleep 3600"], 0.1)
    with pytest.raises(Unavailable, match=r"the capture has no answer to sh\.run"):
        again.run(["--help"], 60.0)


def test_missing_command_is_replayed_as_missing() -> None:
    tool = Tool("no-such-tool", fix="install it")
    lines = _recorded(Drivers(), lambda record: _raised(lambda: record.command(tool)))
    error = _raised(lambda: Replay(lines).command(tool))
    assert isinstance(error, Unavailable)
    assert (error.reason, error.fix) == ("no-such-tool is not installed", "install it")
