"""Vendors' tools that hang, flood, fork, fail or print garbage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import ABSENT, APP, ESCAPES, Case, Run, Surroundings
from tests.slow.matrix.groups.environments import CODE

# Each tool: the setting of its path, and what else must be set.
_TOOLS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "nvidia-smi": ("NVIDIA_SMI", {"NVML": "off"}),
    "amd-smi": ("AMD_SMI", {"AMDGPU": "off", "ROCM_SMI": "off"}),
    "rocm-smi": ("ROCM_SMI", {"AMDGPU": "off", "AMD_SMI": "off"}),
    "neuron-monitor": ("NEURON_MONITOR", {}),
    "macmon": ("MACMON", {"APPLE_GPU_STATS": "off", "IOREG": "off"}),
    "ioreg": ("IOREG", {"APPLE_GPU_STATS": "off", "MACMON": "off"}),
}

_SCRIPTS: Final = {
    "hangs": "exec sleep 3600",
    "hangs-ignoring-signals": "trap '' TERM INT HUP QUIT PIPE; while :; do sleep 1; done",
    "hangs-with-closed-output": "exec >&- 2>&-; exec sleep 3600",
    "hangs-after-output": "echo '{'; exec sleep 3600",
    "stops-itself": "kill -STOP $$",
    "exit-0-silent": "exit 0",
    "exit-1": "echo 'no devices were found' >&2; exit 1",
    "exit-9-printing": "echo '<?xml version=\"1.0\"?><a>'; exit 9",
    "exit-127": "exit 127",
    "exit-255": "exit 255",
    "killed": "kill -KILL $$",
    "crashes": "kill -SEGV $$",
    "aborts": "kill -ABRT $$",
    "garbage": "head -c 20000 /dev/urandom",
    "zeros": "head -c 200000 /dev/zero",
    "html": "echo '<html><body>502 Bad Gateway</body></html>'",
    "empty-json": "echo '{}'",
    "wrong-json": 'echo \'[1, "two", null, {"card0": []}]\'',
    "broken-json": 'echo \'{"card0": {"Temperature": \'',
    "deep-json": "head -c 100000 /dev/zero | tr '\\0' '['",
    "numbers-json": 'printf \'{"card0": {"Power": 1e999, "Temp": NaN, "N": %0500d}}\' 9',
    "empty-xml": "echo '<nvidia_smi_log></nvidia_smi_log>'",
    "entities-xml": 'echo \'<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">]><a>&c;&c;</a>\'',
    "deep-xml": "for n in $(seq 3000); do printf '<a>'; done",
    "wrong-encoding": "printf '\\377\\376<\\0a\\0>\\0'",
    "escapes": "printf '\\033[2J\\033]0;title\\007{\\r\\b\\0}'",
    "escapes-in-errors": f"printf '%s\\n' '{ESCAPES}' >&2; exit 3",
    "flood-of-bytes": "exec cat /dev/zero",
    "flood-of-lines": "exec yes '{\"period\": 1}'",
    "flood-of-errors": "exec yes 'cannot open the device' >&2",
    "output-of-30-MB": "head -c 30000000 /dev/zero | tr '\\0' ' '; echo '{}'",
    "line-of-5-MB": "head -c 5000000 /dev/zero | tr '\\0' 'x'; exec sleep 3600",
    "drips": "while :; do printf '{'; sleep 0.2; done",
    "slow": "sleep 2; echo '{}'",
    "forks": "sleep 3600 & sleep 3600 & wait",
    "forks-and-ends": "sleep 3600 & echo '{}'",
    "forks-many": "for n in 1 2 3 4 5 6 7 8; do sleep 3600 & done; exit 1",
    "reads-input": "cat; read x; exit 3",
    "kills-its-group": "kill -TERM 0; sleep 3600",
    "kills-its-parent": "trap '' TERM; echo $PPID; exit 1",
}

_FILES: Final[Mapping[str, Callable[[Path], object]]] = {
    "missing": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "not-executable": lambda path: path.write_text("#!/bin/sh\n"),
    "no-interpreter": lambda path: _written(path, "#!/nowhere/sh\n"),
    "no-program": lambda path: _written(path, "\x7fELF nonsense"),
    "empty": lambda path: _written(path, ""),
    "link-loop": lambda path: path.symlink_to(path),
}


def _written(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _variables(tool: str, path: Path) -> dict[str, str]:
    name, others = _TOOLS[tool]
    return {f"OTEL_PYTHON_HARDWARE_{key}": value for key, value in {name: str(path), **others}.items()}


def script(tool: str, code: str) -> Surroundings:
    """A tool that is a shell script."""

    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        path = folder / "made" / tool
        _written(path, f"#!/bin/sh\n: > {folder}/made/called\n{code}\n")
        yield _variables(tool, path)

    return around


def _file(tool: str, make: Callable[[Path], object]) -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        path = folder / "made" / tool
        make(path)
        yield _variables(tool, path)

    return around


def was_started(folder: Path) -> str:
    """Check that the tool was called."""
    return "" if (folder / "made" / "called").exists() else "the tool was never started"


def after_tool(run: Run) -> None:
    """Let the program end when the tool was started, and the host was reported."""
    run.until(run.has_started)
    if run.is_on and any((run.folder / "made").iterdir()):
        run.until((run.folder / "made" / "called").exists)
    run.until(run.has_reported, 30)
    run.go()


def cases() -> list[Case]:
    found = []
    for tool in _TOOLS:
        mac = {"MATRIX_CODE": CODE, "PYTHONPATH": ABSENT, "MATRIX_MAC": "1"} if tool in ("macmon", "ioreg") else {}
        # Tools with the same driver differ in their parser only.
        few = tool in ("amd-smi", "ioreg")
        for name, code in _SCRIPTS.items():
            if few and name not in ("hangs", "exit-1", "garbage", "flood-of-bytes", "forks", "empty-json", "deep-json"):
                continue
            found.append(
                Case(
                    f"{tool}-{name}",
                    environment=mac,
                    around=script(tool, code),
                    act=after_tool,
                    lines=1,
                    check=was_started,
                    fast=(tool, name) in _FAST,
                )
            )
        for name, make in _FILES.items():
            if not few and (tool != "macmon" or name in ("missing", "no-program")):
                found.append(Case(f"{tool}-file-{name}", environment=mac, around=_file(tool, make), lines=1))
        for way in ("kill", "term", "_exit"):
            if not few:
                found.append(
                    Case(
                        f"{tool}-forks-{way}",
                        (*APP[:-1], way),
                        environment=mac,
                        around=script(tool, _SCRIPTS["forks"]),
                        act=after_tool,
                        lines=1,
                        check=was_started,
                        fast=tool == "neuron-monitor" and way == "kill",
                    )
                )
    return found


_FAST: Final = {
    ("nvidia-smi", "hangs"),
    ("rocm-smi", "crashes"),
    ("neuron-monitor", "flood-of-lines"),
    ("macmon", "garbage"),
}
