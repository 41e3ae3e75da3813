"""TPUs on the PCI bus, and the addresses of services from settings and environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sources.tpus import bus, python
from tests.sources.tree import Tree

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.tpu import addresses
from opentelemetry.instrumentation.hardware.sources.tpu.fields import SEPARATE_CORES
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Presence, pci_chips


@pytest.mark.parametrize(
    ("device", "subsystem", "model", "is_split"),
    [
        ("0027", "004e", "TPU v2", True),
        ("0027", "004f", "TPU v3", True),
        ("005e", "", "TPU v4", False),
        ("0063", "", "TPU v5e", False),
        ("0062", "", "TPU v5p", False),
        ("006f", "", "TPU v6e", False),
        ("0076", "", "TPU7x", False),
        ("0027", "0001", "", False),
        ("0042", "004e", "", False),
    ],
)
def test_chip_model_by_pci_device_and_subsystem(device: str, subsystem: str, model: str, is_split: bool) -> None:
    found = pci_chips(Tree(bus(device, 3, subsystem, functions=2)))
    assert [*found.values()] == ([model] * 3 if model else [])
    assert (model in SEPARATE_CORES) == is_split
    if model:
        assert next(iter(found)) == "0000:00:05.0"


def test_unreadable_pci_devices_are_left_out() -> None:
    files = bus("0063", 4)
    del files["/sys/bus/pci/devices/0000:00:03.0/vendor"]
    assert len(pci_chips(Tree(files))) == 4
    assert pci_chips(Tree({})) == {}


@pytest.mark.parametrize(
    ("setting", "environ", "expected"),
    [
        (None, {}, ("localhost:8431",)),
        (["auto"], {"TPU_RUNTIME_METRICS_PORTS": "8431, 8432,"}, ("localhost:8431", "localhost:8432")),
        (None, {"TPU_RUNTIME_METRICS_PORTS": "none"}, ("localhost:8431",)),
        (None, {"TPU_RUNTIME_METRICS_ADDRESS": "/run/tpu.sock"}, ("unix:/run/tpu.sock",)),
        (None, {"TPU_RUNTIME_METRICS_ADDRESS": "unix:///run/tpu.sock"}, ("unix:///run/tpu.sock",)),
        (None, {"TPU_RUNTIME_METRICS_ADDRESS": "10.0.0.3:9000"}, ("10.0.0.3:9000",)),
        (
            None,
            {"TPU_RUNTIME_METRICS_ADDRESS": "0.0.0.0", "TPU_RUNTIME_METRICS_PORTS": "9000"},
            ("localhost:9000",),
        ),
        (["off"], {"TPU_RUNTIME_METRICS_PORTS": "8431"}, ()),
        (["h:1", "h:1", "/s"], {"TPU_RUNTIME_METRICS_PORTS": "8431"}, ("h:1", "unix:/s")),
    ],
)
def test_runtime_addresses_from_setting_and_environment(
    setting: Any, environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert addresses.runtime(setting, environ) == expected


@pytest.mark.parametrize(
    ("setting", "environ", "expected"),
    [
        (None, {}, ""),
        (None, {"TPU_NAME": "grpc://10.0.0.2:8470"}, "10.0.0.2:8466"),
        (None, {"TPU_NAME": "10.0.0.2"}, "10.0.0.2:8466"),
        (None, {"TPU_NAME": "[fd00::2]:8470"}, "[fd00::2]:8466"),
        (None, {"TPU_NAME": "fd00::2"}, "[fd00::2]:8466"),
        (None, {"TPU_NAME": "10.0.0.2:9999"}, "10.0.0.2:9999"),
        (None, {"TPU_NAME": "local"}, ""),
        (None, {"TPU_NAME": "my-tpu"}, "my-tpu"),
        (
            None,
            {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://10.0.0.7:8470,grpc://10.0.0.8:8470", "TPU_NAME": "x"},
            "10.0.0.7:8466",
        ),
        ("off", {"TPU_NAME": "10.0.0.2"}, ""),
        ("localhost:9012", {"TPU_NAME": "10.0.0.2"}, "localhost:9012"),
    ],
)
def test_profiler_address_from_setting_and_environment(
    setting: str | None, environ: dict[str, str], expected: str
) -> None:
    assert addresses.profiler(setting, environ) == expected


def test_local_tpu_ignores_tpu_name_unless_the_profiler_is_set() -> None:
    environ = {"TPU_NAME": "10.0.0.2"}
    for files, settings, expected in (
        (bus("0063", 4), {}, ""),
        (bus("0063", 4), {"tpu_profiler": "10.0.0.2:9012"}, "10.0.0.2:9012"),
        (bus("0063", 0), {}, "10.0.0.2:8466"),
    ):
        assert Presence(Config.read(settings, {}), environ, Tree(files)).profiler == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("""echo '[{"ipAddress": "10.1.2.3", "port": "8470"}, {"ipAddress": "10.1.2.4"}]'""", "10.1.2.3:8466"),
        ("""echo '[{"ipAddress": "fd00::3"}]'""", "[fd00::3]:8466"),
        ("echo '[]'", OSError),
        ("echo '{}'", OSError),
        ("echo nothing", OSError),
        ("echo 'no credentials' >&2; exit 1", OSError),
        ("echo 'not installed' >&2; exit 1", Unavailable),
    ],
)
def test_tpu_name_is_resolved_in_a_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: Any
) -> None:
    python(tmp_path, monkeypatch, script)
    if isinstance(expected, str):
        assert addresses.resolved(Drivers(), "my-tpu", {}) == expected
    else:
        with pytest.raises(expected, match="my-tpu"):
            addresses.resolved(Drivers(), "my-tpu", {})


def test_resolver_child_gets_zone_and_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "cloud_tpu_client.py"
    package.write_text(
        "class Client:\n"
        "    def __init__(self, tpu, zone=None, project=None):\n"
        "        assert (tpu, zone, project) == ('my-tpu', 'us-central1-b', None), (tpu, zone, project)\n"
        "    def network_endpoints(self):\n"
        "        return [{'ipAddress': '10.1.2.3', 'port': '8470'}]\n"
    )
    python(tmp_path, monkeypatch, f'shift; PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    environ = {"CLOUDSDK_COMPUTE_ZONE": "us-central1-b"}
    assert addresses.resolved(Drivers(), "my-tpu", environ) == "10.1.2.3:8466"


def test_missing_cloud_tpu_client_is_unavailable_with_a_fix() -> None:
    with pytest.raises(Unavailable) as gone:
        addresses.resolved(Drivers(), "my-tpu", {})
    assert "TPU_NAME=my-tpu is a name" in gone.value.reason
    assert "pip install cloud-tpu-client" in gone.value.fix
