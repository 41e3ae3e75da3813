"""Textual's driver of the terminal, which also survives SIGSTOP."""

from __future__ import annotations

import asyncio

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Restores at the end the terminal as it was at the start, also if the process was stopped and continued.

    At SIGCONT, Textual (8.2) sets the terminal up again. It expects that it has restored it before, which it cannot if
    the signal was SIGSTOP: then it takes its own settings for those of the terminal, and has a second thread that reads
    keys.
    """

    _is_set_up = False

    def start_application_mode(self) -> None:
        if self._is_set_up:  # in a handler of signals, which must not write while the program does
            asyncio.get_running_loop().call_soon_threadsafe(self._restart)
            return
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._is_set_up = True

    def stop_application_mode(self) -> None:
        self._is_set_up = False
        super().stop_application_mode()

    def _restart(self) -> None:
        if self._is_set_up:
            self.suspend_application_mode()
            self.resume_application_mode()
            self._app.refresh(layout=True)
