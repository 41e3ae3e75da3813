"""A substitute for a Mac's tool: ``apple_tool.py TOOL HOW ARGUMENTS``. HOW is "works" or a kind of failure.

TOOL is macmon (which prints a line every tenth of a second), ioreg or apple_gpu_stats.
"""

from __future__ import annotations

import json
import os
import plistlib
import sys
import time

tool, how = sys.argv[1:3]

DOCUMENTS = {
    "macmon": {
        "cpu_power": 4.5,
        "gpu_power": 2.5,
        "sys_power": 11.0,
        "gpu_freq_mhz": 900,
        "gpu_scaled_ratio": 0.25,
        "gpu_active_ratio": 0.5,
        "temp": {"cpu_temp_avg": 50.5, "gpu_temp_avg": 40.5},
        "soc": {"chip_name": "Apple M4"},
    },
    "apple_gpu_stats": {"vendor": "Apple ", "utilization": 30.0, "mem_used": 12.5, "temperature": 42.5, "power": 7.5},
    "ioreg": {
        "IOObjectClass": "AGXAcceleratorG13X",
        "model": "Apple M1 Pro",
        "PerformanceStatistics": {
            "Device Utilization %": 20,
            "In use system memory": 300_000_000,
            "Alloc system memory": 1_200_000_000,
            "recoveryCount": 0,
        },
    },
}


def write(text: bytes) -> None:
    while text:
        text = text[os.write(1, text) :]


whole = plistlib.dumps([DOCUMENTS["ioreg"]]) if tool == "ioreg" else json.dumps(DOCUMENTS[tool]).encode() + b"\n"
if how in ("hangs", "silent"):
    time.sleep(3600)
elif how == "dies":
    if tool == "macmon":
        write(whole)
    write(whole[: len(whole) // 2])
    os.abort()
elif how == "refuses":
    print("no such sensor", file=sys.stderr)
    sys.exit(1)
elif how == "garbage":
    write(b"\xff\xfe\0 hello\n" + (b"" if tool == "ioreg" else b"warning: something\n"))
write(whole)
while tool == "macmon":
    time.sleep(0.1)
    write(whole)
