"""The keys, and what the view means."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.cli.top.shapes import BAD, DIM, STRONG, WARNING, Line

# The keys of the last line.
KEYS = (
    ("q", "quit"),
    ("?", "help"),
    ("enter", "open"),
    ("tab", "panel"),
    ("/", "filter"),
    ("t", "tree"),
    ("k", "kill"),
    ("s", "sort"),
    ("r", "reverse"),
    ("z", "zoom"),
    ("p", "pause"),
    ("m", "missing"),
)

_PAGE = (("↑ ↓", "scroll"), ("p", "pause"), ("?", "help"), ("q", "quit"))

DEVICE_KEYS = (("esc", "back"), ("← →", "other device"), *_PAGE)  # on the page of a device
PROCESS_KEYS = (("esc", "back"), ("k", "kill"), *_PAGE)  # on that of a process


def _key(key: str, text: str) -> Line:
    return [(f"  {key:<15}", STRONG), (text, "")]


HELP_LINES: list[Line] = [
    [("Keys", STRONG)],
    _key("enter", "the page of a device or a process; also a double click"),
    _key("tab", "next panel; shift+tab the one before"),
    _key("↑ ↓ PgUp PgDn", "select a row or scroll; also Home, End and the wheel"),
    _key("/", "only processes with a text; esc shows all again"),
    _key("t", "processes as a tree"),
    _key("k", "send a signal to a process, after a question"),
    _key("s", "sort by the next column; or click on a title"),
    _key("r", "reverse the order"),
    _key("z", "enlarge the panel, and back"),
    _key("p  space", "pause"),
    _key("+  -", "read more or less often"),
    _key("m", "metrics that are missing, and why"),
    _key("q  ctrl+c", "quit"),
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
