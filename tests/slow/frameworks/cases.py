"""The cases: what each one installs, and how its program is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.slow.frameworks.driving import Driven, requests, tasks

_PROGRAMS: Final = "tests.slow.frameworks.programs"

ZERO_CODE: Final = "`opentelemetry-instrument`"
BY_CODE: Final = "`HardwareInstrumentor().instrument()` first"


@dataclass(frozen=True)
class Case:
    """A program of a framework.

    The command and the variables may contain ``{folder}``, ``{port}`` and ``{endpoint}``.

    Attributes:
        name: Its name in the table.
        start: How this package and the framework are started, for the table.
        packages: What is installed. The table has the version of the first one.
        command: A program of the virtual environment and its arguments.
        environment: Additional variables.
        python: The oldest Python.
        drive: What to do while the program runs. It then gets SIGTERM; without, it ends by itself.
        computes: Whether the program itself uses the GPU, not only its descendants.
    """

    name: str
    start: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    python: tuple[int, int] = (3, 10)
    drive: Callable[[Driven], None] | None = None
    computes: bool = True


def _by_code(program: str, *arguments: str) -> tuple[str, ...]:
    return ("python", "-m", f"{_PROGRAMS}.{program}", *arguments)


def _zero_code(program: str, *arguments: str) -> tuple[str, ...]:
    return ("opentelemetry-instrument", *_by_code(program, *arguments))


_PHOENIX: Final = ("arize-phoenix-otel", "openinference-instrumentation-openai", "openai")
_LOGFIRE: Final = ("logfire", "openai", "opentelemetry-distro")

CASES: Final = (
    Case("phoenix-global", f"{BY_CODE}, then `register()`", _PHOENIX, _by_code("phoenix", "global")),
    Case(
        "phoenix-own",
        f"{BY_CODE}, then `register(set_global_tracer_provider=False)`",
        _PHOENIX,
        _by_code("phoenix", "own"),
    ),
    Case("logfire-zero-code", ZERO_CODE, _LOGFIRE, _zero_code("logfire", "zero-code")),
    Case("logfire", f"{BY_CODE}, then `logfire.configure()`", _LOGFIRE, _by_code("logfire")),
    Case(
        "traceloop-langchain",
        f"{BY_CODE}, then `Traceloop.init()`",
        ("traceloop-sdk", "langchain", "langchain-openai"),
        _by_code("traceloop"),
        environment={"TRACELOOP_BASE_URL": "{endpoint}", "TRACELOOP_TELEMETRY": "false"},
    ),
    Case("openlit", f"{BY_CODE}, then `openlit.init()`", ("openlit", "openai"), _by_code("openlit")),
    Case(
        "mlflow",
        f"{BY_CODE}, then `mlflow.trace`",
        ("mlflow", "openai"),
        _by_code("mlflow"),
        environment={
            "MLFLOW_TRACKING_URI": "sqlite:///{folder}/mlflow.db",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "{endpoint}/v1/traces",
        },
    ),
    Case(
        "genai-openai",
        ZERO_CODE,
        ("opentelemetry-instrumentation-genai-openai", "openai", "httpx", "opentelemetry-distro"),
        _zero_code("openai_chats"),
    ),
    Case(
        "openai-v2",
        ZERO_CODE,
        (
            *("opentelemetry-instrumentation-openai-v2", "opentelemetry-distro"),
            *("openai<3", "opentelemetry-util-genai==0.4b0"),  # what its newest version, 2.4b0, works with
        ),
        _zero_code("openai_chats"),
    ),
    Case(
        "fastapi-httpx",
        "`opentelemetry-instrument uvicorn`",
        (
            *("fastapi", "uvicorn", "httpx", "opentelemetry-distro"),
            *("opentelemetry-instrumentation-fastapi", "opentelemetry-instrumentation-httpx"),
        ),
        ("opentelemetry-instrument", "uvicorn", "--port", "{port}", f"{_PROGRAMS}.service:app"),
        environment={"FRAMEWORK_PORT": "{port}"},
        drive=requests("/chat", clients=2, each=3),
    ),
    Case(
        "celery-prefork",
        "`opentelemetry-instrument celery worker`, prefork",
        ("celery", "opentelemetry-instrumentation-celery", "opentelemetry-distro"),
        ("opentelemetry-instrument", "celery", "-A", f"{_PROGRAMS}.tasks", "worker", "-c", "2", "--pool=prefork"),
        drive=tasks(6),
    ),
    Case(
        "gunicorn",
        "`opentelemetry-instrument gunicorn`, 2 sync workers",
        ("gunicorn", "opentelemetry-distro"),
        ("opentelemetry-instrument", "gunicorn", "-w", "2", "-b", "127.0.0.1:{port}", f"{_PROGRAMS}.wsgi:application"),
        drive=requests("/", clients=2, each=4),
    ),
    Case("torch", ZERO_CODE, ("torch", "numpy", "opentelemetry-distro"), _zero_code("training")),
    Case(
        "after-the-fact",
        f"{ZERO_CODE}; as in vLLM, spans are made after the work of a child",
        ("opentelemetry-distro",),
        _zero_code("after_the_fact"),
        computes=False,
    ),
    Case("nemo-lens", f"{BY_CODE}, then `setup_telemetry()`", ("nemo-lens",), _by_code("nemo_lens"), python=(3, 13)),
)
