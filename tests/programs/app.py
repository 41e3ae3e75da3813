"""A program that knows nothing of OpenTelemetry.

It burns CPU for so many seconds, says how much its process has used by then, and leaves with the status it was given.
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
