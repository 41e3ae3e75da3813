"""A parent that has the lock of its job, and a child of another user that cannot see its parent in /proc.

Prints as JSON whether each is the reporter. Exit status 77 if namespaces or other users are not allowed.
"""

from __future__ import annotations

import json
import os
import sys

from tests.support.namespace import check, enter, libc

from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter

NOBODY = 65534


def child() -> list[bool]:
    """Whether a child of another user sees this process, and whether it is the reporter."""
    here, there = os.pipe()
    if not os.fork():
        parent = os.getppid()
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        found = [os.path.exists(f"/proc/{parent}"), Reporter(os.environ).update()]
        os.write(there, json.dumps(found).encode())
        os._exit(0)
    os.wait()
    found = [bool(each) for each in json.loads(os.read(here, 100))]
    os.close(here)
    os.close(there)
    return found


if os.geteuid():
    print("only root can start a program of another user")
    sys.exit(77)
enter()
check(libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2"), "/proc that hides processes")
reporter = Reporter(os.environ)
reporter.join()
found: dict[str, object] = {"parent": reporter.update()}
sees, reports = child()
found |= {"hidden": not sees, "child": reports}
reporter.release()
found["after the end of the lock"] = child()[1]
print(json.dumps(found))
