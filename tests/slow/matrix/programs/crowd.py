"""A program with processes, threads or tasks of its own: crowd.py KIND. Prints what they returned, and ends with 3."""

import asyncio
import concurrent.futures
import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

go = os.environ["MATRIX_GO"]
KIND = sys.argv[1]


def wait() -> None:
    while not os.path.exists(go):
        time.sleep(0.02)


def instrument() -> None:
    """Instrument this process, unless it has been done or the package is turned off."""
    if "hardware" not in os.environ["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"].split(","):
        from opentelemetry.instrumentation.hardware import HardwareInstrumentor

        if not HardwareInstrumentor().is_instrumented_by_opentelemetry:
            HardwareInstrumentor().instrument()


def work(number: int) -> int:
    if "instrument" in KIND:
        instrument()
    wait()
    return number * number


def started() -> None:
    from opentelemetry import metrics

    metrics.get_meter("application").create_counter("application.steps").add(7)
    open(go + ".started", "w").close()


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def processes(method: str, kind: str) -> object:
    context: Any = multiprocessing.get_context(method)
    if kind == "process":
        made = [context.Process(target=work, args=(n,)) for n in range(3)]
        for each in made:
            each.start()
        started()
        for each in made:
            each.join()
        return [each.exitcode for each in made]
    if kind == "daemon":
        each = context.Process(target=signal.pause, daemon=True)
        each.start()
        started()
        wait()
        return each.is_alive()
    if kind == "terminated":
        each = context.Process(target=signal.pause)
        each.start()
        started()
        wait()
        each.terminate()
        each.join()
        return each.exitcode
    if kind == "pool":
        with context.Pool(2) as pool:
            result = pool.map_async(work, range(4))
            started()
            return result.get(60)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        results = [executor.submit(work, n) for n in range(4)]
        started()
        return [result.result(60) for result in results]


def forks(kind: str) -> object:
    if kind == "storm":
        started()
        codes: set[int] = set()
        while not os.path.exists(go) or len(codes) < 1:
            pid = os.fork()
            if pid == 0:
                os._exit(6)
            codes.add(ended(pid))
        return codes
    fork = ctypes.PyDLL(None).fork if kind == "c" else os.fork
    pid = fork()
    if pid == 0:
        wait()
        if kind == "exec":
            os.execv("/bin/sh", ["sh", "-c", "exit 6"])
        if kind == "exit":
            sys.exit(6)
        os._exit(6)
    started()
    return ended(pid)


def children(kind: str) -> object:
    line = {
        "run": [sys.executable, "-c", "print(6)"],
        "shell": ["/bin/sh", "-c", "sleep 0.1; exit 6"],
        "tree": ["/bin/sh", "-c", "sh -c 'sleep 0.1; exit 2' & sh -c 'sleep 0.1' & wait; exit 6"],
    }
    if kind == "spawn":
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 6"], os.environ)
        started()
        wait()
        return ended(pid)
    if kind == "system":
        started()
        wait()
        return os.waitstatus_to_exitcode(os.system("exit 6"))
    if kind == "killed":
        child = subprocess.Popen(["sleep", "600"])
        started()
        wait()
        child.kill()
        return child.wait()
    started()
    wait()
    done = subprocess.run(line[kind], capture_output=True, check=False)
    return done.returncode, done.stdout


def late() -> None:
    wait()
    time.sleep(0.3)


def threads(kind: str) -> object:
    found: list[object] = []
    if kind == "exception":
        threading.excepthook = lambda arguments: found.append(str(arguments.exc_value))
    targets: dict[str, Any] = {
        "daemon": wait,
        "many": wait,
        "busy": lambda: [sum(range(10_000)) for _ in iter(lambda: os.path.exists(go), True)],
        "exception": lambda: 1 / 0,
        "collect": lambda: [gc.collect() for _ in iter(lambda: os.path.exists(go), True)],
        "late": late,
    }
    if kind == "executor":
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = [pool.submit(work, n) for n in range(8)]
            started()
            return [each.result() for each in results]
    made = [
        threading.Thread(target=targets[kind], daemon=kind == "daemon") for _ in range(300 if kind == "many" else 4)
    ]
    for each in made:
        each.start()
    started()
    wait()
    if kind not in ("daemon", "late"):
        for each in made:
            each.join()
    return sorted(map(str, found))


async def _loop(kind: str) -> object:
    started()
    loop = asyncio.get_running_loop()
    if kind == "child":
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 6")
        await loop.run_in_executor(None, wait)
        return await child.wait()
    if kind == "cancelled":
        task = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.to_thread(wait)
        task.cancel()
        return isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
    if kind == "timers":
        ticks = 0
        while not os.path.exists(go):
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks > 0
    if kind == "signal":
        event = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, event.set)
        await asyncio.to_thread(wait)
        os.kill(os.getpid(), signal.SIGUSR1)
        return await asyncio.wait_for(event.wait(), 30)
    await asyncio.to_thread(wait)
    return 6


def timers(kind: str) -> object:
    count = [0]

    def tick(number: int, frame: object) -> None:
        count[0] += 1

    signal.signal({"real": signal.SIGALRM, "prof": signal.SIGPROF, "virtual": signal.SIGVTALRM}[kind], tick)
    which = {"real": signal.ITIMER_REAL, "prof": signal.ITIMER_PROF, "virtual": signal.ITIMER_VIRTUAL}[kind]
    signal.setitimer(which, 0.002, 0.002)
    started()
    while not os.path.exists(go):
        sum(range(1000))
    signal.setitimer(which, 0)
    return count[0] > 0


def green(kind: str) -> object:
    library, _, what = kind.partition("-")
    if library == "gevent":
        import gevent as module
    else:
        import eventlet as module
    results = []

    def job(number: int) -> None:
        wait()
        results.append(number)

    spawned = [module.spawn(job, number) for number in range(10)]
    started()
    for each in spawned:
        each.join() if library == "gevent" else each.wait()
    if what == "exception":
        raise ValueError("the application failed")
    return sorted(results)


if __name__ == "__main__":
    family, _, rest = KIND.partition("-")
    if family == "mp":
        answer = processes(*rest.split("-")[:2])
    elif family == "green":
        answer = green(rest)
    elif family == "asyncio":
        answer = asyncio.run(_loop(rest))
    else:
        answer = {"fork": forks, "child": children, "threads": threads, "timer": timers}[family](rest)
    print(answer, flush=True)
    sys.exit(3)
