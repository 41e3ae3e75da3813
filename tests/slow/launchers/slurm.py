"""A SLURM cluster of one machine on the loopback interface, from Debian's packages, with one node or several.

It runs in namespaces of its own, so no daemon outlives it and no file of the machine changes.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.tools import Missing
from tests.tools.daemon import free_addresses, wait

_CONFIGURATION: Final = """\
ClusterName=trial
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
{more}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""

_DAEMONS: Final = """\
hostname localhost
munged --foreground --force --socket={folder}/munge.socket --key-file={folder}/munge.key --seed-file={folder}/seed \\
    --pid-file={folder}/munged.pid --origin=127.0.0.1 > {folder}/munged.log 2>&1 &
until [ -S {folder}/munge.socket ]; do sleep 0.05; done
slurmctld -D -i -c -f {folder}/slurm.conf > {folder}/slurmctld.log 2>&1 &
for node in {nodes}; do
    slurmd -D -f {folder}/slurm.conf -N $node > {folder}/slurmd.$node.log 2>&1 &
done
wait
"""


class Slurm:
    """The cluster, while its block lasts. The block gets the beginning of a command line that runs on the node.

    Args:
        folder: Where its files are.
        nodes: The names of its nodes, all of them on this machine.
        gpus: How many GPUs each node has: devices that SLURM gives to jobs, and that do nothing.
        settings: Further lines of its configuration.

    Raises:
        Missing: The user is not root, or the machine allows no namespaces.
    """

    def __init__(
        self, folder: Path, nodes: Sequence[str] = ("localhost",), gpus: int = 0, settings: Sequence[str] = ()
    ) -> None:
        if os.geteuid() or subprocess.run(["unshare", "-mpu", "--fork", "true"], check=False).returncode:
            raise Missing("SLURM's daemons need root and namespaces")
        self._nodes, self._gpus, self._settings = nodes, gpus, settings
        self._folder = Path(tempfile.mkdtemp(dir=folder, prefix="slurm-"))

    def __enter__(self) -> tuple[str, ...]:
        folder = self._folder
        controller, *ports = (address.rpartition(":")[2] for address in free_addresses(1 + len(self._nodes)))
        line = "NodeName={} NodeHostname=localhost NodeAddr=127.0.0.1 Port={} CPUs=4 RealMemory=512 State=UNKNOWN"
        lines = [line.format(*each) for each in zip(self._nodes, ports)]
        if self._gpus:
            lines = ["GresTypes=gpu", *(f"{line} Gres=gpu:{self._gpus}" for line in lines)]
            self._make_gpus()
        configuration = _CONFIGURATION.format(
            folder=folder, controller=controller, more="\n".join([*lines, *self._settings])
        )
        (folder / "slurm.conf").write_text(configuration)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        for name in ("state", *(f"spool/{node}" for node in self._nodes)):
            (folder / name).mkdir(parents=True)
        daemons = _DAEMONS.format(folder=folder, nodes=" ".join(self._nodes))
        command = ["unshare", "--mount-proc", "-mpu", "--fork", "--kill-child", "sh", "-c", daemons]
        self._daemons = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            wait(self._inits, 10.0, "namespaces")
            target = ("nsenter", "-m", "-p", "-u", "-t", self._inits()[0])
            inside = (*target, "env", f"SLURM_CONF={folder}/slurm.conf")
            idle = ["idle"] * len(self._nodes)
            wait(lambda: _output(*inside, "sinfo", "-h", "-N", "-o", "%T").split() == idle, 60.0, self._log)
        except BaseException:
            self.__exit__()
            raise
        return inside

    def __exit__(self, *exception: object) -> None:
        self._daemons.kill()
        self._daemons.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_gpus(self) -> None:
        """Make the devices: SLURM tells a job and the prolog of character devices only."""
        devices = self._folder / "dev"
        devices.mkdir()
        for number in range(self._gpus):
            os.mknod(devices / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
        files = f"File={devices}/nvidia[0-{self._gpus - 1}]"
        lines = [f"NodeName={node} Name=gpu Flags=nvidia_gpu_env {files}\n" for node in self._nodes]
        (self._folder / "gres.conf").write_text("".join(lines))

    def _inits(self) -> list[str]:
        return Path(f"/proc/{self._daemons.pid}/task/{self._daemons.pid}/children").read_text().split()

    def _log(self) -> str:
        logs = [self._folder / f"{name}.log" for name in ("munged", "slurmctld", *(f"slurmd.{n}" for n in self._nodes))]
        return "an idle node; " + " ".join(log.read_text()[-2500:] for log in logs if log.exists())


def _output(*line: str) -> str:
    return subprocess.run(line, check=False, capture_output=True, text=True).stdout
