"""The layers of the package: a module imports only from the lines above its own.

Each rule is one test, which lists every violation.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from tests.support.children import run

import opentelemetry.instrumentation.hardware as package

ROOT = Path(package.__file__).parent
NAME = package.__name__

# Lowest first: a module imports from its own package and from the lines above its own.
#
# A word is a module, or a package with all its modules; in parentheses, the package's own ``__init__`` alone. One
# vendor's folder is a package below ``sources``.
LAYERS = (
    "version package",
    "settings.log",
    "model",
    "catalog",
    "simulator",
    "settings.redaction",
    "settings",
    "environment_variables",
    "system",
    "drivers",
    "(sources)",
    "accelerators",
    "sources",
    "bottlenecks",
    "spans.rows",
    "spans.demand spans.ledger",
    "spans.timeline",
    "spans.shares",
    "spans.operations",
    "pipeline",
    "sdk",
    "agent instruments resource_detector snapshots spans wandb",
    "telemetry",
    "instrumentor",
    "(package)",
    "cli",
    "__main__",
)

TALKS_TO_THE_SDK = ("instruments", "sdk", "spans", "telemetry", "instrumentor", "resource_detector", "cli")
DRIVERS = ("psutil", "pynvml", "prometheus_client", "yaml", "grpc", "amdsmi", "libtpu", "torch")
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*|__all__")
MUTABLE = ("list", "dict", "set", "bytearray", "defaultdict", "deque", "OrderedDict", "Counter", "array")
CHANGES = ("append", "add", "update", "pop", "popitem", "clear", "setdefault", "extend", "insert", "remove", "discard")

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").removesuffix("."): path
    for path in sorted(ROOT.rglob("*.py"))
}


@cache
def trees() -> dict[str, ast.Module]:
    """Parse all modules. This takes seconds, which are not those of the collection in each worker."""
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def layer(module: str) -> tuple[int, str]:
    """Return the number of a module's line, and the word of the line that matches it."""
    name = "(sources)" if module == "sources" else module or "(package)"
    while name:
        for number, line in enumerate(LAYERS):
            if name in line.split():
                return number, name
        name = name.rpartition(".")[0]
    raise AssertionError(f"{module}.py is on no line of LAYERS: decide what it may import")


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return the imports of a module, also those in functions: full dotted names with the line number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: imports are absolute"
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                inside = below == NAME or below.removeprefix(f"{NAME}.") in MODULES
                yield (below if inside else str(node.module)), node.lineno


def is_family(module: str, other: str) -> bool:
    """Whether two modules of one package may import each other: any two, but of sources only those of one vendor."""
    if not module.startswith("sources"):
        return True
    return other == "sources" or module.split(".")[1:2] == other.split(".")[1:2]


def breaches(module: str, tree: ast.AST) -> list[str]:
    """Return the imports of a module that are not from a lower layer."""
    number, own = layer(module)
    found = []
    for name, line in imports(tree):
        if name == NAME or name.startswith(f"{NAME}."):
            other = name.removeprefix(NAME).removeprefix(".")
            if other == module:
                continue
            below, package = layer(other)
            same = package == own and is_family(module, other)
            if below >= number and not same:
                found.append(f"{module}:{line} imports {other or NAME}, which is not below it")
        elif name.partition(".")[0] == "opentelemetry" and module.partition(".")[0] not in TALKS_TO_THE_SDK:
            found.append(f"{module}:{line} imports {name}; only {', '.join(TALKS_TO_THE_SDK)} do")
    return found


def at_module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Return the statements that run when a module is imported, except those in classes."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        statement = waiting.pop()
        yield statement
        for part in ("body", "orelse", "finalbody"):
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                waiting += getattr(statement, part, [])
        for handler in getattr(statement, "handlers", []):
            waiting += handler.body


def eager(tree: ast.Module) -> list[str]:
    """Return the drivers that importing a module loads."""
    return [
        name
        for statement in at_module_level(tree)
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for name, _ in imports(ast.Module([statement], []))
        if name.partition(".")[0] in DRIVERS
    ]


def needed(tree: ast.Module) -> Iterator[str]:
    """Return the modules of the package that a module imports when it runs, also in functions."""
    for node in [*ast.walk(tree)]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    for name, _ in imports(tree):
        module = name.removeprefix(NAME).removeprefix(".")
        if name.startswith(NAME) and module in MODULES:
            yield module


def is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in MUTABLE or name.startswith("Weak")
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))


def state(tree: ast.Module) -> list[str]:
    """Return the mutable variables of a module, and the statements that change its constants."""
    found = []
    for statement in at_module_level(tree):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and is_mutable(statement.value):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            found += [f"line {statement.lineno}: {name}" for name in names if not CONSTANT.fullmatch(name)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            found.append(f"line {node.lineno}: global {', '.join(node.names)}")
        changed: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
            changed = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            changed = node.func.value
        if isinstance(changed, ast.Name) and CONSTANT.fullmatch(changed.id):
            found.append(f"line {node.lineno}: {changed.id} is changed")  # type: ignore[attr-defined]
    return found


def test_modules_are_found() -> None:
    assert {"model", "catalog", "pipeline.runner", "sources", "sources.host", "instrumentor", ""} <= set(MODULES)


def test_modules_import_only_lower_layers() -> None:
    assert [breach for module, tree in trees().items() for breach in breaches(module, tree)] == []


def test_modules_import_drivers_lazily() -> None:
    assert {module: found for module, tree in trees().items() if (found := eager(tree))} == {}


def test_modules_have_no_mutable_state() -> None:
    assert {module: found for module, tree in trees().items() if (found := state(tree))} == {}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("model", f"from {NAME}.catalog import CATALOG"),
        ("model", f"from {NAME} import catalog"),
        ("pipeline.aggregate", f"def f():\n    import {NAME}.instrumentor"),
        ("sources.host", f"from {NAME}.sources.process import Process"),
        ("sources.host", f"from {NAME}.sources import process"),
        ("sources.host", f"from {NAME}.pipeline.runner import SourceRunner"),
        ("system.linux", f"from {NAME}.drivers.python_module import PythonModule"),
        ("pipeline.session", f"import {NAME}"),
        ("pipeline.runner", "from opentelemetry.context import attach"),
        ("pipeline.session", "import opentelemetry.metrics"),
        ("instrumentor", f"from {NAME}.cli import main"),
    ],
)
def test_forbidden_import_is_detected(module: str, line: str) -> None:
    assert len(breaches(module, ast.parse(line))) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("sources.host", f"from {NAME}.sources import Source"),
        ("pipeline.runner", f"from {NAME}.pipeline.aggregate import Aggregator"),
        ("system.linux", f"from {NAME}.system.cgroup import Cgroup"),
        ("instrumentor", "from opentelemetry.metrics import Meter"),
        ("cli.run", "from opentelemetry.sdk.metrics import MeterProvider"),
        ("", f"from {NAME}.instrumentor import HardwareInstrumentor"),
    ],
)
def test_allowed_import_is_accepted(module: str, line: str) -> None:
    assert breaches(module, ast.parse(line)) == []


@pytest.mark.parametrize("line", ["import psutil", "try:\n    import pynvml as n\nexcept ImportError:\n    n = None"])
def test_eager_driver_import_is_detected(line: str) -> None:
    assert len(eager(ast.parse(line))) == 1
    assert eager(ast.parse(f"def f():\n    {line.splitlines()[0].replace('try:', 'import grpc')}")) == []


@pytest.mark.parametrize(
    "line",
    [
        "known = {}",
        "known: list[str] = []",
        "import collections\nknown = collections.defaultdict(list)",
        "known = [word for word in 'abc']",
        "A = {}\ndef f():\n    A['x'] = 1",
        "A = []\ndef f():\n    A.append(1)",
        "a = 0\ndef f():\n    global a\n    a = 1",
    ],
)
def test_mutable_state_is_detected(line: str) -> None:
    assert len(state(ast.parse(line))) == 1


def test_constants_are_accepted() -> None:
    assert state(ast.parse("__all__ = ['a']\n_KNOWN = {1: 2}\nKNOWN = [1]\nclass A:\n    x = []\nname = 'a'\n")) == []


def test_import_of_package_loads_no_driver() -> None:
    # The SDK, which HardwareSpanProcessor needs, imports psutil itself.
    program = f"""
import sys
from {NAME} import Config, HardwareInstrumentor
print([name for name in {DRIVERS!r} if name in sys.modules])
"""
    child = run([sys.executable, "-c", program])
    assert (child.returncode, child.stdout.strip()) == (0, "[]"), child.stderr


def test_public_names_are_imported_lazily_and_listed_by_dir() -> None:
    program = f"""
import sys, {NAME} as package
print(sorted(set(package.__all__) - set(dir(package))), "{NAME}.instrumentor" in sys.modules)
print(package.HardwareInstrumentor.__name__, package.Config.__name__, package.__version__ > "", hasattr(package, "no"))
"""
    child = run([sys.executable, "-c", program])
    assert child.stdout == "[] False\nHardwareInstrumentor Config True False\n", child.stderr


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {module: {*needed(ast.parse(path.read_text()))} - {module} for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


# A private name of another object.
PRIVATE = re.compile(r"\b(?!self\b|cls\b|c\b|os\b|sys\b)\w+\)?\._[a-z]\w+|getattr\(.+, \"_[a-z]\w+\"")


def touches(source: str) -> list[str]:
    """The lines of a module that imports OpenTelemetry and uses a private name of another object, but not of ours."""
    modules = [node.module or "" for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    if not any(module.startswith("opentelemetry.") and not module.startswith(NAME) for module in modules):
        return []
    return [line for line in source.splitlines() if PRIVATE.search(line) and "._replace(" not in line]


def test_only_sdk_uses_private_names_of_opentelemetry() -> None:
    found = {module: touches(path.read_text()) for module, path in MODULES.items() if module != "sdk"}
    assert {module: lines for module, lines in found.items() if lines} == {}


@pytest.mark.parametrize("line", ["x = provider._meters", 'x = getattr(provider, "_meters", None)', "f(x)._client = 1"])
def test_private_name_is_detected(line: str) -> None:
    assert touches(f"from opentelemetry.sdk.trace import Tracer\n{line}") == [line]
