"""A Celery application."""

import os

from celery import Celery
from celery.signals import worker_ready


@worker_ready.connect
def ready(**options):  # type: ignore[no-untyped-def]
    open(os.environ["MATRIX_GO"] + ".started", "w").close()


app = Celery("tasks", broker="memory://", backend="cache+memory://")
