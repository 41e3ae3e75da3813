"""The live view on Windows, without a terminal. Prints the screen after some readings, and the page of a GPU."""

import asyncio

from opentelemetry.instrumentation.hardware.cli.signals import ENDING, Signals
from opentelemetry.instrumentation.hardware.cli.top.app import Top
from opentelemetry.instrumentation.hardware.cli.top.feed import Feed
from opentelemetry.instrumentation.hardware.cli.top.processes import ProcessReader
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config


async def show(app: Top) -> None:
    """Print the screen, and that of the page of the first GPU."""
    async with app.run_test(size=(120, 40)) as pilot:
        for key in ("", "enter"):
            if key:
                await pilot.press(key)
            await asyncio.sleep(6)
            for strip in app.screen._compositor.render_strips():
                print("".join(segment.text for segment in strip).rstrip().encode("ascii", "replace").decode())


if __name__ == "__main__":
    session = Session(Config.read({"detail": ["cpu"]}), all_processes=True)
    session.start()
    with Signals(ENDING) as signals:
        asyncio.run(show(Top(Feed(session, ProcessReader()), 1.0, signals=signals)))
    session.close()
