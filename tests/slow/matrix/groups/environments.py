"""Flags of the interpreter, locales, and ways to start a program."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import (
    ABSENT,
    AGENT,
    APP,
    ESCAPES,
    PROGRAMS,
    Case,
    after_reports,
    after_start,
    alone,
    python,
)

import opentelemetry.instrumentation.hardware as package

# What a program adds to its path that starts OpenTelemetry itself.
CODE: Final = os.pathsep.join(
    [*(path for path in sys.path if path.endswith("-packages")), str(Path(package.__file__).parents[3])]
)

_FLAGS: Final = (
    *(("-O",), ("-OO",), ("-B",), ("-s",), ("-u",), ("-b",), ("-bb",), ("-q",), ("-v",), ("-P",), ("-d",)),
    *(("-X", "dev"), ("-X", "faulthandler"), ("-X", "utf8=0"), ("-X", "utf8=1"), ("-X", "tracemalloc=5")),
    *(("-X", "no_debug_ranges"), ("-X", "frozen_modules=off"), ("-X", "int_max_str_digits=640"), ("-X", "importtime")),
    *(("-W", "error"), ("-W", "error::DeprecationWarning"), ("-W", "always"), ("-W", "ignore")),
)

# Flags with which the interpreter ignores PYTHONPATH or site-packages.
_OWN_START: Final = (("-I",), ("-E",), ("-S",), ("-I", "-S"), ("-E", "-S", "-O"), ("-I", "-W", "error", "-X", "dev"))

_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "optimize": {"PYTHONOPTIMIZE": "2"},
    "devmode": {"PYTHONDEVMODE": "1"},
    "malloc-debug": {"PYTHONMALLOC": "debug"},
    "malloc-libc": {"PYTHONMALLOC": "malloc"},
    "hash-seed": {"PYTHONHASHSEED": "0"},
    "unbuffered": {"PYTHONUNBUFFERED": "1"},
    "asyncio-debug": {"PYTHONASYNCIODEBUG": "1"},
    "ascii-output": {"PYTHONIOENCODING": "ascii:strict"},
    "utf16-output": {"PYTHONIOENCODING": "utf-8:replace", "PYTHONLEGACYWINDOWSSTDIO": "1"},
    "warnings-error": {"PYTHONWARNINGS": "error"},
    "pycache-nowhere": {"PYTHONPYCACHEPREFIX": "/nowhere"},
    "locale-C": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "locale-POSIX": {"LC_ALL": "POSIX", "PYTHONUTF8": "0"},
    "locale-missing": {"LC_ALL": "xx_XX.NOWHERE"},
    "locale-empty": {"LANG": ABSENT},
    "name-not-utf8": {os.fsdecode(b"B\xff\xfeD"): "1"},
    "value-not-utf8": {"ODD": os.fsdecode(b"\xff\xfe\x80"), "HOSTNAME": os.fsdecode(b"\xff")},
    "long-value": {"LONG": "x" * 100_000},
    "no-path": {"PATH": ABSENT},
    "empty-path": {"PATH": ""},
    "path-with-empty-entries": {"PATH": "::.:/usr/bin:/bin:"},
    "no-home": {"HOME": ABSENT},
    "home-missing": {"HOME": "/nowhere/at/all"},
    "tmp-missing": {"TMPDIR": "/nowhere/at/all"},
    "proxy": {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"},
    "timezone": {"TZ": "Nowhere/Odd"},
    "no-terminal": {"TERM": ABSENT},
    "library-path": {"LD_LIBRARY_PATH": "/nowhere::."},
    "visible-devices": {"CUDA_VISIBLE_DEVICES": "0,,x;é", "NVIDIA_VISIBLE_DEVICES": "void"},
    "job": {"SLURM_JOB_ID": "nonsense", "SLURM_PROCID": "-1", "RANK": "x", "WORLD_SIZE": "", "LOCAL_RANK": "9" * 99},
    "ray-job": {"RAY_JOB_ID": "\x01", "TORCHELASTIC_RUN_ID": "é" * 500, "OMPI_COMM_WORLD_RANK": "0.5"},
    "kubernetes": {"KUBERNETES_SERVICE_HOST": "x", "POD_NAME": "\n", "CONTAINER_ID": "../../etc"},
}

_ESCAPES: Final = {
    "OTEL_RESOURCE_ATTRIBUTES": f"a={ESCAPES},k8s.pod.name={ESCAPES}",
    **dict.fromkeys(("OTEL_SERVICE_NAME", "HOSTNAME", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "RANK"), ESCAPES),
}
_ODD_NAME: Final = {"MATRIX_FIRST": f"open('/proc/self/comm', 'w').write({ESCAPES[:7]!r})"}

# What a program does before it starts OpenTelemetry.
_FIRST: Final = {
    "recursion-limit": "import sys; sys.setrecursionlimit(200)",
    "switch-interval": "import sys; sys.setswitchinterval(1e-6)",
    "settrace": "import sys, threading\ndef t(*a): return t\nthreading.settrace(t); sys.settrace(t)",
    "setprofile": "import sys, threading\ndef t(*a): pass\nthreading.setprofile(t); sys.setprofile(t)",
    "audit-hook": "import sys; sys.addaudithook(lambda *a: None)",
    "frozen": "import sys; sys.frozen = True; sys._MEIPASS = '/nowhere'",
    "no-executable": "import sys; sys.executable = ''",
    "executable-none": "import sys; sys.executable = None",
    "executable-missing": "import sys; sys.executable = '/nowhere/python'",
    "no-argv": "import sys; del sys.argv",
    "no-main-file": "del __file__",
    "no-stdio": "import sys; sys.stdin = sys.stderr = None",
    "logging-off": "import logging; logging.disable(logging.CRITICAL)",
    "logging-debug": "import logging; logging.basicConfig(level=logging.WARNING, format='%(message)s')",
    "logging-raises": "import logging\nclass H(logging.Handler):\n def emit(s, r): raise OSError\n"
    "logging.getLogger().addHandler(H()); logging.raiseExceptions = False",
    "gc-off": "import gc; gc.disable(); gc.freeze()",
    "gc-often": "import gc; gc.set_threshold(1, 1, 1)",
    "thread-names": "import threading; threading.stack_size(65536)",
    "sleep-patched": "import time; real = time.sleep; time.sleep = lambda s: real(min(s, 0.01))",
    "chdir-root": "import os; os.chdir('/')",
    "sigmask": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {9, 19})",
    "many-modules": "import sys, types\nfor n in range(20000): sys.modules[f'm{n}'] = types.ModuleType(f'm{n}')",
    "broken-module": "import sys\nsys.modules['psutil'] = None",
    "broken-binding": "import sys\nsys.modules['pynvml'] = None",
}


@contextmanager
def _zipped(folder: Path) -> Iterator[Mapping[str, str]]:
    with zipfile.ZipFile(folder / "made" / "app.pyz", "w") as archive:
        archive.write(PROGRAMS / "app.py", "__main__.py")
    yield {}


@contextmanager
def _linked(folder: Path) -> Iterator[Mapping[str, str]]:
    shutil.copy(PROGRAMS / "app.py", folder / "made" / "the app é.py")
    yield {}


def cases() -> list[Case]:
    found = [
        Case(
            "flags" + "".join(flags).replace(" ", ""),
            python("app", "return", flags=flags),
            lines=100_000 if flags in (("-v",), ("-X", "importtime")) else 0,  # they print each import
            fast=flags == ("-OO",),
        )
        for flags in _FLAGS
        if flags != ("-P",) or sys.version_info >= (3, 11)
    ]
    code = {"MATRIX_CODE": CODE, "PYTHONPATH": ABSENT}
    found += [
        Case("flags" + "".join(flags), python("app", "return", flags=flags), environment=code) for flags in _OWN_START
    ]
    found += [
        Case(f"variables-{name}", environment=variables, fast=name == "locale-C")
        for name, variables in _VARIABLES.items()
    ]
    found += [Case(f"first-{name}", environment=code | {"MATRIX_FIRST": first}) for name, first in _FIRST.items()]
    app = str(PROGRAMS / "app.py")
    starts = {
        "module": (sys.executable, "-m", "app", "return"),
        "code": (sys.executable, "-c", f"import runpy; runpy.run_path({app!r}, run_name='__main__')"),
        "stdin": ("/bin/sh", "-c", f"{sys.executable} - < {app}"),
        "shell": ("/bin/sh", "-c", f"{sys.executable} {app} exit; exit $?"),
        "nohup": ("nohup", *APP),
        "setsid": ("setsid", "-w", *APP),
        "nice": ("nice", "-n", "19", *APP),
        "timeout": ("timeout", "-s", "KILL", "80", *APP),
        "xargs": ("/bin/sh", "-c", f"echo exit | xargs {sys.executable} {app}"),
        "env-empty": ("env", "-i", "MATRIX_GO={folder}/go", *APP),
    }
    found += [
        Case(
            f"start-{name}",
            command,
            environment={"PYTHONPATH": f"{_site()}:{PROGRAMS}"}
            if name == "module"
            else {"MATRIX_OWN": ABSENT}
            if name == "env-empty"
            else {},
            hosts=0 if name == "env-empty" else 1,
            act=after_start if name == "env-empty" else after_reports(),
        )
        for name, command in starts.items()
    ]
    found.append(Case("start-zipapp", (sys.executable, "{folder}/made/app.pyz"), around=_zipped, shared=True))
    odd = (sys.executable, "{folder}/made/the app é.py")
    found.append(Case("start-odd-name", odd, around=_linked, shared=True))
    odd_words = ("/bin/bash", "-c", 'mkdir "$0" && cd "$0" && exec -a "$0" "$@"', ESCAPES, sys.executable, APP[1])
    for name, settings in (("", {}), ("-agent", AGENT)):
        found += [
            Case(f"start-odd-words{name}", (*odd_words, ESCAPES), environment=code, settings=settings),
            Case(f"variables-escapes{name}", environment=_ESCAPES, settings=settings),
            Case(f"first-odd-process-name{name}", environment=code | _ODD_NAME, settings=settings),
        ]
    launcher = str(Path(sys.executable).parent / "opentelemetry-instrument")
    for way in ("return", "exit", "exception", "term", "_exit", "kill", "abort"):
        line = (launcher, *python("app", way))
        found.append(Case(f"launcher-{way}", line, environment={"PYTHONPATH": ABSENT, "MATRIX_OWN": ABSENT}))
    empty = (launcher, sys.executable, "-c", "pass")
    found.append(
        Case(
            "launcher-empty-program",
            empty,
            environment={"PYTHONPATH": ABSENT, "MATRIX_OWN": ABSENT},
            act=alone,
            hosts=None,
        )
    )
    return found


def _site() -> str:
    from tests.slow.matrix.run import site_folder

    return site_folder()
