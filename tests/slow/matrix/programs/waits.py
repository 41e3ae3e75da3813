"""A program that waits for all of its children: waits.py KIND [init|subreaper]. It ends with 3.

Prints what became of its own children, and how many others there were.
"""

import ctypes
import os
import signal
import sys
import time

import psutil

go = os.environ["MATRIX_GO"]
kind, *role = sys.argv[1:]
own: list[int] = []
codes: list[int] = []
others: list[int] = []
if role:
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(4))  # process 1 ignores it by default
    signal.alarm(30)  # here, a child of the package may be a child of the program
if role == ["subreaper"]:
    ctypes.CDLL(None).prctl(36, 1)


def wait() -> None:
    while not os.path.exists(go):
        time.sleep(0.02)


def fork(seconds: float = 0.0) -> None:
    pid = os.fork()
    if pid == 0:
        wait()
        time.sleep(seconds)
        os._exit(6)
    own.append(pid)


def ended(pid: int, status: int) -> None:
    if pid in own:
        codes.append(os.waitstatus_to_exitcode(status))
    else:
        others.append(pid)


def waitid() -> tuple[int, int]:
    found = os.waitid(os.P_ALL, 0, os.WEXITED)
    assert found is not None
    return found.si_pid, found.si_status << 8


def handler(number: int, frame: object) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended(pid, status)


WAITS = {
    "wait": os.wait,
    "wait3": lambda: os.wait3(0)[:2],
    "waitid": waitid,
    "group": lambda: os.waitpid(0, 0),
    "prefork": os.wait,
}
if kind == "handler":
    signal.signal(signal.SIGCHLD, handler)
elif kind == "ignored":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for number in range(3):
    fork(60.0 if kind.startswith("kill") else number / 10)

from opentelemetry import metrics  # noqa: E402

metrics.get_meter("application").create_counter("application.steps").add(7)
open(go + ".started", "w").close()

if kind in WAITS:
    while True:
        try:
            pid, status = WAITS[kind]()
        except ChildProcessError:
            break
        ended(pid, status)
        if kind == "prefork" and len(own) < 6:  # a worker has ended: start another one
            fork()
elif kind == "handler":
    while len(codes) < 3:
        time.sleep(0.05)
elif kind == "ignored":
    wait()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
else:
    # Children that run all the time: a tool that is called is one for milliseconds.
    samples = []
    while not os.path.exists(go):
        samples.append({each.pid for each in psutil.Process().children(recursive=True)})
        time.sleep(0.02)
    others += set.intersection(*samples[-20:]) - {*own}
    if kind == "kill":
        for each in psutil.Process().children(recursive=True):
            each.kill()
    elif kind == "killpg":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    for pid in own:
        ended(*os.waitpid(pid, 0))
print(codes, len(others), flush=True)
sys.exit(3)
