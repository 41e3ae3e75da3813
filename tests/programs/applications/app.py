"""A program without OpenTelemetry code.

Usage: app.py SECONDS STATUS; it uses that much CPU time, prints the CPU time of its process as JSON, and exits with the
status.
"""

import json
import sys
import time

seconds, status = float(sys.argv[1]), int(sys.argv[2])
until = time.process_time() + seconds
while time.process_time() < until:
    sum(range(1000))
print(json.dumps({"cpu": time.process_time()}), flush=True)
sys.exit(status)
