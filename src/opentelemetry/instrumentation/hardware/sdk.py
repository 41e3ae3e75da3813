"""What this package uses of the SDK and of its exporters beyond their documented interface.

One function each, with the reason. Checked with versions 1.39 to 1.45 of opentelemetry-sdk. In a forked child:

- a thread of the parent may hold any lock during the fork, and that copy is never released. Without us, a program that
  has no metrics of its own collects and exports nothing, so that none is held;
- locks of the SDK: https://github.com/open-telemetry/opentelemetry-python/issues/4345
- locks and connections of urllib3: https://github.com/urllib3/urllib3/issues/850
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider

from opentelemetry import trace
from opentelemetry.instrumentation.hardware.catalog import SCHEMA_URL, SCOPE
from opentelemetry.instrumentation.hardware.model import Event
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Span

_LOG = logger(__name__)

_LOCKS: Mapping[type, Callable[[], object]] = {type(make()): make for make in (threading.Lock, threading.RLock)}
_LOCK_NAMES = (
    "_lock",
    "_export_lock",
    "_instrument_registration_lock",
    "_instrument_id_instrument_lock",  # the same in SDK 1.39
)

# Series of an instrument that the SDK may keep, if those of earlier times can be forgotten.
_MOST_SERIES = 1000

# -- spans


def tracer_provider() -> Any:
    """Return the global TracerProvider; None if none is set.

    New Relic's agent wraps ``get_tracer_provider()``: the first call registers the program. In a server that forks its
    workers later, these would report nothing.
    """
    return getattr(trace, "_TRACER_PROVIDER", None)


def exports_spans(provider: Any) -> bool:
    """Whether spans of a TracerProvider may be seen: it has a processor, or is not the SDK's.

    Nothing public says which processors a provider has.
    """
    if provider is None or isinstance(provider, NoOpTracerProvider) or getattr(provider, "_disabled", False):
        return False
    return _has_others(getattr(provider, "_active_span_processor", None))


def exports_any_spans() -> bool:
    """Whether spans of any TracerProvider may be seen, also of one that was made before and is not global.

    Nothing lists them but the garbage collector, which takes 0.1 s in a program with a million objects.
    """
    from opentelemetry.sdk.trace import TracerProvider

    if exports_spans(tracer_provider()):
        return True
    made = [each for each in gc.get_objects() if issubclass(type(each), TracerProvider)]
    return any(exports_spans(provider) for provider in made)


def exports(span: Span) -> bool:
    """Whether a span may be seen when it ends; see :func:`exports_spans`."""
    return _has_others(getattr(span, "_span_processor", None))


def _has_others(processor: Any) -> bool:
    """Whether there are processors but ours. It may be so if that is not known."""
    each = getattr(processor, "_span_processors", None)
    return each is None or any(not type(other).__module__.startswith(f"{__package__}.") for other in each)


def free_attributes(span: Span) -> int | None:
    """Return how many attributes a span has room for; None if there is no limit.

    ``Span.set_attribute`` would drop the oldest attributes of the program for ours.
    """
    limit: int | None = getattr(getattr(span, "_limits", None), "max_span_attributes", None)
    attributes = getattr(span, "_attributes", None)  # span.attributes takes twice as long
    return None if limit is None or attributes is None else max(0, limit - len(attributes))


# -- metrics


def is_proxy(provider: MeterProvider | None) -> bool:
    """Whether a provider is the proxy that stands for the global one until that is set."""
    return type(provider).__name__ == "_ProxyMeterProvider"


def is_shut_down(provider: MeterProvider) -> bool:
    """Whether a MeterProvider was shut down."""
    return bool(getattr(provider, "_shutdown", False))


def has_exit_hook(provider: MeterProvider) -> bool:
    """Whether a MeterProvider shuts itself down at the exit of the program."""
    return getattr(provider, "_atexit_handler", None) is not None


def has_reader(provider: MeterProvider) -> bool:
    """Whether a MeterProvider has a reader. It may have one if it is not the SDK's."""
    if isinstance(provider, NoOpMeterProvider) or getattr(provider, "_disabled", False):
        return False
    storages = _storages(provider)
    return storages is None or bool(storages)


def readers(provider: MeterProvider | None) -> Collection[Any]:
    """Return the readers of a MeterProvider."""
    return _storages(provider) or ()


def _storages(provider: MeterProvider | None) -> Mapping[Any, Any] | None:
    """Return what the SDK keeps for each reader; None if it is not the SDK's provider."""
    return getattr(getattr(provider, "_measurement_consumer", None), "_reader_storages", None)


def exporter_of(reader: object) -> Any:
    """Return the exporter of a reader; None of one that is scraped."""
    return getattr(reader, "_exporter", None)


def thread_of(reader: object) -> threading.Thread | None:
    """Return the thread in which a reader exports."""
    return getattr(reader, "_daemon_thread", None)


def scopes(provider: MeterProvider) -> set[str]:
    """Return the names of the instrumentation scopes that have recorded a value."""
    return {
        instrument.instrumentation_scope.name
        for storage in (_storages(provider) or {}).values()
        for instrument in [*storage._instrument_view_instrument_matches]
    }


def resource_of(provider: object) -> Mapping[str, object]:
    """Return the resource attributes of a MeterProvider or a TracerProvider; empty if it is not the SDK's."""
    owner = getattr(provider, "_sdk_config", provider)  # a MeterProvider has no public one
    return dict(getattr(getattr(owner, "resource", None), "attributes", None) or {})


def forget_series(provider: MeterProvider, names: Collection[str]) -> None:
    """Let the SDK forget the series of some of our gauges and up-down counters, if it has many. For callbacks.

    It keeps each series for life, and merges all above 2000 of an instrument into one; those of pods and jobs end. The
    SDK holds a lock over the callbacks of a collection and over the collection itself, so nothing is lost.
    """
    for storage in (_storages(provider) or {}).values():
        for instrument, matches in [*storage._instrument_view_instrument_matches.items()]:
            for match in matches if instrument.name in names else ():
                if len(getattr(match, "_attributes_aggregation", ())) > _MOST_SERIES:
                    match._attributes_aggregation = {}


def set_name(instrument: Any, name: str) -> None:
    """Let an instrument be exported under a name that the SDK does not accept: it refuses ":" and lowers capitals.

    The exported name is the instrument's attribute at its first measurement. No public way keeps the name that a
    scraped page has.
    """
    if hasattr(instrument, "name"):
        instrument.name = name


def system_metrics() -> Collection[str]:
    """Return the names of what SystemMetricsInstrumentor reports. Its instance would be made by asking for it."""
    module = sys.modules.get("opentelemetry.instrumentation.system_metrics")
    instance = getattr(getattr(module, "SystemMetricsInstrumentor", None), "_instance", None)
    return getattr(instance, "_config", ()) if getattr(instance, "is_instrumented_by_opentelemetry", False) else ()


def configurator() -> type[Any]:
    """Return the class that configures the SDK from the environment, as ``opentelemetry-instrument`` does."""
    from opentelemetry.sdk._configuration import _OTelSDKConfigurator

    return type("Configurator", (_OTelSDKConfigurator,), {})  # the SDK's is abstract


# -- events


def event_emitter() -> Callable[[Event], None]:
    """Return a function that emits an event through the global LoggerProvider. It never raises.

    ``opentelemetry._logs`` is the interface for logs, which is not stable yet. It is imported here, not at the first
    event: our threads must not import.
    """
    from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider

    def emit(event: Event) -> None:
        severity = SeverityNumber.ERROR if event.is_error else SeverityNumber.INFO
        try:
            record = LogRecord(
                timestamp=event.time,
                severity_number=severity,
                severity_text=severity.name,
                body=event.body,
                attributes=event.attributes,
                event_name=event.name,
            )
            get_logger_provider().get_logger(SCOPE, __version__, schema_url=SCHEMA_URL).emit(record)
        except Exception:  # of a processor of the program
            _LOG.debug("The event %s could not be emitted", event.name, exc_info=True)

    return emit


# -- forked children


def import_early() -> None:
    """Import before any fork what requests imports in its first request. A fork during an import keeps its lock."""
    import netrc  # noqa: F401


def restart_readers(provider: Any) -> None:
    """Run the fork hooks of the SDK in the child of a fork that ran none, so that its readers have threads."""
    if hasattr(provider, "_handle_fork"):
        provider._handle_fork()
    for reader in readers(provider):
        if thread_of(reader) is not None and hasattr(reader, "_at_fork_reinit"):
            reader._at_fork_reinit()


def behind(provider: MeterProvider | None) -> MeterProvider | None:
    """Return the provider that collects: the SDK's behind that of logfire, which hands all calls on to it."""
    inner = getattr(provider, "provider", None)
    return provider if _storages(inner) is None else inner


def replace_locks(provider: MeterProvider | None) -> None:
    """Replace the locks that the SDK takes for a registration, a collection or an export, in a forked child."""
    storages = _storages(provider) or {}
    owners = [getattr(provider, "_measurement_consumer", None), *storages, *storages.values()]
    owners += getattr(provider, "_meters", {}).values()
    for storage in storages.values():
        for matches in getattr(storage, "_instrument_view_instrument_matches", {}).values():
            for match in matches:
                owners += [match, *getattr(match, "_attributes_aggregation", {}).values()]
    for owner in owners:
        for name in _LOCK_NAMES:
            make = _LOCKS.get(type(getattr(owner, name, None)))
            if make is not None:
                setattr(owner, name, make())


def abandon_connections(exporter: object) -> None:
    """Close the copies of the connections of an OTLP/HTTP exporter. The next export opens others.

    Otherwise, child and parent would send on the same ones. The locks of urllib3 would be waited for also by a child
    that exports nothing: at its exit, urllib3 closes all connections.
    """
    transport = _transport(exporter)
    managers: list[Any] = [getattr(transport, "_pool", None)]  # urllib3 without requests
    session = getattr(transport, "_session", None)
    if session is not None:
        session.cookies._cookies_lock = threading.RLock()
        for adapter in session.adapters.values():
            managers += [getattr(adapter, "poolmanager", None), *getattr(adapter, "proxy_manager", {}).values()]
    for manager in managers:
        if hasattr(manager, "pools"):
            manager.pools.lock = threading.RLock()
            for pool in manager.pools._container.values():
                pool.pool.mutex._at_fork_reinit()  # not replaced: three conditions and a finalizer have it, too
            manager.clear()


# -- exporters


def _transport(exporter: Any) -> Any:
    """Return what an OTLP/HTTP exporter sends with: since SDK 1.44 not itself."""
    for name in ("_client", "_transport"):
        exporter = getattr(exporter, name, exporter)
    return exporter


def endpoint_of(exporter: object) -> str:
    """Return the URL that an OTLP exporter sends to; "" if it is not known."""
    return getattr(exporter, "_endpoint", "")


def wrap_stub(exporter: Any, wrap: Callable[[Any], Any]) -> None:
    """Send through a wrapped stub of gRPC, which sees the responses. The SDK passes on neither reasons nor rejections.

    The exporter makes another stub when it connects again.
    """
    make, channel = getattr(exporter, "_stub", None), getattr(exporter, "_channel", None)
    if make is not None and channel is not None:
        exporter._stub = lambda channel: wrap(make(channel))
        exporter._client = exporter._stub(channel)


def session_of(exporter: object) -> Any:
    """Return the requests.Session of an OTLP/HTTP exporter; None if it has none."""
    session = getattr(_transport(exporter), "_session", None)
    return session if hasattr(session, "adapters") else None
