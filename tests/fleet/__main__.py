"""The slow runs of the fleet.

python -m tests.fleet losses        everything fails in turn, and nothing that was accepted is lost (8 minutes)
python -m tests.fleet kubernetes    manifests, chart and gateway with a real API server; the Operator's steps
python -m tests.fleet slurm         the prolog, the epilog and a job on two nodes
python -m tests.fleet vmui          the dashboards in VictoriaMetrics' own page, in a real browser (2 minutes)
python -m tests.fleet scale         what 1,000 hosts cost a Collector and the databases, known and new (15 minutes)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import get_args

from tests.fleet import kubernetes, losses, scale, slurm, vmui
from tests.fleet.hosts import real_export
from tests.tools import Missing


def _say(line: str) -> None:
    print(line, flush=True)


def _losses(folder: Path, arguments: argparse.Namespace) -> bool:
    export = real_export("8xH100")
    options = {"hosts": arguments.hosts, "every": arguments.every, "pause": 20.0, "outage": 60.0}
    outcomes = [
        losses.run(folder, kind, export, **options, say=_say)
        for kind in get_args(losses.Kind)
        if kind in arguments.store
    ]
    return not any(outcome.missing or outcome.dropped for outcome in outcomes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("losses")
    one.add_argument("--hosts", type=int, default=20)
    one.add_argument("--every", type=float, default=5.0)
    one.add_argument("--store", nargs="+", choices=get_args(losses.Kind), default=get_args(losses.Kind))
    commands.add_parser("kubernetes")
    commands.add_parser("slurm")
    looked = commands.add_parser("vmui")
    looked.add_argument("--pictures", type=Path, help="a folder for a picture of each dashboard")
    sized = commands.add_parser("scale")
    sized.add_argument("--hosts", type=int, default=1000)
    sized.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            if arguments.command == "losses":
                good = _losses(Path(folder), arguments)
            elif arguments.command == "vmui":
                good = vmui.run(Path(folder), arguments.pictures, _say)
            elif arguments.command == "scale":
                good = scale.run(Path(folder), arguments.hosts, arguments.rounds, _say)
            else:
                good = {"kubernetes": kubernetes.run, "slurm": slurm.run}[arguments.command](Path(folder), _say)
        except Missing as missing:
            _say(str(missing))
            return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
