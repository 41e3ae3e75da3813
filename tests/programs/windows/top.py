"""The live view on Windows, without a terminal. Prints the screen after some readings, and the page of a GPU."""

import asyncio
import time

from opentelemetry.instrumentation.hardware.cli.signals import ENDING, Signals
from opentelemetry.instrumentation.hardware.cli.top.app import Top
from opentelemetry.instrumentation.hardware.cli.top.feed import Feed
from opentelemetry.instrumentation.hardware.cli.top.processes import ProcessReader
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config

PATIENCE = 60.0  # seconds


async def show(app: Top) -> None:
    """Print the screen as soon as it shows a GPU, and then that of the page of this GPU."""
    async with app.run_test(size=(120, 40)) as pilot:
        for key, sign in (("", "GPU 0"), ("enter", "GPU-")):
            if key:
                await pilot.press(key)
            end = time.monotonic() + PATIENCE
            while sign not in (screen := text_of(app)) and time.monotonic() < end:
                await asyncio.sleep(0.1)
            print(screen)


def text_of(app: Top) -> str:
    """Return the text of the screen, without characters that are not ASCII."""
    strips = app.screen._compositor.render_strips()
    lines = ("".join(segment.text for segment in strip) for strip in strips)
    return "\n".join(line.rstrip().encode("ascii", "replace").decode() for line in lines)


if __name__ == "__main__":
    session = Session(Config.read({"detail": ["cpu"]}), all_processes=True)
    session.start()
    with Signals(ENDING) as signals:
        asyncio.run(show(Top(Feed(session, ProcessReader()), 1.0, signals=signals)))
    session.close()
