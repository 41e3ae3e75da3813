"""Why an export failed, and what to do: the causes in the errors of the OTLP exporters."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from opentelemetry.instrumentation.hardware.settings.redaction import redacted

if TYPE_CHECKING:
    import requests

_LONGEST: Final = 200  # characters of an unknown error that are shown


_NO_RESPONSE: Final = "no response before the timeout"

_TIMED_OUT: Final = "connection timed out"


class Failure(NamedTuple):
    """Why an export failed, or would.

    Attributes:
        reason: What happened, as a clause.
        fix: What to do; "" if unknown.
        is_unreachable: Whether no connection was accepted, which may change without the user.
    """

    reason: str
    fix: str = ""
    is_unreachable: bool = False

    @property
    def is_timeout(self) -> bool:
        """Whether only the time is known to be over. The last of several attempts often has too little of it."""
        return self.reason in (_NO_RESPONSE, _TIMED_OUT)

    def __str__(self) -> str:
        return self.reason + (f"; {self.fix}" if self.fix else "")


_KEY: Final = "set the key of the backend in OTEL_EXPORTER_OTLP_HEADERS, as name=value"

_RECEIVER: Final = (
    "check that this is an OTLP receiver; over HTTP, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT has to end in /v1/metrics, "
    "and OTEL_EXPORTER_OTLP_ENDPOINT must not"
)

_NOT_GRPC: Final = (
    "check the port, usually 4317; if it accepts OTLP over HTTP, set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
)

_NOT_HTTP: Final = (
    "if the port accepts OTLP over gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc; if it requires TLS, use https://"
)

_UNTRUSTED: Final = "the certificate of the endpoint is not trusted"

_NO_TLS: Final = r"WRONG_VERSION_NUMBER|wrong version number"

# A regular expression for each known error, the reason ("" for the error itself) and what to do.
_CAUSES: Final = (
    (
        r"CERTIFICATE_VERIFY_FAILED",
        _UNTRUSTED,
        "set OTEL_EXPORTER_OTLP_CERTIFICATE to the file with the certificate of its authority",
    ),
    (
        r"No connection adapters|No scheme supplied",  # requests
        "the endpoint begins with neither http:// nor https://",
        "begin it with one of the two, such as http://collector:4318",
    ),
    (_NO_TLS, "the endpoint does not use TLS", "use http:// instead of https://"),
    (r"HTTP request to an HTTPS server", "the endpoint requires TLS", "use https:// instead of http://"),
    (r"Failed parsing HTTP/2|http1\.x server", "the endpoint does not speak gRPC", _NOT_GRPC),
    (
        r"^[A-Z]+: .*(Socket closed|reset by peer|Broken pipe)",  # gRPC
        "the endpoint closes the connection",
        "check that the port accepts OTLP over gRPC; if it requires TLS, use https://",
    ),
    (
        r"Connection aborted|RemoteDisconnected|reset by peer",
        "the endpoint closes the connection without a response in HTTP",
        _NOT_HTTP,
    ),
    (r"UNAUTHENTICATED|PERMISSION_DENIED|^HTTP 40[13]\b", "", _KEY),
    (r"UNIMPLEMENTED|^HTTP 40[45]\b", "", _RECEIVER),
    (r"^CANCELLED|DEADLINE_EXCEEDED|Read timed out|read timeout", _NO_RESPONSE, ""),
)

_UNREACHABLE: Final = (
    (r"ProxyError(?!.*Tunnel connection failed)", "no connection to the proxy in HTTP_PROXY or HTTPS_PROXY"),
    (r"connection refused", "connection refused"),
    (r"resol(v|ution)|lookup error|name or service not known", "the host name cannot be resolved"),
    (r"no route to host|unreachable", "the host cannot be reached"),
    (r"connect(ion)?[\w ]* timed? ?out|ConnectTimeout|FD Shutdown", _TIMED_OUT),
)


def grpc_proxy(host: str) -> str:
    """Return the variable with the proxy that gRPC uses for a host; "" if it uses none.

    It reads only names in lower case, and uses the proxy for http:// and for localhost, too.
    """
    proxy, direct = (
        next(filter(os.environ.get, names), "")
        for names in (("grpc_proxy", "https_proxy", "http_proxy"), ("no_grpc_proxy", "no_proxy"))
    )
    suffixes = [f".{word.strip().lstrip('.')}" for word in os.environ.get(direct, "").split(",") if word.strip()]
    return "" if f".{host}".endswith(tuple(suffixes)) else proxy


def _of_environment(text: str) -> Failure | None:
    """Return the failure if a variable of the environment has caused it."""
    bundle = next((name for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)), "")
    if bundle and re.search("SSLError.*CERTIFICATE_VERIFY_FAILED", text):  # of requests
        fix = f"add its authority to the file in {bundle}, or unset that: it overrides OTEL_EXPORTER_OTLP_CERTIFICATE"
        return Failure(_UNTRUSTED, fix)
    names = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    endpoint = next(filter(None, map(os.environ.get, names)), "://")
    host = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname or "localhost"
    if text.startswith("UNAVAILABLE: failed to connect") and (name := grpc_proxy(host)):
        reason = f"no connection to the proxy in {name}, which gRPC uses unless no_proxy has {host}"
        return Failure(reason, is_unreachable=True)
    if "://" not in endpoint and re.search(_NO_TLS, text):
        return Failure("the endpoint does not use TLS", "begin it with http://, because gRPC uses TLS without a scheme")
    return None


def failure(text: str) -> Failure:
    """Return the failure that an error message describes."""
    text = " ".join(text.split())
    if (found := _of_environment(text)) is not None:
        return found
    for pattern, reason in _UNREACHABLE:
        if re.search(pattern, text, re.IGNORECASE):
            return Failure(reason, is_unreachable=True)
    shown = redacted(text[: 2 * _LONGEST])  # before the final cut: a part of a secret would not be found
    shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
    for pattern, reason, fix in _CAUSES:
        if re.search(pattern, text):
            return Failure(reason or shown, fix)
    return Failure(shown or "the exporter gives no reason")


def of_http(response: requests.Response) -> Failure | None:
    """Return the failure of a request; None if it succeeded."""
    status = response.status_code
    if 200 <= status < 300:
        return None
    text = f"HTTP {status} {response.reason}"
    if 300 <= status < 400:
        return Failure(f"{text}: the endpoint redirects to {response.headers.get('Location', '?')}", "use that address")
    if "protobuf" in response.headers.get("Content-Type", ""):  # of an OTLP receiver
        from google.protobuf.message import DecodeError
        from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

        try:
            body: str = Status.FromString(response.content).message
        except DecodeError:
            body = ""
    else:
        body = response.text
    body = body.strip()
    return failure(f"{text}: {body}" if body and body.isprintable() and not body.startswith("<") else text)
