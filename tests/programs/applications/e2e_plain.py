"""A program without telemetry code. It does some work for each line of stdin, and exits at its end."""

import sys

for line in sys.stdin:
    sum(number * number for number in range(int(line)))
