"""The address of a TPU node by its name: Google's own client looks it up, in a child."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, python_executable
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.tpu.addresses import MASTER, bracketed, port_of, with_port

_PATIENCE = 30.0

_RESOLVE: Final = """\
import json, sys
try:
    from cloud_tpu_client import Client
except ImportError:
    sys.exit("not installed")
name, zone, project = (word or None for word in sys.argv[1:4])
print(json.dumps(Client(name, zone=zone, project=project).network_endpoints()))
"""


def is_name(place: str) -> bool:
    """Whether it has to be looked up which address it has."""
    return bool(place) and port_of(place) is None and not place.startswith("unix:")


def resolve(drivers: Drivers, name: str, environ: Mapping[str, str]) -> str:
    """The address of a node's profiler, by its name.

    The client asks over the network, and takes as long as it likes.

    Raises:
        Unavailable: the client is not installed, or does not know it.
        OSError: it could not be asked now.
    """
    tool = Tool("cloud-tpu-client", python_executable(), environment=("TPU_", "CLOUDSDK_", "GOOGLE_"))
    zone, project = (environ.get(f"CLOUDSDK_{word}", "") for word in ("COMPUTE_ZONE", "CORE_PROJECT"))
    said = drivers.command(tool).run(["-I", "-c", _RESOLVE, name, zone, project], _PATIENCE)
    words = said.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
    if words == "not installed":
        fix = "pip install cloud-tpu-client, or set TPU_NAME to grpc://<address>:8470"
        raise Unavailable(f"TPU_NAME={name} is a name, and what looks up its address is not installed", fix)
    if said.code:
        raise OSError(f"the address of TPU_NAME={name} cannot be looked up: {words or f'exit status {said.code}'}")
    try:
        first = json.loads(said.stdout)[0]
        place = f"{bracketed(str(first['ipAddress']))}:{int(first.get('port') or MASTER)}"
    except (ValueError, TypeError, LookupError, AttributeError):
        raise OSError(f"the address of TPU_NAME={name} cannot be looked up: the answer is none") from None
    return with_port(place)
