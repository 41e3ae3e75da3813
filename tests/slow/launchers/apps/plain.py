"""A rank: it works until the end of the case."""

from tests.slow.launchers.apps.role import present, wait

present("rank")
wait()
