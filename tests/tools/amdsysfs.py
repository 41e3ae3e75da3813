"""The sysfs files of AMD's kernel driver: a dict of files, or real files below any folder.

AMD's own library (librocm_smi64) accepts them too. All values are made up.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Files = dict[str, "str | bytes | OSError"]

DRM = "/sys/class/drm"
KFD = "/sys/class/kfd/kfd"


# Errors of the memory, of the compute engines and of the links.
RAS = {"umc": "ue: 0\nce: 7\n", "gfx": "ue: 1\nce: 2\n", "xgmi_wafl": "ue: 0\nce: 3\n"}


@dataclass(frozen=True)
class Gpu:
    """One card; ``None`` stands for a missing file."""

    number: int = 0
    bdf: str = "0000:63:00.0"
    device: str = "740F"
    unique: str | None = "43cc8cc8af246700"
    serial: str = "692139000110"
    busy: int | None = 42
    memory_busy: int | None = 12
    used: int = 10_960_896_000
    total: int = 68_702_699_520
    edge: int | None = 33_000
    junction: int = 35_000
    memory: int = 46_000
    power_file: str = "power1_average"
    power: int | None = 41_000_000
    instant: int | None = None
    cap: int = 300_000_000
    graphics: int = 800
    clock: int = 1600
    millivolts: int = 793
    rpm: int | None = None
    pwm: int | None = None
    replays: int = 3
    ras: Mapping[str, str] = field(default_factory=lambda: RAS)
    bad_pages: str | None = "0x00000001 : 0x00001000 : R\n"
    metrics: bytes | None = None
    asleep: bool = False
    control: str | None = None
    product: str | None = None
    parts: int = 1

    @property
    def folder(self) -> str:
        return f"{DRM}/card{self.number}/device"

    @property
    def monitor(self) -> str:
        return f"{self.folder}/hwmon/hwmon{self.number + 3}"

    @property
    def place(self) -> int:
        """The PCI address as one number, without its domain."""
        _, bus, rest = self.bdf.split(":")
        device, function = rest.split(".")
        return int(bus, 16) << 8 | int(device, 16) << 3 | int(function)

    def files(self) -> Files:
        folder = self.folder
        found: dict[str, str | bytes | None] = {
            "uevent": f"DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:{self.device}\nPCI_SLOT_NAME={self.bdf}\n",
            "vendor": "0x1002\n",
            "device": f"0x{self.device.lower()}\n",
            "revision": "0x02\n",
            "subsystem_vendor": "0x1002\n",
            "subsystem_device": "0x0c34\n",
            "power/runtime_status": "suspended\n" if self.asleep else "active\n",
            "power/control": None if self.control is None else f"{self.control}\n",
            "power/autosuspend_delay_ms": None if self.control is None else "5000\n",
            "vbios_version": "113-D67301-063\n",
            "unique_id": None if self.unique is None else f"{self.unique}\n",
            "serial_number": f"{self.serial}\n",
            "product_name": None if self.product is None else f"{self.product}\n",
            "gpu_busy_percent": _line(self.busy),
            "mem_busy_percent": _line(self.memory_busy),
            "mem_info_vram_used": _line(self.used),
            "mem_info_vram_total": _line(self.total),
            "mem_info_vis_vram_used": _line(self.used),
            "mem_info_vis_vram_total": _line(self.total),
            "mem_info_gtt_used": _line(11_534_336),
            "mem_info_gtt_total": _line(270_000_000_000),
            "mem_info_vram_vendor": "samsung\n",
            "pcie_replay_count": _line(self.replays),
            "current_link_speed": "16.0 GT/s PCIe\n",
            "current_link_width": "16\n",
            "power_dpm_force_performance_level": "auto\n",
            "pp_dpm_sclk": f"0: 500Mhz\n1: {self.graphics}Mhz *\n2: 1700Mhz\n",
            "pp_dpm_mclk": f"0: 400Mhz\n1: {self.clock}Mhz *\n",
            "pp_dpm_fclk": "0: 400Mhz *\n",
            "pp_dpm_socclk": "0: 1090Mhz *\n",
            "pp_dpm_pcie": "0: 2.5GT/s, x16 *\n",
            "gpu_metrics": self.metrics,
            **{f"ras/{block}_err_count": text for block, text in self.ras.items()},
            "ras/gpu_vram_bad_pages": self.bad_pages,
            "ras/features": "feature mask: 0x5\n",
        }
        sensors: dict[str, str | None] = {
            "name": "amdgpu\n",
            "temp1_input": _line(self.edge),
            "temp1_label": None if self.edge is None else "edge\n",
            "temp1_crit": None if self.edge is None else "100000\n",
            "temp2_input": _line(self.junction),
            "temp2_label": "junction\n",
            "temp2_crit": "100000\n",
            "temp2_emergency": "105000\n",
            "temp3_input": _line(self.memory),
            "temp3_label": "mem\n",
            "power1_input": _line(self.instant),
            self.power_file: _line(self.power),
            "power1_cap": _line(self.cap),
            "power1_cap_max": _line(self.cap),
            "power1_cap_default": _line(self.cap),
            "power1_cap_min": "0\n",
            "power1_label": "PPT\n",
            "freq1_input": _line(self.graphics * 10**6),
            "freq1_label": "sclk\n",
            "freq2_input": _line(self.clock * 10**6),
            "freq2_label": "mclk\n",
            "in0_input": _line(self.millivolts),
            "in0_label": "vddgfx\n",
            "fan1_input": _line(self.rpm),
            "pwm1": _line(self.pwm),
            "pwm1_max": None if self.pwm is None else "255\n",
        }
        files: Files = {f"{folder}/{name}": content for name, content in found.items() if content is not None}
        return files | {f"{self.monitor}/{name}": text for name, text in sensors.items() if text is not None}


def _line(number: int | None) -> str | None:
    return None if number is None else f"{number}\n"


def table(
    content: int,
    energy: int = (1 << 64) - 1,
    residency: Sequence[int] = (),
    xgmi: Sequence[int] = (),
    video: Sequence[int] = (),
    status: int | None = None,
    hbm: Sequence[int] = (),
    jpeg: Sequence[int] = (),
    clock: int = 0xFFFF,
    pcie: Sequence[int] = (0xFFFF, 0xFFFF),
    voltages: Sequence[int] = (),
) -> bytes:
    """``gpu_metrics`` of revision 1.3 (Navi 2x, MI200) or 1.6 (MI300); fields that are not given are not available.

    The engines of an MI300 are those of its first partition.
    """
    made = bytearray(b"\xff" * {3: 120, 6: 1664}[content])
    struct.pack_into("<HBB", made, 0, len(made), 1, content)
    struct.pack_into("<Q", made, {3: 24, 6: 16}[content], energy)
    if residency:
        struct.pack_into("<6I", made, 32, *residency)
    if xgmi:
        struct.pack_into(f"<{len(xgmi)}Q", made, 128, *xgmi)
    if video:
        struct.pack_into(f"<{len(video)}H", made, {3: 20, 6: 312 + 32 + 64}[content], *video)
    if jpeg:
        struct.pack_into(f"<{len(jpeg)}H", made, 312 + 32, *jpeg)
    if status is not None:
        struct.pack_into("<Q", made, 112, status)
    if hbm:
        struct.pack_into(f"<{len(hbm)}H", made, 88, *hbm)
    struct.pack_into("<H", made, {3: 60, 6: 288}[content], clock)
    struct.pack_into("<2H", made, {3: 74, 6: 60}[content], *pcie)
    if voltages:
        struct.pack_into("<3H", made, 104, *voltages)
    return bytes(made)


def attribute_table(attributes: Mapping[int, tuple[str, Sequence[int]]]) -> bytes:
    """``gpu_metrics`` of revision 1.9: attributes by id, each with its type (a code of :mod:`struct`) and values."""
    body = struct.pack("<i", len(attributes))
    for number, (kind, values) in attributes.items():
        body += struct.pack("<Q", 3 << 24 | "BbHhIiQq".index(kind) << 20 | number << 10 | len(values))
        body += struct.pack(f"<{len(values)}{kind}", *values)
    return struct.pack("<HBB", 4 + len(body), 1, 9) + body


def module() -> Files:
    """The files of the loaded driver."""
    return {"/sys/module/amdgpu/initstate": "live\n", "/sys/module/amdgpu/version": "6.3.6\n"}


def topology(gpus: Sequence[Gpu]) -> Files:
    """KFD's topology: a node for the CPU, then one for each GPU or partition."""
    files: Files = {f"{KFD}/topology/system_properties": "platform_oem 0\n"}
    nodes: list[tuple[Gpu | None, int]] = [(None, 0), *((each, part) for each in gpus for part in range(each.parts))]
    for node, (gpu, part) in enumerate(nodes):
        folder = f"{KFD}/topology/nodes/{node}"
        properties = {
            "cpu_cores_count": 0 if gpu else 8,
            "simd_count": 416 if gpu else 0,
            "mem_banks_count": 1,
            "caches_count": 0,
            "io_links_count": 1,
            "cpu_core_id_base": 0,
            "simd_id_base": 2147487744 if gpu else 0,
            "max_waves_per_simd": 8,
            "lds_size_in_kb": 64,
            "gds_size_in_kb": 0,
            "wave_front_size": 64,
            "array_count": 8,
            "simd_arrays_per_engine": 1,
            "cu_per_simd_array": 14,
            "simd_per_cu": 4,
            "max_slots_scratch_cu": 32,
            "gfx_target_version": 90010 if gpu else 0,
            "vendor_id": 4098 if gpu else 0,
            "device_id": int(gpu.device, 16) if gpu else 0,
            "location_id": gpu.place | part if gpu else 0,
            "domain": int(gpu.bdf.split(":")[0], 16) if gpu else 0,
            "drm_render_minor": 128 + gpu.number if gpu else 0,
            "hive_id": 0,
            "unique_id": int(gpu.unique or "0", 16) if gpu else 0,
            "num_xcc": 1 if gpu else 0,
        }
        files[f"{folder}/properties"] = "".join(f"{name} {value}\n" for name, value in properties.items())
        files[f"{folder}/gpu_id"] = f"{number_of(gpu, part)}\n" if gpu else "0\n"
        files[f"{folder}/name"] = "aldebaran\n" if gpu else "\n"
        other = 1 if node == 0 else 0
        files[f"{folder}/io_links/0/properties"] = (
            f"type 2\nversion_major 0\nversion_minor 0\nnode_from {node}\nnode_to {other}\nweight 20\nmin_latency 0\n"
            "max_latency 0\nmin_bandwidth 0\nmax_bandwidth 0\nrecommended_transfer_size 0\nflags 1\n"
        )
        files[f"{folder}/mem_banks/0/properties"] = "heap_type 1\nsize_in_bytes 68702699520\nflags 0\nwidth 4096\n"
        files[f"{folder}/p2p_links/"] = ""
    return files


def number_of(gpu: Gpu, part: int = 0) -> int:
    """KFD's gpu_id of a GPU or partition."""
    return 1024 + gpu.place + part


def machine(gpus: Sequence[Gpu]) -> Files:
    """All files of the GPUs and their driver."""
    files = module() | topology(gpus)
    for gpu in gpus:
        files |= gpu.files()
    return files


def write(files: Files, root: Path = Path("/")) -> None:
    """Write the files below a root folder; cards are links into folders named by PCI address, as in real sysfs."""
    for gpu in {name.split("/")[4] for name in files if name.startswith(f"{DRM}/card")}:
        uevent = files[f"{DRM}/{gpu}/device/uevent"]
        bdf = str(uevent).partition("PCI_SLOT_NAME=")[2].strip()
        for node in (gpu, f"renderD{128 + int(gpu.removeprefix('card'))}"):
            link = root / f"{DRM}/{node}".lstrip("/")
            real = root / f"sys/class/devices/pci0000:00/{bdf}/drm/{node}"
            real.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                os.symlink(f"../devices/pci0000:00/{bdf}/drm/{node}", link)
                os.symlink("../..", real / "device")
    for name, content in files.items():
        path = root / name.lstrip("/")
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, OSError):
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
