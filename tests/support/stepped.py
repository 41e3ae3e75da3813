"""A session without threads."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session


class Stepped(Session):
    """A session that starts no thread: its sources are read in the calling one, when it says so."""

    def start(self) -> None:
        pass

    def read_now(self, seconds: float = 0.0, is_last: bool = False) -> None:
        """Read every source once."""
        for runner in self.runners:
            if runner.state is not State.ABSENT:  # its thread would have ended
                runner.read(everything=True)
        self.after_reading()

    def close(self) -> None:
        super().close()
        for runner in self.runners:  # there is no thread that does it
            runner.close()
