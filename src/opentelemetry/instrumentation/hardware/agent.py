"""The agent: a child process that reports the host, its devices and this process, so that this process does not.

It is ``otel-hardware run --attach``, with the environment of this process. A driver that hangs or crashes affects only
the agent. The agent ends by itself after this process, and if that drops its privileges. It is no child of this
process, where that is possible; see :mod:`.drivers.detached`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote

from opentelemetry.instrumentation.hardware.drivers.child import Child
from opentelemetry.instrumentation.hardware.drivers.detached import start_detached
from opentelemetry.instrumentation.hardware.drivers.spawn import file_identity
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, python_executable, search_path
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import printable
from opentelemetry.instrumentation.hardware.system.syscalls import pidfd_open

_LOG = logger(__name__)

_PAUSES = (1.0, 10.0)  # seconds before the second and the third start

# Seconds after which an agent counts as working: if it ends later, there are three new attempts.
_STABLE = 600.0

# Seconds until an agent that does not end after SIGTERM is killed. Its last export takes 2 s at most.
_STOP = 3.0

# Seconds without a sign of life after which an agent counts as stopped. It gives one every :data:`BEAT` seconds.
_SILENCE = 30

_FIRST_SIGN = 120  # the same until its first sign of life: on a busy machine, it starts slowly

BEAT = 5.0  # seconds between two signs of life, which the agent prints

_MOST_LINES = 20  # lines of an agent's standard error that are logged in :data:`_LOG_PERIOD`

_LOG_PERIOD = 60.0  # seconds

_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, getattr(signal, "SIGBUS", 0))

# Prefixes of variables that change how a Python process starts, or that would start another agent.
_NOT_PASSED = ("PYTHON", "LD_PRELOAD", "LD_AUDIT", "MALLOC_", "COVERAGE_", PREFIX + "MODE")

# Prefixes of resource attributes that the application and the agent have of their own.
_OF_EACH_PROCESS = ("telemetry.", "service.instance.id", "process.")

# Runs the command in Python's isolated mode, which ignores PYTHONPATH and the current folder. The search path of this
# process comes last, so no file beside the application can replace a module of the agent. Where memory is short, the
# kernel ends the agent rather than the application.
_PROGRAM = """\
import contextlib, sys
with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
sys.path += [each for each in {path!r} if each not in sys.path]
from opentelemetry.instrumentation.hardware.cli import main
sys.exit(main({arguments!r}))
"""


def is_supported() -> bool:
    """Whether an agent can follow the end of this process: Linux 5.3 and later."""
    try:
        os.close(pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def obstacle() -> str | None:
    """Return why no agent can report this process, as a sentence without its end. None if one can."""
    exporters = [name.strip() for name in os.environ.get("OTEL_METRICS_EXPORTER", "").split(",")]
    if "prometheus" in exporters:
        return "An agent cannot listen on the Prometheus port of the program"
    if "console" in exporters:
        return "An agent cannot print on the console of the program"
    if getattr(sys, "frozen", False):
        return "An agent needs a Python interpreter, and a frozen program is none"
    if not is_supported():
        return "An agent needs pidfd_open(2) of Linux 5.3"
    return None


class Agent:
    """The agent of this process, and the thread that starts it and starts it again if it ends.

    Args:
        options: Settings that were given in code, which override those of the environment.
        resource: Returns the resource attributes of the application.
        give_up: Called after the third failure, in that thread.
        check: Called in that thread about once per second.
        ledgers: The file for the ledgers of spans, which is closed with the agent; None if spans are not measured.

    Attributes:
        pid: The process that it reports.
        is_ready: Whether an agent has begun to report.
    """

    def __init__(
        self,
        options: Mapping[str, object],
        resource: Callable[[], Mapping[str, object]],
        give_up: Callable[[], None],
        check: Callable[[], None],
        ledgers: int | None = None,
    ) -> None:
        self._options = options
        self._resource = resource
        self._give_up = give_up
        self._check = check
        self._ledgers = ledgers
        self._identity = None if ledgers is None else file_identity(ledgers)
        self.pid = os.getpid()
        self.is_ready = False
        self._child: Child | None = None
        self._log_began = -_LOG_PERIOD
        self._logged = 0  # lines since then
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otel-hardware-agent", daemon=True)

    def start(self) -> None:
        """Start the agent. Does not wait for it."""
        self._thread.start()

    def stop(self, seconds: float = _STOP + 1.0) -> None:
        """End the agent after a last export, or kill it after three seconds. Waits so many seconds for its end."""
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        self._close_ledgers()

    def abandon(self) -> None:
        """Close the inherited descriptors in a forked child. The agent belongs to the parent."""
        if self._child is not None:
            self._child.close()
        self._close_ledgers()

    def _close_ledgers(self) -> None:
        descriptor, self._ledgers = self._ledgers, None
        if descriptor is not None and file_identity(descriptor) == self._identity:
            os.close(descriptor)

    def _run(self) -> None:
        failures = 0
        while True:
            begin = time.monotonic()
            try:
                ended = self._run_once()
            except Exception as error:
                ended = f"it cannot be started: {error}", False
            if ended is None:
                _LOG.warning("The agent does not respond; this process reports instead")
                self._close_ledgers()
                self._give_up()
                return
            if self._stopping.is_set():
                return
            reason, crashed = ended
            failures = 1 if time.monotonic() - begin > _STABLE else failures + 1
            if failures > len(_PAUSES):
                break
            _LOG.info("The agent has ended (%s); it is started again", reason)
            if self._stopping.wait(_PAUSES[failures - 1]):
                return
        self._close_ledgers()
        if crashed:  # in this process, a driver would crash the program
            _LOG.warning("The agent has crashed %d times (%s); hardware metrics are missing", failures, reason)
        else:
            _LOG.warning("The agent has ended %d times (%s); this process reports instead", failures, reason)
            self._give_up()

    def _run_once(self) -> tuple[str, bool] | None:
        """Run the agent until it ends. Returns the reason, and whether it crashed; None if it does not respond.

        An agent does not respond if it is stopped, or if the system does not let it run.
        """
        arguments = ["run", "--attach", str(os.getpid()), "--agent"]
        if self._ledgers is not None and file_identity(self._ledgers) != self._identity:
            self._ledgers = None  # the program has closed it, and its number may be that of another file
        if self._ledgers is not None:
            arguments.append("--ledgers")
        program = _PROGRAM.format(path=search_path(), arguments=arguments)
        line = [Tool("Python", python_executable()).find(), "-I", "-c", program]
        own = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_PASSED)}
        environ = {**own, **_resource_variables(self._resource()), **_as_variables(self._options)}
        child = self._child = start_detached("the agent", line, environ, self._ledgers, _STOP, keeper=False)
        if self._stopping.is_set():  # stop() did not see this child yet
            child.terminate()
        last = ""
        deadline = None
        silence, most = 0, _FIRST_SIGN  # rounds, not seconds, because this process may be stopped for a while
        try:
            while (sign := child.read_chunk(1.0)) is not None:
                last = self._log(child) or last
                self._check()
                silence = 0 if sign else silence + 1
                if sign:
                    self.is_ready, most = True, _SILENCE
                if self._stopping.is_set():
                    deadline = deadline or time.monotonic() + _STOP
                    if time.monotonic() > deadline:
                        break
                elif silence > most:
                    return None
            last = self._log(child) or last
        finally:  # the next agent, or this process, must not report beside it
            child.kill()
        code = child.code or 0
        if code < 0:
            known = {each.value: each.name for each in signal.Signals}  # without most real-time signals
            return f"killed by {known.get(-code, f'signal {-code}')}", -code in _CRASHES
        return f"exit status {code}{': ' if last else ''}{last}", False

    def _log(self, child: Child) -> str:
        """Log the messages of the agent. Returns the last one. A library may print without end in the agent."""
        text = bytes(child.stderr).decode(errors="replace")
        child.stderr.clear()
        lines = [printable(line.removeprefix("otel-hardware: ")) for line in text.splitlines() if line.strip()]
        now = time.monotonic()
        if now - self._log_began >= _LOG_PERIOD:
            more = self._logged - _MOST_LINES
            if more > 0:
                _LOG.warning("Agent: %d more lines", more)
            self._log_began, self._logged = now, 0
        for line in lines[: max(0, _MOST_LINES - self._logged)]:
            _LOG.warning("Agent: %s", line)
        self._logged += len(lines)
        return lines[-1] if lines else ""


def _resource_variables(resource: Mapping[str, object]) -> dict[str, str]:
    """Return the resource of the application as environment variables, which have text only.

    Numbers are left out: the agent detects ranks and PIDs itself, and as numbers.
    """
    texts = {
        name: value
        for name, value in resource.items()
        if isinstance(value, str) and not name.startswith(_OF_EACH_PROCESS) and not {*name} & {*"=,"}
    }
    if not texts:
        return {}
    variables = {"OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{name}={quote(value)}" for name, value in texts.items())}
    if "service.name" in texts:
        variables["OTEL_SERVICE_NAME"] = texts["service.name"]
    return variables


def _as_variables(options: Mapping[str, object]) -> dict[str, str]:
    """Return settings as environment variables.

    Raises:
        TypeError: A setting has no text form, such as endpoints that are given as a mapping, or words with commas.
    """
    variables = {}
    for name, value in options.items():
        if value is None or name == "mode":
            continue
        words = value if isinstance(value, (list, tuple, set)) else [value]
        is_text = all(isinstance(word, (str, int, float, os.PathLike)) for word in words)
        if not is_text or (words is value and any("," in str(word) for word in words)):
            raise TypeError(f"{name} cannot be passed to an agent in this form; use {PREFIX}{name.upper()}")
        variables[PREFIX + name.upper()] = ",".join(map(str, words))
    return variables
