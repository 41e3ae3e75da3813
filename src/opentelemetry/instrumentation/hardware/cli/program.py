"""A program that ``otel-hardware run`` starts: its signals, its exit and its exit status."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.instrumentation.hardware.cli.messages import Mistake, cause, say
from opentelemetry.instrumentation.hardware.cli.signals import CHILD, FORWARDED, KEYBOARD, Signals
from opentelemetry.instrumentation.hardware.drivers.spawn import lacks
from opentelemetry.instrumentation.hardware.system.job import start_time
from opentelemetry.instrumentation.hardware.system.syscalls import pidfd_open


def started(program: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the program.

    Raises:
        Mistake: The program cannot be started.
    """
    try:
        return subprocess.Popen(program, env=environ)
    except FileNotFoundError:
        if path := shutil.which(program[0]):
            raise Mistake(f"{program[0]} cannot be started: {lacks(path)}", 126) from None
        hint = f", or: otel-hardware run -- python {program[0]}" if program[0].endswith(".py") else ""
        raise Mistake(f"{program[0]}: command not found; check the name and PATH{hint}", 127) from None
    except OSError as error:
        raise Mistake(f"{program[0]} cannot be started: {cause(error)}", 126) from None


def has_ended(child: subprocess.Popen[bytes], signals: Signals, seconds: float | None = None) -> bool:
    """Wait for a signal, forward it, and return whether the program has ended. It is not reaped yet."""
    if _is_over(child):
        return True
    number = signals.wait(seconds if CHILD else 0.1)
    if number and number != CHILD and not (number in KEYBOARD and _is_in_foreground()):
        try:
            child.send_signal(number)
        except PermissionError:  # such as sudo
            say(f"signal {number} cannot be forwarded: the program runs as another user")
    return _is_over(child)


def exit_status(child: subprocess.Popen[bytes]) -> int:
    """Reap the program and return its exit status; 128 + n if signal n killed it."""
    status = child.wait()
    return status if status >= 0 else 128 - status


class Attached:
    """A running process that this command did not start. One that is ours has started this command, as its agent.

    Raises:
        Mistake: There is no such process, or this user may not read it.
    """

    def __init__(self, pid: int, is_ours: bool = False) -> None:
        self.pid = pid
        self._descriptor: int | None = None
        self._is_running: Callable[[], bool] = lambda: True
        try:
            self._descriptor = pidfd_open(pid)
        except ProcessLookupError:
            raise Mistake(f"there is no process {pid}") from None
        except OSError:  # not Linux 5.3 or later
            import psutil

            try:
                self._is_running = psutil.Process(pid).is_running
            except psutil.Error:
                raise Mistake(f"there is no process {pid}") from None
        if not is_ours and start_time(pid) is None:  # as with the mount option hidepid
            raise Mistake(f"there is no running process {pid} that this user may read")

    def environ(self) -> dict[str, str]:
        """Return the environment that the process was started with, without the folders of another user.

        Raises:
            OSError: It is not known, or may not be read.
        """
        with open(f"/proc/{self.pid}/environ", "rb") as file:
            pairs = (os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0"))
        environ = {name: value for name, separator, value in pairs if separator}
        if os.stat(f"/proc/{self.pid}").st_uid != os.geteuid():
            environ.pop("XDG_RUNTIME_DIR", None)
        return environ

    def has_other_user(self) -> bool:
        """Whether it runs as another user than this command, because it has dropped its privileges."""
        import psutil

        try:
            return bool(psutil.Process(self.pid).uids().effective != os.geteuid())
        except (AttributeError, psutil.Error):
            return False

    def wait(self, signals: Signals, seconds: float) -> bool:
        """Wait for its end or for a signal. Returns False after the timeout."""
        if self._descriptor is None:
            return bool(signals.wait(min(seconds, 1.0))) or not self._is_running()
        return bool(signals.wait(seconds, self._descriptor) or select.select([self._descriptor], [], [], 0)[0])


def run_as_init() -> int | None:
    """As process 1 of a container, start the agent as a child, forward signals to it and reap orphans.

    Returns:
        The exit status of the agent; in the agent itself None.
    """
    numbers = (*FORWARDED, CHILD)
    with Signals(numbers, even_ignored=numbers) as signals:  # before the program can run, so that none is lost
        agent = os.fork()
        while agent:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == agent:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            number = 0 if ended else signals.wait()
            if number and number != CHILD:
                os.kill(agent, number)
    return None


def _is_over(child: subprocess.Popen[bytes]) -> bool:
    if child.returncode is not None or not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _is_in_foreground() -> bool:
    """Whether the terminal has sent a signal of the keyboard to the program, as to all foreground processes."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
