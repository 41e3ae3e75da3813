"""Which workers of recorded trainings the alert for stragglers finds: `python -m tests.slow.stragglers FILE...`.

A file has the columns ``worker``, ``time`` (the number of a mini-batch) and ``batch_time_norm``, as those in the folder
mini-batch-time/data of https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020 (CC BY 4.0). Each row
becomes a minute of steps of that length. A real Prometheus evaluates our rules over all of them.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.alerts.stored import OverBlocks, alerts, inlined, store
from tests.tools.stores import rows

_START = 1_700_000_000  # a time for the first row; any would do
_SERIES = "traces_span_metrics_duration_seconds"


def found(path: Path) -> dict[str, float]:
    """Return the share of the minutes in which the alert's expression is true, by worker.

    Args:
        path: A file.
    """
    times: dict[str, list[float]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            times[row["worker"]].append(float(row["batch_time_norm"]))
    (alert,) = (each for each in alerts() if each["alert"] == "TrainingStraggler")
    lines = []
    for worker, lengths in times.items():
        labels = f'{{span_name="training.step",training_job_id="{path.stem}",dl_rank="{worker}"}}'
        for minute, total in enumerate(accumulate(60.0 * length for length in lengths)):
            lines.append(f"{_SERIES}_sum{labels} {total} {_START + 60 * minute}")
            lines.append(f"{_SERIES}_count{labels} {60 * (minute + 1)} {_START + 60 * minute}")
    minutes = max(map(len, times.values()))
    end = _START + 60 * (minutes - 1)
    with TemporaryDirectory() as name:
        text = Path(name, "metrics.txt")
        text.write_text("\n".join([*lines, "# EOF\n"]))
        store(text, Path(name, "data"))
        with OverBlocks(Path(name)) as server:
            late = rows(server.url, inlined(alert["expr"]), start=_START, end=end, step=60)
    true = {labels["dl_rank"]: len(values) for labels, values in late}
    return {worker: true.get(worker, 0) / minutes for worker in times}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        late = [f"worker {worker} {share:.0%}" for worker, share in found(Path(argument)).items() if share]
        print(f"{argument}: {', '.join(late) or 'none'}")
