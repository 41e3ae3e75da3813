"""A program that knows nothing of telemetry: it does some work for each line it is sent, and ends when no more come."""

import sys

for line in sys.stdin:
    sum(number * number for number in range(int(line)))
