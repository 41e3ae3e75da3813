"""The prolog, the epilog and the job script of `examples/deploy` in a SLURM of two nodes, with an agent on each.

The nodes are on one machine. Their GPUs are devices that do nothing, and the agents have simulated ones in their place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from shutil import which

from tests.slow.launchers.slurm import Slurm
from tests.support.blocks import substitute
from tests.support.children import PATIENCE, ROOT, started
from tests.support.sink import Sink
from tests.tools import Missing
from tests.tools.daemon import wait

DEPLOY = ROOT / "examples" / "deploy"
NODES = ("n1", "n2")
Say = Callable[[str], None]


def run(folder: Path, say: Say) -> bool:
    """Run a job. Returns whether everything was as it should be."""
    for name in ("slurmctld", "munged"):
        if which(name) is None:
            raise Missing(f"{name} is not installed: apt-get install slurm-wlm munge")
    settings = [f"{name.title()}={wrapped(folder, name)}" for name in ("prolog", "epilog")]
    with ExitStack() as stack:
        sink = stack.enter_context(Sink())
        inside = stack.enter_context(Slurm(folder, NODES, 2, [*settings, "PrologFlags=Alloc"]))
        for node in NODES:
            stack.enter_context(started(["otel-hardware", "run"], agent(folder, node, sink)))
        script = folder / "slurm.sh"
        script.write_text(job(folder, sink))
        command = [*inside, "sbatch", "--parsable", f"--output={folder}/job.log", f"--chdir={folder}", str(script)]
        number = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        say(f"job {number} on the nodes {', '.join(NODES)}")

        def holders() -> set[tuple[str, str, str]]:
            return {
                (str(export.service), str(point.attributes["hw.id"]), str(point.attributes["slurm.job.id"]))
                for export in sink.exports
                for point in export.points
                if point.name == "hw.holder.info" and "slurm.job.id" in point.attributes
            }

        def ranks() -> set[object]:
            return {resource["dl.rank"] for resource in sink.resources if "dl.rank" in resource}

        def log() -> str:
            text = (folder / "job.log").read_text() if (folder / "job.log").exists() else ""
            return f"holders {holders()}, ranks {ranks()}; {text[-2000:]}"

        wait(lambda: len(holders()) == 4 and len(ranks()) == 4, PATIENCE, log)
        files = {node: sorted(os.listdir(folder / f"jobs-{node}")) for node in NODES}
        say(f"written by the prolog: {files}")
        for holder in sorted(holders()):
            say("holder: {} {}, job {}".format(*holder))
        say(f"ranks that report: {sorted(map(str, ranks()))}")
        (folder / "stop").touch()
        wait(lambda: not any(os.listdir(folder / f"jobs-{node}") for node in NODES), PATIENCE, "the epilog")
        say("removed by the epilog")
    return {job for _, _, job in holders()} == {number}


def wrapped(folder: Path, name: str) -> Path:
    """A script of `examples/deploy` with a folder for each node, as both are on this machine."""
    path = folder / f"{name}.sh"
    variable = f"DCGM_HPC_JOB_MAPPING_DIR={folder}/jobs-$SLURMD_NODENAME"
    path.write_text(f"#!/bin/sh\nexec env {variable} {DEPLOY}/slurm-{name}.sh\n")
    path.chmod(0o755)
    return path


def agent(folder: Path, node: str, sink: Sink) -> Mapping[str, str]:
    """The environment of an agent with the files of a node."""
    jobs = folder / f"jobs-{node}"
    jobs.mkdir()
    return sink.environment(1.0) | {
        "OTEL_RESOURCE_ATTRIBUTES": f"host.name={node},host.id={node}",
        "OTEL_SERVICE_NAME": f"agent of {node}",
        "OTEL_PYTHON_HARDWARE_SIMULATE": "2xH100",
        "OTEL_PYTHON_HARDWARE_JOB_FILES": str(jobs),
        "OTEL_PYTHON_HARDWARE_REPORTER": "always",
        "XDG_RUNTIME_DIR": tempfile.mkdtemp(dir=folder),
    }


def job(folder: Path, sink: Sink) -> str:
    """The script of `examples/deploy` for the nodes at hand: two ranks on each."""
    (folder / "train.py").write_text("import os, time\nwhile not os.path.exists('stop'): time.sleep(0.1)\n")
    here = sink.environment(1.0)
    variables = "".join(f"export {name}={value}\n" for name, value in here.items() if name not in ("NO_PROXY",))
    python = Path(sys.executable)
    return substitute(
        (DEPLOY / "slurm.sh").read_text(),
        {
            "--ntasks-per-node=8 --gpus-per-node=8": "--ntasks-per-node=2 --gpus-per-node=2",
            "export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector.example:4317\n": variables,
            "export OTEL_METRIC_EXPORT_INTERVAL=15000": f"export PATH={python.parent}:$PATH PYTHONPATH={ROOT}",
        },
    )
