"""Signs of a driver, in mount namespaces: NVML is used wherever it works, and initialized nowhere else.

https://gvisor.dev/docs/user_guide/gpu/, https://github.com/NVIDIA/nvidia-container-toolkit (pkg/nvcdi/driver-wsl.go),
https://cloud.google.com/kubernetes-engine/docs/how-to/gpus: which files there are in each environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import children
from tests.tools.nvml import FakeNvml, geforce, h100, orin

SETTING = "OTEL_PYTHON_HARDWARE_NVML"
STORE = "/usr/lib/wsl/drivers/nv_dispi.inf_amd64_0123456789abcdef"


class Environment(NamedTuple):
    """Where a program runs.

    Attributes:
        files: The files of the driver that are visible there.
        in_path: Whether the loader finds the library by its name.
    """

    files: Sequence[str]
    in_path: bool = True


USABLE = {
    "gVisor": Environment(["/proc/driver/nvidia/params"]),
    "Docker on WSL2": Environment(["/dev/dxg"]),
    "Docker on WSL2, driver store": Environment(["/dev/dxg", f"{STORE}/libnvidia-ml.so.1"], in_path=False),
    "CDI on WSL2": Environment(
        ["/dev/dxg", "/usr/lib/wsl/lib/libdxcore.so", f"{STORE}/libnvidia-ml.so.1"], in_path=False
    ),
    "WSL2": Environment(["/dev/dxg", "/usr/lib/wsl/lib/libnvidia-ml.so.1"], in_path=False),
    "CDI": Environment(["/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/sys/module/nvidia/initstate"]),
    "GKE": Environment(["/proc/driver/nvidia/version", "/usr/local/nvidia/lib64/libnvidia-ml.so.1"], in_path=False),
    "NixOS": Environment(["/sys/module/nvidia/initstate", "/run/opengl-driver/lib/libnvidia-ml.so.1"], in_path=False),
    "no /proc/driver": Environment(["/sys/module/nvidia/initstate"]),
    "Jetson": Environment(["/sys/module/nvgpu/"]),
}


def report(folder: Path, fake: FakeNvml, where: Environment, **env: str) -> dict[str, Any]:
    """What a program reports there; see `tests/programs/machines/nvidia_run.py`."""
    scratch = folder / "scratch"
    scratch.mkdir()
    known = {name: text for name, text in fake.environment.items() if name != SETTING}
    if not where.in_path:
        del known["LD_LIBRARY_PATH"]
    settings = {"OTEL_PYTHON_HARDWARE_SOURCES": "nvidia", "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
    line = children.command("machines/nvidia_machine", scratch, json.dumps(where.files), fake.path)
    with children.started([*line, *children.command("machines/nvidia_run")], {**settings, **known, **env}) as child:
        out, err = child.communicate("{}\n", timeout=children.PATIENCE)
    if child.returncode == 77:
        pytest.skip(f"namespaces are not allowed here: {out.strip()}")
    assert (child.returncode, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("name", USABLE)
def test_gpu_is_exported_wherever_nvml_works(tmp_path: Path, name: str) -> None:
    gpu = orin() if name == "Jetson" else geforce() if "WSL" in name else h100()
    found = report(tmp_path, FakeNvml(tmp_path, gpu), USABLE[name])
    assert found["problem"] is None
    assert [about["hw.model"] for metric, about, _ in found["points"] if metric == "hw.gpu.info"] == [gpu["Name"]]
    assert "WARNING" not in found["heard"]


# What may remain while the kernel module is not loaded: as root, the library would run nvidia-modprobe and load it.
LEFT_OVER = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"]


def test_library_is_not_loaded_without_a_sign_of_the_driver_and_the_message_names_the_setting(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, h100())
    found = report(tmp_path, fake, Environment(LEFT_OVER))
    assert (found["imported"], found["mapped"], fake.calls()) == (False, False, {})
    assert found["problem"].startswith("no NVIDIA driver is loaded")
    assert SETTING in found["problem"]


def test_library_in_the_setting_is_used_without_a_sign(tmp_path: Path) -> None:
    fake = FakeNvml(tmp_path, h100())
    found = report(tmp_path, fake, Environment([], in_path=False), **{SETTING: str(fake.path)})
    assert found["problem"] is None
    assert any(metric == "hw.power" for metric, *_ in found["points"])
