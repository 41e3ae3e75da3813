"""A Ray program with two actors on a local cluster."""

from __future__ import annotations

import ray
from tests.slow.launchers.apps.role import present, wait


class Worker:
    """An actor: a process of its own."""

    def work(self) -> None:
        """Work until the end of the case."""
        present("worker")
        wait()


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    actors = [ray.remote(Worker).remote() for _ in range(2)]
    tasks = [actor.work.remote() for actor in actors]
    present("parent")
    ray.get(tasks)
    ray.shutdown()
