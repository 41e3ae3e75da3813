"""A tree of processes that lives until its process group is killed.

Usage: family.py CHILDREN DEPTH THREADS

Each of the children is the first of a chain of DEPTH processes, and each process has THREADS threads.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

CHILDREN, DEPTH, THREADS = map(int, sys.argv[1:])
ready, tell = os.pipe()


def threads() -> None:
    """Begin the other threads of this process, which wait for ever."""
    for _ in range(THREADS - 1):
        threading.Thread(target=threading.Event().wait, daemon=True).start()


def chain(depth: int) -> None:
    """Be a process of the tree, and the parent of the next one."""
    below = os.fork() if depth > 1 else 0
    if depth > 1 and below == 0:
        chain(depth - 1)
    threads()
    os.write(tell, b".")
    while True:
        signal.pause()


threading.stack_size(65536)
for _ in range(CHILDREN):
    if os.fork() == 0:
        chain(DEPTH)
threads()
for _ in range(CHILDREN * DEPTH):
    os.read(ready, 1)
print("ready", flush=True)
signal.pause()
