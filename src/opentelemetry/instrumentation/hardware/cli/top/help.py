"""The keys, and what the view means."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.cli.top.shapes import BAD, DIM, STRONG, WARNING, Line

# Each key, what the last line says about it, "" if nothing, and what the help says.
_KEYS = (
    ("q", "quit", "quit; also ctrl+c"),
    ("?", "help", "this help; also h and F1"),
    ("enter", "open", "the page of a device or a process; also a double click"),
    ("tab", "panel", "next panel; shift+tab the one before"),
    ("↑ ↓ PgUp PgDn", "", "select a row or scroll; also Home, End and the wheel"),
    ("/", "filter", "only processes with a text; esc shows all again"),
    ("t", "tree", "processes as a tree"),
    ("k", "kill", "send a signal to a process, after a question"),
    ("s", "sort", "sort by the next column; or click on a title"),
    ("r", "reverse", "reverse the order"),
    ("z", "zoom", "enlarge the panel, and back"),
    ("p", "pause", "pause; also space"),
    ("+  -", "", "read more or less often"),
    ("m", "missing", "metrics that are missing, and why"),
)

KEYS = tuple((key, word) for key, word, _ in _KEYS if word)  # of the last line

_PAGE = (("↑ ↓", "scroll"), ("p", "pause"), ("?", "help"), ("q", "quit"))

DEVICE_KEYS = (("esc", "back"), ("← →", "other device"), *_PAGE)  # on the page of a device
PROCESS_KEYS = (("esc", "back"), ("k", "kill"), *_PAGE)  # on that of a process


HELP_LINES: list[Line] = [
    [("Keys", STRONG)],
    *([(f"  {key:<15}", STRONG), (text, "")] for key, _, text in _KEYS),
    [],
    [("Colours", STRONG)],
    [("  yellow", WARNING), ("  memory from 90 %, CPU and disk from 80 %, file system from 85 %,", "")],
    [("        ", ""), ("  10 °C below the limit, power at its limit, any throttling,", "")],
    [("        ", ""), ("  a device below 5 % with 10 % or more of its memory in use", "")],
    [("  red   ", BAD), ("  memory from 97 %, CPU, disk and file system from 95 %,", "")],
    [("        ", ""), ("  temperature at the limit, thermal throttling, errors", "")],
    [],
    [("Values are means since the previous reading; memory is total - available.", DIM)],
    [("A dash is a value that the driver does not report.", DIM)],
]
