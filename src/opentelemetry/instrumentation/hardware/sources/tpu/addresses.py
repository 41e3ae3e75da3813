"""Where a TPU's services are, as far as the settings and the environment tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

METRICS: Final = "localhost:8431"
"""Where the runtime serves its metrics when it is told nothing else."""

MASTER: Final = 8470
_PROFILER = 8466
"""The ports of a TPU node."""


def told(environ: Mapping[str, str]) -> bool:
    """Whether the environment names the ports or the address of the metric service."""
    return bool(_ports(environ) or environ.get("TPU_RUNTIME_METRICS_ADDRESS", "").strip())


def runtime(setting: Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the programs that use the TPU serve their metrics, each place once; none where that is switched off."""
    words = [word for word in setting or () if word != "auto"]
    if "off" in words:
        return ()
    if not words:
        address = environ.get("TPU_RUNTIME_METRICS_ADDRESS", "").strip()
        ports = _ports(environ)
        if address.startswith(("/", "unix:")) or port_of(address):
            words = [address]
        else:
            host = address if address and address not in ("0.0.0.0", "::", "[::]") else "localhost"
            words = [f"{host}:{port}" for port in ports or [METRICS.partition(":")[2]]]
    return tuple(dict.fromkeys(f"unix:{word}" if word.startswith("/") else word for word in words))


def _ports(environ: Mapping[str, str]) -> list[str]:
    words = environ.get("TPU_RUNTIME_METRICS_PORTS", "").split(",")
    return [word.strip() for word in words if word.strip().isascii() and word.strip().isdigit()]


def profiler(setting: str | None, environ: Mapping[str, str]) -> str:
    """The TPU node whose profiler is asked, as ``host:port``, or its name, or ""; ports are the profiler's."""
    if setting == "off":
        return ""
    word = setting if setting not in (None, "auto") else ""
    if word:
        return word
    named = environ.get("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "").strip() or environ.get("TPU_NAME", "").strip()
    place = named.split(",")[0].strip().rpartition("://")[2].rstrip("/")
    return "" if place == "local" else with_port(place)


def with_port(place: str) -> str:
    """An address with the profiler's port in the place of the node's own; a name as it is."""
    port = port_of(place)
    if port is None:
        return f"{bracketed(place)}:{_PROFILER}" if _is_address(place) else place
    return f"{place.rpartition(':')[0]}:{_PROFILER if port == MASTER else port}"


def port_of(place: str) -> int | None:
    """The port that an address ends in, if it does."""
    host, _, port = place.rpartition(":")
    if not host or (":" in host and not host.endswith("]")) or not (port.isascii() and port.isdigit()):
        return None
    return int(port)


def _is_address(place: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(place.strip("[]"))
    except ValueError:
        return False
    return True


def bracketed(place: str) -> str:
    """A host as it stands before a port."""
    return f"[{place}]" if ":" in place and not place.startswith("[") else place
