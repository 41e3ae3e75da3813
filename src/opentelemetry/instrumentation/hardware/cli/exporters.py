"""The exporters that the standard ``OTEL_*`` variables select: where OTLP goes, and whether each can be used."""

from __future__ import annotations

import os
import queue
import socket
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib.metadata import entry_points
from threading import Thread
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.instrumentation.hardware.cli.failures import Failure, failure, grpc_proxy
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, cause
from opentelemetry.instrumentation.hardware.sdk import configurator
from opentelemetry.instrumentation.hardware.settings.redaction import did_you_mean
from opentelemetry.instrumentation.hardware.system.limits import is_limit

SERVICE: Final = "otel-hardware"  # the service name of these commands, unless the environment sets another

DETECTOR: Final = "hardware_job"  # the entry point of our resource detector

_PORTS: Final = {"grpc": 4317, "http/protobuf": 4318}

# The entry point of OTLP's exporter for each protocol.
OTLP: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}

_GROUP: Final = "opentelemetry_metrics_exporter"

# The package of each exporter.
_PACKAGES: Final = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
    "prometheus": "opentelemetry-exporter-prometheus",
    "console": "opentelemetry-sdk",
}

# Beginnings and ends of the variables that a message names with their values. Others may have secrets.
_NAMED: Final = ("OTEL_METRIC", "OTEL_EXPORTER")
_SHOWN: Final = ("EXPORTER", "ENDPOINT", "PROTOCOL", "INTERVAL", "TIMEOUT", "COMPRESSION", "INSECURE", "PREFERENCE")


class Destination(NamedTuple):
    """The destination of OTLP metrics.

    Attributes:
        exporter: The word in ``OTEL_METRICS_EXPORTER`` that selects OTLP.
        protocol: The value of the environment; ``grpc`` and ``http/protobuf`` are valid.
        url: The endpoint, as the exporter uses it.
        variable: The variable that set it; "" for the default endpoint.
    """

    exporter: str
    protocol: str
    url: str
    variable: str

    @property
    def address(self) -> tuple[str, int] | None:
        """Return host and port; None for another kind of gRPC address, such as ``unix:/run/otlp``.

        Raises:
            ValueError: The port is not a number.
        """
        url = self.url
        if "://" not in url:
            url = f"//{url}"
        parts = urlsplit(url)
        if parts.scheme not in ("", "http", "https") or url.startswith(("//unix:", "//dns:", "//ipv4:", "//ipv6:")):
            return None
        return parts.hostname or "localhost", parts.port or (443 if parts.scheme == "https" else 80)

    @property
    def mismatch(self) -> str:
        """Return a warning if the port is the usual one of the other protocol, else ""."""
        try:
            _, port = self.address or ("", 0)
        except ValueError:
            return ""
        for other, usual in _PORTS.items():
            if port == usual and other != self.protocol and self.protocol in _PORTS:
                return (
                    f"the protocol for {self.url} is {self.protocol}, but port {port} is usually {other}; set "
                    f"OTEL_EXPORTER_OTLP_PROTOCOL={other}, or use port {_PORTS[self.protocol]}"
                )
        return ""


def selected(environ: Mapping[str, str]) -> list[str]:
    """Return the words of ``OTEL_METRICS_EXPORTER``; if it is not set OTLP, like the distro."""
    words = [word.strip() for word in (environ.get("OTEL_METRICS_EXPORTER") or "otlp").split(",")]
    return [word for word in words if word and word.lower() != "none"]


def destination(environ: Mapping[str, str]) -> Destination | None:
    """Return the destination of OTLP metrics in the environment; None if it uses another exporter."""
    chosen = next((word for word in selected(environ) if word in ("otlp", *OTLP.values())), None)
    if chosen is None:
        return None
    setting = _first(environ, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")[1]
    protocol = next((name for name, exporter in OTLP.items() if exporter == chosen), setting or "grpc")
    variable, url = _first(environ, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if protocol == "http/protobuf" and variable == "OTEL_EXPORTER_OTLP_ENDPOINT":
        url = url.rstrip("/") + "/v1/metrics"
    if not url:
        url = "http://localhost:4318/v1/metrics" if protocol == "http/protobuf" else "http://localhost:4317"
    return Destination(chosen, protocol, url, variable)


def _first(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    return next(((name, value) for name in names if (value := environ.get(name, "").strip())), ("", ""))


def connection_failure(where: Destination, seconds: float = 2.0) -> Failure | None:
    """Return why a TCP connection fails; None if it succeeds or cannot be tested (proxy, other kind of address)."""
    try:
        address = where.address
    except ValueError:
        return Failure("it is not a valid address, such as http://collector:4317", is_unreachable=True)
    if address is None:
        return None
    if where.variable and proxy(where):
        return None
    reason = ""
    try:
        for found in _resolved(*address, seconds):
            try:
                socket.create_connection(found, seconds).close()
            except OSError as error:
                reason = "connection timed out" if isinstance(error, TimeoutError) else cause(error)
            else:
                return None
    except OSError as error:
        reason = cause(error)
    known = failure(reason)
    return known if known.is_unreachable else Failure(reason, is_unreachable=True)


def proxy(where: Destination) -> str:
    """Return the variable with the proxy that the exporter connects through; "" if it uses none."""
    address = where.address
    if address is None:
        return ""
    if where.protocol == "grpc":
        return grpc_proxy(address[0])
    from urllib.request import getproxies, proxy_bypass

    scheme = urlsplit(where.url).scheme or "http"
    return f"{scheme}_proxy" if scheme in getproxies() and not proxy_bypass(address[0]) else ""


def _resolved(host: str, port: int, seconds: float) -> list[tuple[str, int]]:
    """Return the addresses of a host. The C library itself has no limit for the time that this takes.

    Raises:
        OSError: It has none, or there is no answer after so many seconds.
    """
    answers: queue.SimpleQueue[list[tuple[str, int]] | OSError] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put([(str(address[0]), port) for *_, address in found])
        except OSError as error:
            answers.put(error)
        except UnicodeError:  # as of a label that is empty or too long
            answers.put(OSError("the host name is not valid"))

    Thread(target=resolve, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise OSError("the name server does not respond, so the host name cannot be resolved") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def header_problems(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable with headers that the SDK ignores. It has no value, which may be secret."""
    for name in ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"):
        words = [word.strip() for word in environ.get(name, "").split(",")]
        if any(word and word.find("=") < 1 for word in words):
            yield f"{name}: a header is not of the form name=value and is ignored"


def drop_empty(environ: MutableMapping[str, str]) -> list[str]:
    """Remove the empty variables of OTLP and return their names. They count as unset, but not for gRPC's exporter."""
    names = [name for name, value in environ.items() if name.startswith("OTEL_EXPORTER_OTLP") and not value.strip()]
    for name in names:
        del environ[name]
    return names


def silence_grpc(environ: MutableMapping[str, str]) -> None:
    """Keep gRPC's library from printing each failed TLS handshake itself. It must not be loaded yet."""
    environ.setdefault("GRPC_VERBOSITY", "NONE")


def set_defaults(environ: MutableMapping[str, str], interval: float | None, service: str | None = SERVICE) -> None:
    """Set defaults for unset variables: no traces and logs, compression, resource detector, service name, 15 s.

    The interval of the command line, in seconds, takes precedence. Without a service, the SDK's own name remains.
    """
    drop_empty(environ)
    silence_grpc(environ)
    environ.setdefault("OTEL_TRACES_EXPORTER", "none")
    environ.setdefault("OTEL_LOGS_EXPORTER", "none")
    environ["OTEL_METRICS_EXPORTER"] = environ.get("OTEL_METRICS_EXPORTER") or "otlp"
    if not _first(environ, "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION")[1]:
        environ["OTEL_EXPORTER_OTLP_METRICS_COMPRESSION"] = "gzip"  # a tenth of the bytes
    if interval is not None:
        environ["OTEL_METRIC_EXPORT_INTERVAL"] = str(round(interval * 1000) or 1)
    elif not environ.get("OTEL_METRIC_EXPORT_INTERVAL"):
        environ["OTEL_METRIC_EXPORT_INTERVAL"] = "15000"
    words = [word.strip() for word in environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "").split(",")]
    # Ours would describe this process. Only the SDK's detector "host" has host.id on macOS and Windows.
    wanted = () if sys.platform.startswith("linux") else ("host",)
    detectors = [word for word in words if word not in ("", DETECTOR)]
    detectors += [word for word in wanted if not {word, "*"} & {*words}]
    environ["OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"] = ",".join(detectors)
    if service is not None and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        environ.setdefault("OTEL_SERVICE_NAME", service)


# -- the packages of exporters


def entry_point(word: str, where: Destination | None) -> str:
    """Return the name of the entry point that a word of ``OTEL_METRICS_EXPORTER`` stands for."""
    return OTLP.get(where.protocol, "") if where is not None and word == where.exporter else word


def load(name: str) -> Any:
    """Return the class of an exporter that is installed.

    Raises:
        Exception: It cannot be loaded.
    """
    return next(iter(entry_points(group=_GROUP, name=name))).load()


def _problem(name: str) -> Failure | None:
    """Return what is wrong with an exporter; None if it can be used."""
    if entry_points(group=_GROUP, name=name):
        try:
            load(name)
        except Exception as error:
            if is_limit(error):
                raise
            text = f"the exporter {name} is installed, but cannot be loaded: {type(error).__name__}: {error}"
            return Failure(text, f"pip install --force-reinstall {_PACKAGES.get(name, 'its package')}")
        return None
    if name not in _PACKAGES:
        fix = did_you_mean(name, ["otlp", *_PACKAGES], "set OTEL_METRICS_EXPORTER=otlp")
        return Failure(f"no installed package provides the metrics exporter {name}", fix)
    fix = f"pip install {_PACKAGES[name]}"
    for protocol, other in OTLP.items():
        if name in OTLP.values() and other != name and entry_points(group=_GROUP, name=other):
            fix += f", or set OTEL_EXPORTER_OTLP_PROTOCOL={protocol}, which is installed"
    return Failure(f"the exporter {name} is not installed", fix)


def unknown_protocol(where: Destination | None) -> Failure | None:
    """Return what is wrong with the protocol; None if the SDK knows it."""
    if where is None or where.protocol in OTLP:
        return None
    fix = did_you_mean(where.protocol, OTLP, "set OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf")
    return Failure(f"{where.protocol} is not a protocol of the Python SDK", fix)


def problems(words: Sequence[str], where: Destination | None) -> dict[str, Failure]:
    """Return what is wrong with the exporters, by the names of their entry points."""
    names = dict.fromkeys(name for word in words if (name := entry_point(word, where)))
    return {name: found for name in names if (found := _problem(name)) is not None}


def configure(pid: int, is_simulated: bool = False) -> None:
    """Configure the SDK from the environment, as ``opentelemetry-instrument`` does with a distro.

    The resource describes the process with this PID.

    Raises:
        Mistake: An exporter is missing or broken, or the SDK rejects the configuration.
        RuntimeError: This process may have no more threads.
    """
    from opentelemetry.instrumentation.hardware.resource_detector import of_agent

    options = {}
    if not os.environ.get("OTEL_CONFIG_FILE"):  # which describes its own exporters and resource
        for problem in problems(selected(os.environ), destination(os.environ)).values():
            raise Mistake(str(problem))
        options["resource_attributes"] = of_agent(pid, is_simulated)
    try:
        configurator()().configure(**options)
    except Exception as error:
        if is_limit(error):
            raise
        raise Mistake(rejection(error)) from None


def rejection(error: Exception) -> str:
    """Return a sentence about an error of the SDK when it is configured, with the variables that it may be about."""
    metrics = {name: value for name, value in os.environ.items() if name.startswith(_NAMED)}
    shown = ", ".join(f"{name}={value}" for name, value in sorted(metrics.items()) if name.endswith(_SHOWN))
    reason = " ".join(str(error).split())
    return f"the SDK rejects this configuration: {reason} ({shown})"
