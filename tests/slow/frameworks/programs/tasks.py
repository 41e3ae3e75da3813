"""A Celery application with a queue in a folder. As a program, it sends tasks.

Usage: opentelemetry-instrument celery -A tests.slow.frameworks.programs.tasks worker
       python -m tests.slow.frameworks.programs.tasks COUNT
"""

import os
import sys
import time
from pathlib import Path

from celery import Celery

FOLDER = Path(os.environ["HOME"])
QUEUE = FOLDER / "queue"
QUEUE.mkdir(exist_ok=True)

app = Celery("tests.slow.frameworks.programs.tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": str(QUEUE),
    "data_folder_out": str(QUEUE),
    "control_folder": str(FOLDER / "control"),
}


@app.task(name="work", ignore_result=True)  # type: ignore[untyped-decorator] # Celery has no types
def work(number: int) -> None:
    time.sleep(1.2)
    (FOLDER / f"{number}.done").touch()


if __name__ == "__main__":
    for each in range(int(sys.argv[1])):
        work.delay(each)
