"""Run a command in poor surroundings: limited.py WORD... -- COMMAND. A word is NAME=VALUE, such as nofile=20."""

import os
import resource
import signal
import sys
import tempfile

at = sys.argv.index("--")
for word in sys.argv[1:at]:
    name, equals, value = word.partition("=")
    if name == "umask":
        os.umask(int(value, 8))
    elif name == "nice":
        os.nice(int(value))
    elif name == "close":
        os.close(int(value))
    elif name == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), int(value))
    elif name == "broken":
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, int(value))
        os.close(writer)
    elif name == "cwd":
        gone = tempfile.mkdtemp()
        os.chdir(gone)
        os.rmdir(gone)
    elif name == "user":
        os.setgroups([])
        os.setgid(int(value))
        os.setuid(int(value))
    elif name == "ignore":
        signal.signal(getattr(signal, value), signal.SIG_IGN)
    elif name == "block":
        signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, value)])
    elif name == "inherit":
        for _each in range(int(value)):
            os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
    elif name == "affinity":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    else:
        kind, limit = getattr(resource, f"RLIMIT_{name}"), int(value)
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (limit, limit if hard < 0 else min(limit, hard)))
command = sys.argv[at + 1 :]
os.execvp(command[0], command)
