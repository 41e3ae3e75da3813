"""A launcher that is not instrumented. It starts its ranks one after the other, and passes each line of its input on.

Usage: ranks.py VARIABLE COUNT COMMAND    VARIABLE has the number of each rank

Each rank answers its start and each line with one line. They have this parent, as the ranks of mpiexec of MPICH have,
whose job has no other identifier.
"""

from __future__ import annotations

import os
import subprocess
import sys

variable, count, *command = sys.argv[1:]
ranks: list[subprocess.Popen[str]] = []


def pass_on_answer(rank: subprocess.Popen[str]) -> None:
    assert rank.stdout
    print(rank.stdout.readline(), end="", flush=True)


for number in range(int(count)):
    environ = os.environ | {variable: str(number), "LOCAL_RANK": str(number)}
    pipe = subprocess.PIPE
    ranks.append(subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, text=True))
    pass_on_answer(ranks[-1])
for line in sys.stdin:
    for rank in ranks:
        assert rank.stdin
        rank.stdin.write(line)
        rank.stdin.flush()
        pass_on_answer(rank)
for rank in ranks:
    rank.communicate()
