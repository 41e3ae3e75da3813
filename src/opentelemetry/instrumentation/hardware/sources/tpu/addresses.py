"""The addresses of a TPU's services, from settings and environment variables."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.child import last_line
from opentelemetry.instrumentation.hardware.drivers.json import decoded, table
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, python_executable
from opentelemetry.instrumentation.hardware.model import Unavailable

_RUNTIME_PORT: Final = "8431"  # the default port of the metric service

_NODE_PORT: Final = 8470  # of a TPU node, as in TPU_NAME
_PROFILER_PORT: Final = 8466  # of the profiler of the same node

_RESOLVE: Final = """\
import json, sys
try:
    from cloud_tpu_client import Client
except ImportError:
    sys.exit("not installed")
name, zone, project = (word or None for word in sys.argv[1:4])
print(json.dumps(Client(name, zone=zone, project=project).network_endpoints()))
"""
_RESOLVE_TIMEOUT: Final = 30.0

# The environment variables with which Google's client finds the project and its credentials.
_ENVIRONMENT: Final = (
    "CLOUDSDK_COMPUTE_ZONE",
    "CLOUDSDK_CONFIG",
    "CLOUDSDK_CORE_PROJECT",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
    "TPU_API_DISCOVERY_URL",
)


def has_runtime(environ: Mapping[str, str]) -> bool:
    """Whether the environment names a metric service."""
    return bool(_ports(environ) or environ.get("TPU_RUNTIME_METRICS_ADDRESS", "").strip())


def runtime(setting: Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses of metric services, without duplicates; empty if the setting is "off"."""
    addresses = [word for word in setting or () if word != "auto"]
    if "off" in addresses:
        return ()
    if not addresses:
        address = environ.get("TPU_RUNTIME_METRICS_ADDRESS", "").strip()
        if address.startswith(("/", "unix:")) or _port(address):
            addresses = [address]
        else:
            host = address if address and address not in ("0.0.0.0", "::", "[::]") else "localhost"
            addresses = [f"{host}:{port}" for port in _ports(environ) or [_RUNTIME_PORT]]
    return tuple(dict.fromkeys(f"unix:{each}" if each.startswith("/") else each for each in addresses))


def _ports(environ: Mapping[str, str]) -> list[str]:
    words = [word.strip() for word in environ.get("TPU_RUNTIME_METRICS_PORTS", "").split(",")]
    return [word for word in words if word.isascii() and word.isdigit()]


def profiler(setting: str | None, environ: Mapping[str, str]) -> str:
    """Return the address of the profiler of a TPU node, or the name of the node; "" if neither is configured."""
    if setting not in (None, "auto"):
        return "" if setting == "off" else str(setting)
    node = environ.get("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "").strip() or environ.get("TPU_NAME", "").strip()
    node = node.split(",")[0].strip().rpartition("://")[2].rstrip("/")
    return "" if node == "local" else _with_profiler_port(node)


def _with_profiler_port(node: str) -> str:
    """Return the address of a node with the port of its profiler. A name is returned unchanged."""
    port = _port(node)
    if port is not None:
        return f"{node.rpartition(':')[0]}:{_PROFILER_PORT if port == _NODE_PORT else port}"
    try:
        ip = ipaddress.ip_address(node.strip("[]"))
    except ValueError:
        return node
    return f"[{ip}]:{_PROFILER_PORT}" if ip.version == 6 else f"{ip}:{_PROFILER_PORT}"


def _port(address: str) -> int | None:
    """Return the port of an address; None if it has no port."""
    host, _, port = address.rpartition(":")
    if not host or (":" in host and not host.endswith("]")) or not (port.isascii() and port.isdigit()):
        return None
    return int(port)


def resolved(drivers: Drivers, node: str, environ: Mapping[str, str]) -> str:
    """Return the address of a profiler. Google's client looks up the name of a node, in a child process.

    Raises:
        Unavailable: The client is not installed.
        OSError: The lookup failed. It may succeed later.
    """
    if not node or _port(node) is not None or node.startswith("unix:"):
        return node
    tool = Tool("cloud-tpu-client", python_executable(), environment=_ENVIRONMENT)
    zone, project = (environ.get(f"CLOUDSDK_{word}", "") for word in ("COMPUTE_ZONE", "CORE_PROJECT"))
    output = drivers.command(tool).run(["-I", "-c", _RESOLVE, node, zone, project], _RESOLVE_TIMEOUT)
    reason = last_line(output.stderr)
    if reason == "not installed":
        raise Unavailable(
            f"TPU_NAME={node} is a name, and the package that looks up its address is not installed",
            "pip install cloud-tpu-client, or set TPU_NAME to grpc://<address>:8470",
        )
    try:
        if output.code:
            raise ValueError(reason or f"exit status {output.code}")
        listed = decoded(output.stdout)
        first = table(listed[0]) if isinstance(listed, list) and listed else {}
        ip = ipaddress.ip_address(str(first.get("ipAddress", "")).strip("[]").partition("%")[0])
        port = int(first.get("port") or _NODE_PORT)
        return _with_profiler_port(f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}")
    except (ValueError, TypeError, OverflowError) as error:
        raise OSError(f"the address of TPU_NAME={node} cannot be looked up: {error}") from None
