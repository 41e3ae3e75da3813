"""A SLURM cluster of one node on the loopback interface, from Debian's packages.

It runs in namespaces of its own, so no daemon outlives it and no file of the machine changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.tools import Missing
from tests.tools.daemon import free_addresses, wait

_CONFIGURATION: Final = """\
ClusterName=trial
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
NodeName=localhost NodeAddr=127.0.0.1 CPUs=4 RealMemory=512 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""

_DAEMONS: Final = """\
hostname localhost
munged --foreground --force --socket={folder}/munge.socket --key-file={folder}/munge.key --seed-file={folder}/seed \\
    --pid-file={folder}/munged.pid --origin=127.0.0.1 > {folder}/munged.log 2>&1 &
until [ -S {folder}/munge.socket ]; do sleep 0.05; done
slurmctld -D -i -c -f {folder}/slurm.conf > {folder}/slurmctld.log 2>&1 &
slurmd -D -f {folder}/slurm.conf -N localhost > {folder}/slurmd.log 2>&1 &
wait
"""


class Slurm:
    """The cluster, while its block lasts. The block gets the beginning of a command line that runs on the node.

    Args:
        folder: Where its files are.

    Raises:
        Missing: The user is not root, or the machine allows no namespaces.
    """

    def __init__(self, folder: Path) -> None:
        if os.geteuid() or subprocess.run(["unshare", "-mpu", "--fork", "true"], check=False).returncode:
            raise Missing("SLURM's daemons need root and namespaces")
        self._folder = Path(tempfile.mkdtemp(dir=folder, prefix="slurm-"))

    def __enter__(self) -> tuple[str, ...]:
        folder = self._folder
        controller, node = (address.rpartition(":")[2] for address in free_addresses(2))
        (folder / "slurm.conf").write_text(_CONFIGURATION.format(folder=folder, controller=controller, node=node))
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        line = ["unshare", "--mount-proc", "-mpu", "--fork", "--kill-child", "sh", "-c", _DAEMONS.format(folder=folder)]
        self._daemons = subprocess.Popen(line, stdin=subprocess.DEVNULL)
        try:
            wait(self._inits, 10.0, "namespaces")
            target = ("nsenter", "-m", "-p", "-u", "-t", self._inits()[0])
            inside = (*target, "env", f"SLURM_CONF={folder}/slurm.conf")
            wait(lambda: "idle" in _output(*inside, "sinfo", "-h", "-o", "%T"), 60.0, self._log)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return inside

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._daemons.kill()
        self._daemons.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _inits(self) -> list[str]:
        return Path(f"/proc/{self._daemons.pid}/task/{self._daemons.pid}/children").read_text().split()

    def _log(self) -> str:
        logs = [self._folder / f"{name}.log" for name in ("munged", "slurmctld", "slurmd")]
        return "an idle node; " + " ".join(log.read_text()[-2500:] for log in logs if log.exists())


def _output(*line: str) -> str:
    return subprocess.run(line, check=False, capture_output=True, text=True).stdout
