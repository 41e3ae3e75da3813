"""A run of W&B, without its servers. Prints the newest value of each of its system metrics, from its record.

It begins when a line comes on standard input, and ends with the next one.

Usage: python wandb_run.py FOLDER KEY SETTINGS
       KEY: the run ends no sooner than this metric has two samples, because some are rates
       SETTINGS: as JSON
"""

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

import wandb

# A record file is a header, and blocks with fragments of records: a checksum, a length, and which fragment it is.
BLOCK, HEADER = 32768, 7
WHOLE, LAST = 1, 4


def records(data: bytes) -> Iterator[Record]:
    at, record = HEADER, b""
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        length, fragment = struct.unpack_from("<HB", data, at + 4)
        at += HEADER + length
        record += data[at - length : at]
        if fragment in (WHOLE, LAST):
            yield Record.FromString(record)
            record = b""


sys.stdin.readline()
settings = wandb.Settings(
    mode="offline",
    silent=True,
    x_stats_sampling_interval=1,
    x_stats_buffer_size=100,
    **json.loads(sys.argv[3]),
)
run = wandb.init(project="test", dir=sys.argv[1], settings=settings)
while len(run._system_metrics.get(sys.argv[2], ())) < 2:
    time.sleep(0.1)
print("sampled", flush=True)
sys.stdin.readline()
run.finish()
wandb.teardown()  # else the record may not be written yet
(file,) = Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb")
print(
    json.dumps(
        {item.key: json.loads(item.value_json) for each in records(file.read_bytes()) for item in each.stats.item}
    )
)
