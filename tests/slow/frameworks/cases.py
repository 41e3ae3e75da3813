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
        "langfuse",
        f"{BY_CODE}, then `get_client()`",
        ("langfuse", "openai"),
        _by_code("langfuse"),
        environment={
            "LANGFUSE_PUBLIC_KEY": "pk-lf-none",
            "LANGFUSE_SECRET_KEY": "sk-lf-none",
            "LANGFUSE_BASE_URL": "{endpoint}",
        },
    ),
    Case(
        "pydantic-ai",
        "`logfire.configure()` first, then `HardwareInstrumentor().instrument()`",
        ("pydantic-ai-slim", "openai", "tiktoken", "logfire"),
        _by_code("pydantic_ai"),
    ),
    Case(
        "openai-agents",
        f"{BY_CODE}, then `OpenAIAgentsInstrumentor().instrument()`",
        ("openai-agents", "openinference-instrumentation-openai-agents"),
        _by_code("openai_agents"),
    ),
    Case(
        "litellm",
        f'{ZERO_CODE}, `litellm.callbacks = ["otel"]`',
        ("litellm", "opentelemetry-distro"),
        _zero_code("litellm"),
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "true"},  # else it is downloaded
    ),
    Case(
        "langgraph",
        f"{ZERO_CODE}, LangSmith's `LANGSMITH_OTEL_ENABLED`",
        ("langgraph", "langsmith[otel]", "langchain-openai", "opentelemetry-distro"),
        _zero_code("langgraph"),
        environment={
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_OTEL_ENABLED": "true",
            "LANGSMITH_OTEL_ONLY": "true",
            "LANGSMITH_API_KEY": "none",
            "LANGSMITH_ENDPOINT": "{endpoint}",
        },
    ),
    Case(
        "google-adk",
        ZERO_CODE,
        ("google-adk", "litellm", "opentelemetry-distro"),
        _zero_code("adk"),
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "true"},
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
    Case(
        "gradio",
        ZERO_CODE,
        ("gradio", "opentelemetry-distro"),
        _zero_code("gradio"),
        environment={"GRADIO_ANALYTICS_ENABLED": "False"},
    ),
    Case(
        "dagster",
        "`opentelemetry-instrument dagster job execute`, multiprocess executor",
        ("dagster", "opentelemetry-distro"),
        ("opentelemetry-instrument", "dagster", "job", "execute", "-m", f"{_PROGRAMS}.steps", "-j", "work"),
        environment={"DAGSTER_HOME": "{folder}", "DAGSTER_DISABLE_TELEMETRY": "yes"},
    ),
    Case("torch", ZERO_CODE, ("torch", "numpy", "opentelemetry-distro"), _zero_code("training")),
    Case(
        "after-the-fact",
        f"{ZERO_CODE}; as in vLLM, spans are made after the work of a child",
        ("opentelemetry-distro",),
        _zero_code("after_the_fact"),
        computes=False,
    ),
    Case(
        "aws",
        f"{ZERO_CODE}, with `OTEL_PYTHON_DISTRO=aws_distro` and `OTEL_PYTHON_CONFIGURATOR=aws_configurator`",
        ("aws-opentelemetry-distro",),
        _zero_code("distribution"),
        environment={"OTEL_PYTHON_DISTRO": "aws_distro", "OTEL_PYTHON_CONFIGURATOR": "aws_configurator"},
    ),
    Case("splunk", ZERO_CODE, ("splunk-opentelemetry",), _zero_code("distribution")),
    Case("elastic", ZERO_CODE, ("elastic-opentelemetry",), _zero_code("distribution")),
    Case(
        "azure",
        f"{BY_CODE}, then `configure_azure_monitor()`",
        ("azure-monitor-opentelemetry",),
        _by_code("distribution", "azure", "first"),
    ),
    Case(
        "azure-first",
        "`configure_azure_monitor()` first, then `HardwareInstrumentor().instrument()`",
        ("azure-monitor-opentelemetry",),
        _by_code("distribution", "azure", "last"),
    ),
    Case(
        "sentry",
        f"{BY_CODE}, then `sentry_sdk.init()` with `OTLPIntegration`",
        ("sentry-sdk", "sentry-sdk[opentelemetry-otlp]"),
        _by_code("distribution", "sentry", "first"),
    ),
    Case(
        "sentry-first",
        "`sentry_sdk.init()` with `OTLPIntegration` first, then `HardwareInstrumentor().instrument()`",
        ("sentry-sdk", "sentry-sdk[opentelemetry-otlp]"),
        _by_code("distribution", "sentry", "last"),
    ),
    Case(
        "lumigo",
        "with `AUTOWRAPT_BOOTSTRAP=lumigo_opentelemetry`, then `HardwareInstrumentor().instrument()`",
        ("lumigo-opentelemetry",),
        _by_code("distribution", "lumigo", "last"),
        environment={
            "AUTOWRAPT_BOOTSTRAP": "lumigo_opentelemetry",
            "LUMIGO_TRACER_TOKEN": "t_0123456789abcdef01234",
            "LUMIGO_ENDPOINT": "{endpoint}/v1/traces",
        },
    ),
    Case(
        "hyperdx",
        ZERO_CODE,
        ("hyperdx-opentelemetry",),
        _zero_code("distribution"),
        environment={"HYPERDX_API_KEY": "none"},
    ),
    Case(
        "loongsuite",
        "`loongsuite-instrument`",
        ("loongsuite-distro",),
        ("loongsuite-instrument", *_by_code("distribution")),
    ),
    Case("guance", ZERO_CODE, ("guance-opentelemetry-distro",), _zero_code("distribution")),
    Case(
        "newrelic",
        "`newrelic-admin run-program opentelemetry-instrument`",
        ("newrelic", "opentelemetry-distro"),
        ("newrelic-admin", "run-program", *_zero_code("distribution")),
        environment={"NEW_RELIC_DEVELOPER_MODE": "true", "NEW_RELIC_LICENSE_KEY": "0" * 40},
    ),
    Case(
        "ddtrace",
        "`ddtrace-run`, a TracerProvider of the SDK, then `HardwareInstrumentor().instrument()`",
        ("ddtrace",),
        ("ddtrace-run", *_by_code("distribution", "ddtrace", "last")),
        environment={"DD_TRACE_AGENT_URL": "{endpoint}", "OTEL_TRACES_EXPORTER": ""},
    ),
    Case("nemo-lens", f"{BY_CODE}, then `setup_telemetry()`", ("nemo-lens",), _by_code("nemo_lens"), python=(3, 13)),
)
