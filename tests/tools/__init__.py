"""The programs that tests run against: real ones, built or from Debian, and simulated drivers.

Each has a function that returns its path or raises `Missing` with the reason. That skips the test, or fails it where
the environment variable CI is set. `python -m tests.tools` builds everything.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
_CACHE = Path(os.path.expanduser("~/.cache"), os.environ.get("XDG_CACHE_HOME", ""))  # an absolute path wins

# The folder of built programs, by fingerprint of their sources. All checkouts of a user share it.
BUILT = _CACHE / "opentelemetry-instrumentation-hardware"

PROGRESS_SECONDS = 10.0  # seconds between two lines of progress

BUILD_SECONDS = 1800  # seconds after which a build counts as hung

# The Debian package that brings each program.
PACKAGES = {
    "openssl": "openssl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "rocm-smi": "rocm-smi",
    "sensors": "lm-sensors",
    "systemd-analyze": "systemd",
    "wine": "wine",
    "x86_64-w64-mingw32-gcc": "gcc-mingw-w64-x86-64",
}


class Missing(Exception):  # noqa: N818 - a state of the machine, not an error
    """A program is not available on this machine. The message has the reason and what to do."""


def nvitop() -> None:
    """Check that nvitop is installed. Only child processes import it."""
    if importlib.util.find_spec("nvitop") is None:
        raise Missing("nvitop is not installed: pip install nvitop")


def glances() -> None:
    """Check that glances is installed. Only child processes import it."""
    if importlib.util.find_spec("glances") is None:
        raise Missing("glances is not installed: pip install glances")


@dataclass(frozen=True)
class Recipe:
    """How to build a program from a folder next to this file, or from a registry.

    Attributes:
        folder: The folder of the sources, or a name if there is none.
        product: The name of the built file.
        command: The compiler's command line; the path of the product and `what` are added at its end.
        compiler: How to get the compiler.
        usually: How long a first build takes on two cores; only `python -m tests.tools` starts such a build. Empty
            for one that takes about a second, which a test may start.
        environment: Variables for the compiler.
        what: What to build, if it is not the folder itself: a package of another module.
        needs: The compiler, if it is not the first word of the command.
        reads: What goes into the product besides the folder.
    """

    folder: str
    product: str
    command: tuple[str, ...]
    compiler: str
    usually: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    what: tuple[str, ...] = ()
    needs: str = ""
    reads: tuple[Path, ...] = ()

    @property
    def home(self) -> Path | None:
        """The folder of the sources, if there is one."""
        path = SOURCES / self.folder
        return path if path.is_dir() else None


JAEGER = Recipe(
    folder="jaeger",
    product="jaeger",
    command=("go", "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=grpcnotrace", "-o"),
    compiler="https://go.dev/doc/install",
    usually="5 to 10 minutes",
    environment=(("CGO_ENABLED", "0"), ("GOWORK", "off")),
    what=("github.com/jaegertracing/jaeger/cmd/jaeger",),
)

MANIFEST = ROOT / "collector-config" / "builder.yaml"

OTELCOL = replace(
    JAEGER,
    folder="otelcol",
    product="otelcol",
    command=("sh", "build.sh", str(MANIFEST.relative_to(ROOT))),
    what=(),
    needs="go",
    reads=(MANIFEST,),
)

KUBERNETES = replace(
    JAEGER, folder="kubernetes", product="kube-apiserver", command=("sh", "build.sh"), what=(), needs="go"
)


def _installed(product: str, usually: str, *packages: str) -> Recipe:
    """Return the recipe of Go programs whose module needs no changes. The others are put beside the product."""
    script = 'bin="${1%/*}"; shift; GOBIN="$bin" exec go install -v -trimpath "-ldflags=-s -w" "$@"'
    return replace(
        JAEGER,
        folder=product,
        product=product,
        command=("sh", "-c", script, "sh"),
        what=packages,
        usually=usually,
        needs="go",
    )


VICTORIAMETRICS = _installed(
    "victoria-metrics",
    "1 minute",
    *(
        f"github.com/VictoriaMetrics/VictoriaMetrics/app/{name}@v1.150.0"
        for name in ("victoria-metrics", "vmalert", "vmalert-tool")
    ),
)

HELM = _installed("helm", "2 minutes", "helm.sh/helm/v3/cmd/helm@v3.22.0")

# Python programs with many dependencies, apart from the environment of the tests.
PYTHON = Recipe(
    folder="python",
    product="bin/python",
    command=(
        "sh",
        "-c",
        'home="${1%/bin/python}"; shift; "$0" -m venv "$home" && "$home/bin/pip" install "$@"',
        "python3",
    ),
    compiler="https://www.python.org",
    usually="1 minute",
    what=("ddapm-test-agent==1.69.1", "kubernetes-validate==1.37.0"),
    needs="python3",
)

WANDB = replace(PYTHON, folder="wandb", what=("wandb==0.31.0",))  # its dependencies conflict with the others

# Builds of Python for several systems. That for Linux is the one that uv installs, built with a C library of 2012.
_UNPACK = SOURCES / "unpack.sh"
_PYTHONS = "github.com/kluctl/go-embed-python@v0.0.0-3.11.11-20241219-1"

STANDALONE = replace(
    JAEGER,
    folder="standalone",
    product="python/bin/python3.11",
    command=(
        *("sh", "-c"),
        'home="${2%/bin/*}"; sh "$1" "$3" "linux-$(go env GOARCH)" "$home" && chmod +x "$2"',
        *("sh", str(_UNPACK)),
    ),
    usually="10 seconds",
    what=(_PYTHONS,),
    needs="go",
    reads=(_UNPACK,),
)

# Python for Windows with what the package depends on, Wine's files of a Windows, and a simulated NVML.
WINDOWS = replace(
    JAEGER,
    folder="windows",
    product="python/python.exe",
    command=("sh", "build.sh"),
    usually="1 minute",
    what=(_PYTHONS,),
    needs="wine",
    compiler="apt-get install wine wine64 gcc-mingw-w64-x86-64",
    reads=(SOURCES / "fakenvml" / "fakenvml.c", _UNPACK),
)

VIEWER = replace(
    JAEGER,
    folder="otel-desktop-viewer",
    product="otel-desktop-viewer",
    usually="2 minutes",
    environment=(("CGO_ENABLED", "1"), ("GOWORK", "off")),  # for DuckDB
    what=("github.com/CtrlSpice/otel-desktop-viewer",),
)


def otelcol() -> Path:
    """Return the OpenTelemetry Collector of `collector-config/builder.yaml`."""
    return _made(OTELCOL)


def victoria_metrics() -> Path:
    """Return VictoriaMetrics for a single node."""
    return _made(VICTORIAMETRICS)


def vmalert() -> Path:
    """Return VictoriaMetrics' evaluator of rules."""
    return victoria_metrics().with_name("vmalert")


def vmalert_tool() -> Path:
    """Return VictoriaMetrics' counterpart of promtool."""
    return victoria_metrics().with_name("vmalert-tool")


def helm() -> Path:
    """Return Helm."""
    return _made(HELM)


def kube_apiserver() -> Path:
    """Return the API server of Kubernetes, which only `python -m tests.fleet kubernetes` needs."""
    return _made(KUBERNETES)


def python_tools() -> Path:
    """Return a Python with the packages of `PYTHON`, to be started with `-m`."""
    return _made(PYTHON)


def wandb() -> Path:
    """Return a Python with W&B's package."""
    return _made(WANDB)


def standalone_python() -> Path:
    """Return the Python 3.11 of python-build-standalone, which uv installs."""
    return _made(STANDALONE)


def windows() -> Path:
    """Return the Python of a Windows, to be started with Wine. Its prefix and packages are beside its folder."""
    return _made(WINDOWS)


def jaeger() -> Path:
    """Return Jaeger v2, built with the modules of `jaeger/`."""
    return _made(JAEGER)


def viewer() -> Path:
    """Return otel-desktop-viewer, built with the modules of `otel-desktop-viewer/`."""
    return _made(VIEWER)


def fake_nvml(without: tuple[str, ...] = ()) -> Path:
    """Return the library of `fakenvml/`. For an old driver, it is built `without` some functions."""
    # A function is removed by a name that the binding does not know.
    absent = [f"-D{function}=absent_{function}" for function in sorted(without)]
    return _made(
        Recipe(
            folder="fakenvml",
            product="libnvidia-ml.so.1",
            command=(
                *("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"),
                *("-Wl,-soname,libnvidia-ml.so.1", *absent, "fakenvml.c", "-lm", "-o"),
            ),
            compiler="apt-get install gcc libc6-dev",
        )
    )


def program(name: str) -> Path:
    """Return a program of a Debian package in `PACKAGES`."""
    package = PACKAGES[name]
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed: apt-get install {package}")
    return Path(found)


def build(recipe: Recipe, progress: Callable[[str], None] = lambda line: None) -> Path:
    """Build a program, or return the earlier product of exactly the same sources.

    Args:
        recipe: How to build it.
        progress: Called with a line before the build, and every ten seconds during it or while another process builds.

    Raises:
        Missing: There is no compiler, it failed, or there is no place for the product.
    """
    folder = _folder(recipe)
    product = folder / recipe.product
    if product.exists():
        return product
    compiler = recipe.needs or recipe.command[0]
    if shutil.which(compiler) is None:
        raise Missing(f"{recipe.folder}: no {compiler} command to build it with: {recipe.compiler}")
    try:
        BUILT.mkdir(parents=True, exist_ok=True)
        with lock(BUILT / f"{recipe.folder}.lock", progress):
            if not product.exists():
                if recipe.usually:
                    progress(
                        f"building {recipe.folder} in {BUILT}: usually {recipe.usually} on two idle cores, once; "
                        "an interrupted build continues with the packages that are missing"
                    )
                with tempfile.TemporaryDirectory(dir=BUILT, prefix=f"{recipe.folder}-") as scratch:
                    fresh = Path(scratch) / "fresh"
                    fresh.mkdir()
                    _compile(recipe, fresh / recipe.product, Path(scratch) / "log", progress)
                    fresh.rename(folder)  # as a whole: other processes see no product, or a finished one
    except OSError as error:
        where = f"{BUILT} (in XDG_CACHE_HOME or ~/.cache)"
        raise Missing(f"{recipe.folder} cannot be built in {where}: {error.strerror}") from error
    return product


def _compile(recipe: Recipe, product: Path, log: Path, progress: Callable[[str], None]) -> None:
    began = time.monotonic()
    with log.open("wb") as output:
        compiler = subprocess.Popen(
            [*recipe.command, str(product), *recipe.what],
            cwd=recipe.home,
            env=os.environ | dict(recipe.environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        while compiler.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                compiler.wait(PROGRESS_SECONDS)
                break
            seconds, lines = time.monotonic() - began, log.read_bytes().count(b"\n")
            if seconds > BUILD_SECONDS:
                raise Missing(f"building {recipe.folder} took more than {BUILD_SECONDS} s")
            progress(f"building {recipe.folder}: {seconds:.0f} s, {lines} packages")
    finally:
        compiler.kill()
        compiler.wait()
    if compiler.returncode:
        raise Missing(f"building {recipe.folder} failed:\n{log.read_text(errors='replace')[-2000:].strip()}")


def _made(recipe: Recipe) -> Path:
    outcome = _outcome(recipe)
    if isinstance(outcome, Missing):
        raise outcome
    return outcome


@functools.cache
def _outcome(recipe: Recipe) -> Path | Missing:
    # A failure is returned, not raised, so that it is remembered and no other test repeats the build.
    product = _product(recipe)
    if product.exists():
        return product
    if recipe.usually:
        how = f"python -m tests.tools builds it (usually {recipe.usually} on two cores, once)"
        return Missing(f"{recipe.folder} is not built: {how}")
    try:
        return build(recipe)
    except Missing as missing:
        return missing


def _product(recipe: Recipe) -> Path:
    return _folder(recipe) / recipe.product


def _folder(recipe: Recipe) -> Path:
    digest = hashlib.sha256("\0".join([*recipe.command, *recipe.what]).encode())
    for part in sorted([*(recipe.home.iterdir() if recipe.home else ()), *recipe.reads]):
        digest.update(part.read_bytes())
    return BUILT / f"{recipe.folder}-{digest.hexdigest()[:16]}"


@contextmanager
def lock(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Wait for other processes that hold the same lock, which is freed even when this one is killed."""
    import fcntl  # not on Windows, where nothing is built

    began = said = time.monotonic()
    with path.open("w") as file:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            now = time.monotonic()
            if now - said >= PROGRESS_SECONDS:
                said = now
                progress(f"another process builds {path.stem}: waiting for it, {now - began:.0f} s")
            time.sleep(0.05)
        yield
