"""Simulated NVIDIA drivers: the library of `fakenvml/` returns these values to programs that call NVML.

A GPU is a mapping from the name of an NVML call to its answer; `fakenvml.c` describes the format. The values of the
GPUs below are made up, based on data sheets and published output; what a card always has is in the table of the
simulator, :data:`.simulator.cards.CARDS`. Calls that a GPU does not support are not in its
mapping. `CALLS` lists which generation supports which call, its type and source; `refuted` checks a GPU against it.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.tools import fake_nvml

from opentelemetry.instrumentation.hardware.simulator.cards import CARDS

# Numbers and words of an answer, in the units of NVML.
Value = int | float | str | Sequence[int | float | str]

Gpu = dict[str, Value]

MIB = 1024 * 1024
NOT_AVAILABLE = -1  # all bits one, NVML's value for an unknown number inside an answer

ALL_LINKS = 0xFFFFFFFF  # the scope of an NVLink field that counts all links of a GPU

HANG = "!hang"  # the answer of a call that blocks until there is another answer

CRASH = "!crash"  # the answer of a call that crashes the process

XID = 8


def refused(code: int, times: int | None = None, then: Value = "") -> str:
    """Return the answer of a call that fails, always or the given number of times."""
    return f"!{code}" if times is None else f"!{code}*{times} {_words(then)}".rstrip()


def listed(*items: Sequence[int]) -> str:
    """Return a list answer, such as processes (PID and bytes) or samples (microseconds and value)."""
    return " ".join(":".join(map(str, item)) for item in items)


def moving(start: int, rate: float, since: float | None = None) -> str:
    """Return a number that is `start` at the time `since` (default: now) and increases by `rate` per second."""
    return f"{start}+{rate}@{time.monotonic() if since is None else since!r}"


def still(gpu: Mapping[str, Value], since: float) -> Gpu:
    """Return the GPU with moving numbers that begin to move at that time."""
    return {key: re.sub("@.*", f"@{since!r}", value) if isinstance(value, str) else value for key, value in gpu.items()}


def unfold(text: str, now: float) -> int:
    """Return the value of a moving number at the time `now`."""
    start, _, motion = text.partition("+")
    rate, _, since = motion.partition("@")
    return int(start) + int(float(rate) * (now - float(since)))


class FakeNvml:
    """A machine with an NVIDIA driver, for programs with its `environment`. Its answers can change as they run.

    Attributes:
        is_atomic: Whether a program or thread may call the library while its answers change.
    """

    def __init__(self, folder: Path, *gpus: Mapping[str, Value], without: tuple[str, ...] = ()) -> None:
        """Create the driver with its files in `folder`. Its library lacks the functions `without`."""
        self.path = fake_nvml(without)
        self.is_atomic = True
        self._state = folder / "nvml-state"
        self._calls = folder / "nvml-calls"
        self._events = count(1)
        self._written = 0
        self._files: list[Path] = []
        self._lines: dict[str, str] = {}
        lines: dict[str, Value | None] = {
            "DriverVersion": "570.86.15",
            "NVMLVersion": "12.570.86.15",
            "CudaDriverVersion": 12080,
            "Count": len(gpus),
        }
        for index, gpu in enumerate(gpus):
            lines |= {f"gpu{index}.{call}": value for call, value in gpu.items()}
        self.set_lines(lines)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that make a program find this driver instead of the machine's."""
        return {
            "OTEL_PYTHON_HARDWARE_NVML": str(self.path),
            "LD_LIBRARY_PATH": str(self.path.parent),
            "FAKE_NVML_STATE": str(self._state),
            "FAKE_NVML_CALLS": str(self._calls),
        }

    def set_lines(self, lines: Mapping[str, Value | None]) -> None:
        """Change these lines atomically. None removes a line."""
        for key, value in lines.items():
            if value is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = _words(value)
        self._write()

    def event(self, gpu: int, data: int, kind: int = XID, times: int = 1) -> None:
        """Raise an event of a GPU: an Xid with its number, or an event of another kind."""
        self.set_lines({f"Event.{next(self._events)}": (gpu, kind, data) for _ in range(times)})

    def calls(self) -> Counter[str]:
        """Count the calls by name, of all programs of this machine since `forget_calls`."""
        return Counter(self._calls.read_text().splitlines()) if self._calls.exists() else Counter()

    def forget_calls(self) -> None:
        self._calls.unlink(missing_ok=True)

    def _write(self) -> None:
        # Two versions may be made within one tick of the file system's clock, and the second lie where the first lay.
        self._written = max(self._written + 1, time.time_ns())
        text = "".join(f"{key} {words}\n" for key, words in self._lines.items())
        if self.is_atomic:
            self._replace(text)
            return
        file = os.open(self._state, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.ftruncate(file, os.write(file, text.encode()))
            os.utime(file, ns=(self._written, self._written))
        finally:
            os.close(file)

    def _replace(self, text: str) -> None:
        """Replace the state atomically with a link, because renaming a file over another one may flush it to disk."""
        fresh, link = (self._state.with_suffix(f".{kind}{self._written}") for kind in ("file", "link"))
        fresh.write_text(text)
        os.utime(fresh, ns=(self._written, self._written))
        link.symlink_to(fresh)
        link.replace(self._state)
        self._files.append(fresh)
        if len(self._files) > 2:  # a program may be about to open the last but one
            self._files.pop(0).unlink()


def _words(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


# -- which device supports which call


class Generation(IntEnum):
    """`NVML_DEVICE_ARCH_*`."""

    MAXWELL = 3
    PASCAL = 4
    VOLTA = 5
    TURING = 6
    AMPERE = 7
    ADA = 8
    HOPPER = 9
    BLACKWELL = 10


HEADER = "nvml.h 12.9"
MOCK = "NVIDIA's mock NVML (k8s-test-infra)"
RECORDED = "recorded nvidia-smi output (T4, A10G, A100 with MIG, RTX 3080, GTX 1660 Ti, H200)"
OTHERS = "reports and source of other readers"
ASSUMED = "assumed"  # the source of a statement about NVML. ASSUMED means neither looked up nor measured.


class Call(NamedTuple):
    """The properties of an NVML call.

    Attributes:
        since: The first generation that supports it.
        form: The types of the numbers that it returns, or "text", or "list" (described in `fakenvml.c`).
        source: The source of this information. The type of a field is often from another source.
        needs: The feature that the board must have.
        mig: Whether the whole GPU supports it while it is divided into MIG instances.
        until: The last generation that supports it.
        name: The name of a field, without `NVML_FI_DEV_`.
    """

    since: Generation
    form: str
    source: str
    needs: str = ""
    mig: bool = True
    until: Generation = Generation.BLACKWELL
    name: str = ""


_G = Generation
_EVER = Generation.MAXWELL  # supported by all products, or since a generation that is older than all of ours

# The properties by call, with its arguments where they matter; fields by number.
CALLS: Mapping[str, Call] = {
    # Identity
    "Name": Call(_EVER, "text", HEADER),
    "UUID": Call(_EVER, "text", HEADER),
    "Serial": Call(_EVER, "text", f"{HEADER}; {RECORDED}: N/A on a GeForce", needs="inforom"),
    "MinorNumber": Call(_EVER, "uint", HEADER),
    "PciInfo": Call(_EVER, "text", HEADER),
    "VbiosVersion": Call(_EVER, "text", HEADER),
    "PersistenceMode": Call(_EVER, "uint", HEADER),
    "ComputeMode": Call(_EVER, "uint", HEADER),
    "MultiGpuBoard": Call(_EVER, "uint", HEADER),
    "Architecture": Call(_EVER, "uint", HEADER),
    "CudaComputeCapability": Call(_EVER, "int int", HEADER),
    # Utilization and memory
    "UtilizationRates": Call(_EVER, "uint uint", f"{HEADER}, {RECORDED}", mig=False),
    "EncoderUtilization": Call(_EVER, "uint uint", f"{HEADER}, {RECORDED}", mig=False),
    "DecoderUtilization": Call(_EVER, "uint uint", f"{HEADER}, {RECORDED}", mig=False),
    "JpgUtilization": Call(_G.AMPERE, "uint uint", f"{HEADER}; {RECORDED}; since when: {ASSUMED}", mig=False),
    "OfaUtilization": Call(_G.AMPERE, "uint uint", f"{HEADER}; {RECORDED}; since when: {ASSUMED}", mig=False),
    "MemoryInfo": Call(_EVER, "ullong ullong ullong ullong", f"{HEADER}; {OTHERS}: not on GB10", needs="memory"),
    "BAR1MemoryInfo": Call(_EVER, "ullong ullong ullong", f"{HEADER}; not on GB10: {ASSUMED}", needs="memory"),
    "Samples": Call(_EVER, "list", HEADER, mig=False),
    # Power, temperature, clocks
    "PowerUsage": Call(_EVER, "uint", HEADER, needs="sensors"),
    "TotalEnergyConsumption": Call(_G.VOLTA, "ullong", HEADER, needs="sensors"),
    "EnforcedPowerLimit": Call(_EVER, "uint", f"{HEADER}; {OTHERS}: not on GB10", needs="limits"),
    "PowerManagementLimit": Call(_EVER, "uint", HEADER, needs="limits"),
    "PowerManagementDefaultLimit": Call(_EVER, "uint", HEADER, needs="limits"),
    "PowerManagementLimitConstraints": Call(_EVER, "uint uint", HEADER, needs="limits"),
    "Temperature": Call(_EVER, "uint", f"{HEADER}, deprecated since 13.0", needs="sensors"),
    "TemperatureV": Call(_EVER, "int", HEADER, needs="sensors"),
    "TemperatureThreshold": Call(
        _EVER, "uint", f"{HEADER}: superseded since Ada; {RECORDED}: T.Limit alone on an H200", "sensors", until=_G.ADA
    ),
    "TemperatureThreshold.2": Call(
        _EVER, "uint", f"{RECORDED}: N/A without memory of high bandwidth", "hbm", until=_G.ADA
    ),
    "MarginTemperature": Call(_G.ADA, "int", f"{HEADER}; {RECORDED}; since when: {ASSUMED}", needs="sensors"),
    "ClockInfo": Call(_EVER, "uint", HEADER, needs="sensors"),
    "ClockInfo.2": Call(_EVER, "uint", f"{HEADER}; not on GB10: {ASSUMED}", needs="memory"),
    "MaxClockInfo": Call(_EVER, "uint", HEADER, needs="sensors"),
    "MaxClockInfo.2": Call(_EVER, "uint", f"{HEADER}; not on GB10: {ASSUMED}", needs="memory"),
    "CurrentClocksEventReasons": Call(_EVER, "ullong", HEADER, needs="sensors"),
    "CurrentClocksThrottleReasons": Call(_EVER, "ullong", HEADER, needs="sensors"),
    "PerformanceState": Call(_EVER, "uint", HEADER, needs="sensors"),
    "NumFans": Call(_EVER, "uint", f"{HEADER}; {RECORDED}: N/A on T4, A100 SXM, H200", needs="fan"),
    "FanSpeed": Call(_EVER, "uint", f"{HEADER}; {RECORDED}", needs="fan"),
    "FanSpeedRPM": Call(_EVER, "uint", HEADER, needs="fan"),
    # PCIe and NVLink
    "CurrPcieLinkGeneration": Call(_EVER, "uint", HEADER),
    "CurrPcieLinkWidth": Call(_EVER, "uint", HEADER),
    "PcieReplayCounter": Call(_EVER, "uint", HEADER),
    "NvLinkState": Call(_G.PASCAL, "uint", HEADER, needs="nvlink"),
    "NvLinkVersion": Call(_G.PASCAL, "uint", HEADER, needs="nvlink"),
    "NvLinkErrorCounter": Call(_G.PASCAL, "ullong", HEADER, needs="nvlink"),
    "MaxPcieLinkGeneration": Call(_EVER, "uint", HEADER),
    "MaxPcieLinkWidth": Call(_EVER, "uint", HEADER),
    "GpuFabricInfoV": Call(
        _G.HOPPER, "uint uint uint uint", f"{HEADER}; {RECORDED}: Completed on an H200, N/A on a GeForce", "fabric"
    ),
    # Errors and events
    "RepairStatus": Call(_G.AMPERE, "uint uint", f"{HEADER}; {RECORDED}: No on an RTX 3080; since when: {ASSUMED}"),
    "UnrepairableMemoryFlag_v1": Call(_G.HOPPER, "uint", f"{HEADER}; {RECORDED}: No on an H200", needs="ecc"),
    "SramEccErrorStatus": Call(
        _G.AMPERE, " ".join(["ullong"] * 11 + ["uint"]), f"{HEADER}; {RECORDED}; since when: {ASSUMED}", needs="ecc"
    ),
    "EccMode": Call(_EVER, "uint uint", HEADER, needs="ecc"),
    "TotalEccErrors": Call(_EVER, "ullong", HEADER, needs="ecc"),
    "MemoryErrorCounter": Call(_EVER, "ullong", HEADER, needs="ecc"),
    **{
        f"{call}.{kind}.0": Call(
            _EVER, "ullong", f"{HEADER}; {RECORDED}: N/A with MIG, of volatile errors", "ecc", False
        )
        for call in ("TotalEccErrors", "MemoryErrorCounter")
        for kind in (0, 1)
    },
    "RetiredPages": Call(_EVER, "list", f"{HEADER}; {RECORDED}: N/A since Ampere", needs="ecc", until=_G.TURING),
    "RetiredPagesPendingStatus": Call(_EVER, "uint", f"{HEADER}; {RECORDED}", needs="ecc", until=_G.TURING),
    "RemappedRows": Call(_G.AMPERE, "uint uint uint uint", f"{HEADER}, {RECORDED}", needs="ecc", mig=False),
    "SupportedEventTypes": Call(_EVER, "ullong", f"{HEADER}; not on a GeForce: {ASSUMED}", needs="ecc"),
    # Processes
    "ComputeRunningProcesses": Call(_EVER, "list", HEADER),
    "GraphicsRunningProcesses": Call(_EVER, "list", HEADER),
    "MPSComputeRunningProcesses": Call(_G.VOLTA, "list", HEADER),
    "ProcessUtilization": Call(_EVER, "list", f"{HEADER}: NOT_FOUND where nothing is newer", mig=False),
    # MIG and GPM
    "MigMode": Call(_G.AMPERE, "uint uint", f"{HEADER}; {RECORDED}: N/A on A10G, RTX 3080", needs="mig"),
    "MaxMigDeviceCount": Call(_G.AMPERE, "uint", HEADER, needs="mig"),
    "GpuInstanceId": Call(_G.AMPERE, "uint", HEADER, needs="mig"),
    "ComputeInstanceId": Call(_G.AMPERE, "uint", HEADER, needs="mig"),
    "Attributes": Call(_G.AMPERE, "uint uint uint uint uint uint uint uint ullong", HEADER, needs="mig"),
    "GpmQueryDeviceSupport": Call(_G.HOPPER, "uint", f"{HEADER}; of GeForce and GB10: {ASSUMED}", needs="gpm"),
    "GpmCounter": Call(_G.HOPPER, "double", f"{HEADER}; with MIG by instance alone: {ASSUMED}", "gpm", mig=False),
    # Fields: unless noted, the source of the type is the mock's bridge
    **{
        f"FieldValues.{field}": Call(
            _EVER, "ullong", f"{HEADER}, {RECORDED}, {MOCK}", "ecc", mig="VOL" not in name, name=f"ECC_{name}"
        )
        for field, name in (
            *((3, "SBE_VOL_TOTAL"), (4, "DBE_VOL_TOTAL"), (5, "SBE_AGG_TOTAL"), (6, "DBE_AGG_TOTAL")),
            *((22, "SBE_AGG_DEV"), (23, "DBE_AGG_DEV")),
        )
    },
    **{
        f"FieldValues.{field}": Call(_EVER, form, f"{RECORDED}, {MOCK}", "ecc", until=_G.TURING, name=f"RETIRED_{name}")
        for field, name, form in ((29, "SBE", "ullong"), (30, "DBE", "ullong"), (31, "PENDING", "uint"))
    },
    **{
        f"FieldValues.{field}": Call(
            _G.PASCAL,
            "ullong",
            f"{HEADER}; {OTHERS} (datadog-agent #55966): always 0 since Hopper; type: {ASSUMED}",
            needs="nvlink",
            name=f"NVLINK_{name}_ERROR_COUNT_TOTAL",
        )
        for field, name in ((38, "CRC_FLIT"), (45, "CRC_DATA"), (52, "REPLAY"), (59, "RECOVERY"))
    },
    **{
        f"FieldValues.{field}": Call(
            _EVER, "ullong", f"{HEADER}: nanoseconds; {MOCK}", "sensors", name=f"PERF_POLICY_{name}"
        )
        for field, name in (
            *((74, "POWER"), (75, "THERMAL"), (76, "SYNC_BOOST"), (77, "BOARD_LIMIT"), (78, "LOW_UTILIZATION")),
            *((79, "RELIABILITY"), (80, "TOTAL_APP_CLOCKS"), (81, "TOTAL_BASE_CLOCKS")),
        )
    },
    "FieldValues.82": Call(
        _G.VOLTA, "uint", f"{RECORDED}: N/A without memory of high bandwidth; {MOCK}", "hbm", name="MEMORY_TEMP"
    ),
    "FieldValues.83": Call(_G.VOLTA, "ullong", f"{HEADER}, {MOCK}", "sensors", name="TOTAL_ENERGY_CONSUMPTION"),
    "FieldValues.91": Call(_G.PASCAL, "uint", f"{HEADER}, {MOCK}", "nvlink", name="NVLINK_LINK_COUNT"),
    "FieldValues.94": Call(_EVER, "uint", f"{HEADER}, {MOCK}", name="PCIE_REPLAY_COUNTER"),
    **{
        f"FieldValues.{field}": Call(
            _G.AMPERE, "ullong", f"{HEADER}, {MOCK}; since when: {ASSUMED}", "nvlink", name=f"NVLINK_THROUGHPUT_{name}"
        )
        for field, name in ((138, "DATA_TX"), (139, "DATA_RX"), (140, "RAW_TX"), (141, "RAW_RX"))
    },
    **{
        f"FieldValues.{field}": Call(
            _G.AMPERE, "uint", f"{HEADER}, {RECORDED}, {MOCK}", "ecc", mig=False, name=f"REMAPPED_{name}"
        )
        for field, name in ((142, "COR"), (143, "UNC"), (144, "PENDING"), (145, "FAILURE"))
    },
    **{
        f"FieldValues.{field}": Call(
            _G.HOPPER,
            "ullong",
            f"{HEADER}: removed on Blackwell; scope: the link ({OTHERS}); {MOCK}; since when: {ASSUMED}",
            needs="nvlink",
            until=_G.HOPPER,
            name=f"NVLINK_ERROR_DL_{name}",
        )
        for field, name in ((161, "REPLAY"), (162, "RECOVERY"), (163, "CRC"))
    },
    "FieldValues.165": Call(_G.PASCAL, "uint", f"{HEADER}; scope: the link; {MOCK}", "nvlink", name="NVLINK_GET_STATE"),
    "FieldValues.170": Call(_G.HOPPER, "uint", f"{HEADER}; type: {ASSUMED}", "c2c", name="C2C_LINK_COUNT"),
    **{
        f"FieldValues.{field}": Call(
            _G.HOPPER, "ullong", f"{HEADER}; scope: the link, type: {ASSUMED}", "c2c", name=f"C2C_LINK_ERROR_{name}"
        )
        for field, name in ((231, "INTR"), (232, "REPLAY"), (233, "REPLAY_B2B"))
    },
    **{
        f"FieldValues.{field}": Call(
            _G.AMPERE, "uint", f"{HEADER}; type, since when: {ASSUMED}", "sensors", name=f"PCIE_COUNT_{name}"
        )
        for field, name in (
            *((173, "CORRECTABLE_ERRORS"), (174, "NAKS_RECEIVED"), (175, "RECEIVER_ERROR"), (176, "BAD_TLP")),
            *((177, "NAKS_SENT"), (178, "BAD_DLLP"), (179, "NON_FATAL_ERROR"), (180, "FATAL_ERROR")),
            *((181, "UNSUPPORTED_REQ"), (182, "LCRC_ERROR"), (183, "LANE_ERROR")),
        )
    },
    **{
        f"FieldValues.{field}": Call(
            _G.BLACKWELL,
            "ullong",
            f"{HEADER}: NVLink 5; {MOCK}; the sum of all links: {OTHERS} (DCGM: NvmlFieldRequiresNvLinkAggregate)",
            needs="nvlink",
            name=f"NVLINK_COUNT_{name}",
        )
        for field, name in (
            *((206, "MALFORMED_PACKET_ERRORS"), (207, "BUFFER_OVERRUN_ERRORS"), (208, "RCV_ERRORS")),
            *((209, "RCV_REMOTE_ERRORS"), (210, "RCV_GENERAL_ERRORS"), (211, "LOCAL_LINK_INTEGRITY_ERRORS")),
            *((212, "XMIT_DISCARDS"), (213, "LINK_RECOVERY_SUCCESSFUL_EVENTS"), (214, "LINK_RECOVERY_FAILED_EVENTS")),
            *((215, "LINK_RECOVERY_EVENTS"), (219, "EFFECTIVE_ERRORS"), (221, "SYMBOL_ERRORS")),
        )
    },
    "FieldValues.230": Call(
        _G.AMPERE, "uint", f"{HEADER}; {RECORDED}; type, since when: {ASSUMED}", name="GET_GPU_RECOVERY_ACTION"
    ),
    "FieldValues.185": Call(_G.AMPERE, "uint", f"{HEADER} (except GA100), {MOCK}", "average", name="POWER_AVERAGE"),
    **{
        f"FieldValues.{field}": Call(_EVER, "uint", f"{HEADER}, {MOCK}", needs, name=f"POWER_{name}")
        for field, name, needs in (
            *((186, "INSTANT", "sensors"), (187, "MIN_LIMIT", "limits"), (188, "MAX_LIMIT", "limits")),
            *((189, "DEFAULT_LIMIT", "limits"), (190, "CURRENT_LIMIT", "limits")),
        )
    },
    **{
        f"FieldValues.{field}": Call(
            _G.ADA, "int", f"{HEADER}: Ada and later; {RECORDED}; {MOCK}", "sensors", name=f"TEMPERATURE_{name}_TLIMIT"
        )
        for field, name in ((193, "SHUTDOWN"), (194, "SLOWDOWN"), (195, "MEM_MAX"), (196, "GPU_MAX"))
    },
    **{
        f"FieldValues.{field}": Call(
            _G.ADA,
            "uint",
            f'{HEADER}: "Value can be wrapped"; 32 bits: the driver\'s own counter is an NvU32 (ctrl2080bus.h of '
            f"open-gpu-kernel-modules), {OTHERS} take .uiVal; L40S: dcgm-exporter #721; before Ada: {ASSUMED}",
            needs="sensors",
            name=f"PCIE_COUNT_{name}_BYTES",
        )
        for field, name in ((197, "TX"), (198, "RX"))
    },
}

# Calls that a MIG instance supports (nvml.h 12.9).
OF_PARTS = frozenset(
    {
        *("Name", "UUID", "GpuInstanceId", "ComputeInstanceId", "Attributes", "MemoryInfo", "BAR1MemoryInfo"),
        *("ComputeRunningProcesses", "GraphicsRunningProcesses"),
    }
)


class Board(NamedTuple):
    """The properties of a card.

    Attributes:
        generation: The generation of its chip.
        has: The features that calls need.
        divided: Whether it is divided into MIG instances.
    """

    generation: Generation
    has: frozenset[str]
    divided: bool = False


def refuted(gpu: Mapping[str, Value], board: Board) -> list[str]:
    """Yield the answers of a GPU that such a board cannot give, each with its source."""
    return [problem for line, value in gpu.items() for problem in _problems(line, value, board)]


def _problems(line: str, value: Value, board: Board) -> Iterator[str]:
    part = re.match(r"(mig|gi)\d+\.", line)
    key = line[part.end() :] if part else line
    call = known(key)
    if call is None:
        yield f"{line}: nothing is known of this call"
        return
    if not call.since <= board.generation <= call.until:
        yield f"{line}: {call.since.name} to {call.until.name} answer it, not {board.generation.name} ({call.source})"
    if call.needs and call.needs not in board.has:
        yield f"{line}: it needs {call.needs} ({call.source})"
    if part and part[1] == "mig" and key.partition(".")[0] not in OF_PARTS:
        yield f"{line}: MIG instances do not answer it"
    if not part and board.divided and not call.mig:
        yield f"{line}: not with MIG ({call.source})"
    if not str(value).startswith("!") and not _fits(key, value, call.form):
        yield f"{line}: {value} is no {call.form} ({call.source})"


def known(line: str) -> Call | None:
    """Return the properties of the call of a line, with all its arguments or fewer."""
    while line not in CALLS and "." in line:
        line = line.rpartition(".")[0]
    return CALLS.get(line)


# By type, the lowest value and the one after the highest.
RANGES = {"uint": (0, 2**32), "int": (-(2**31), 2**31), "ullong": (0, 2**64), "double": (-(2**63), 2**64)}


def _fits(key: str, value: Value, form: str) -> bool:
    if form in ("text", "list"):
        return isinstance(value, str)
    words = _words(value).split()
    types = form.split()
    if key.startswith("FieldValues"):
        types.insert(0, form)
        if words[0] != form:
            return False
        words, types = words[1:], types[1:]
    starts = [int(word.partition("+")[0], 0) for word in words]
    return len(starts) == len(types) and all(
        RANGES[each][0] <= start < RANGES[each][1] for each, start in zip(types, starts)
    )


# -- cards


def _power(typical: int, enforced: int, least: int) -> Iterator[tuple[str, Value]]:
    """Return power in milliwatts, and the resulting energy in millijoules."""
    energy = moving(5_000_000_000, typical)
    yield "PowerUsage", typical
    yield "TotalEnergyConsumption", energy
    yield "FieldValues.83", f"ullong {energy}"
    for call in ("EnforcedPowerLimit", "PowerManagementLimit", "PowerManagementDefaultLimit"):
        yield call, enforced
    yield "PowerManagementLimitConstraints", (least, enforced)


def _clocks(now: Sequence[int], most: Sequence[int]) -> Iterator[tuple[str, Value]]:
    """Return the clocks of graphics, SM, memory and video in MHz."""
    for domain in range(4):
        yield f"ClockInfo.{domain}", now[domain]
        yield f"MaxClockInfo.{domain}", most[domain]


def _card(name: str, index: int, bus: int, power: int, least: int, clocks: Sequence[int] | None = None) -> Gpu:
    """Return what follows from the table of cards, with milliwatts, the lowest limit, and clocks, else the highest."""
    card = CARDS[name]
    return {
        **_identity(index, card.model, bus, card.device),
        **dict(_power(power, round(card.limit * 1000), least)),
        **dict(_clocks(clocks or card.clocks, card.clocks)),
        "CudaComputeCapability": card.capability,
        "CurrPcieLinkGeneration": card.pcie[0],
        "CurrPcieLinkWidth": card.pcie[1],
        "MaxPcieLinkGeneration": card.pcie[0],
        "MaxPcieLinkWidth": card.pcie[1],
    }


def _identity(index: int, name: str, bus: int, device: int) -> Gpu:
    return {
        "Name": name,
        "UUID": f"GPU-{device:08x}-0000-4000-8000-{index:012x}",
        "Serial": f"16501230{index:05d}",
        "MinorNumber": index,
        "PciInfo": f"0000:{bus:02x}:00.0 {device << 16 | 0x10DE:#010x} 0x16c110de",
        "VbiosVersion": "96.00.74.00.01",
        "PersistenceMode": 1,
        "ComputeMode": 0,
        "MultiGpuBoard": 0,
    }


def _engines() -> Gpu:
    """Return the utilization of encoder, decoder, JPEG and optical flow, with the sampling period in microseconds."""
    return {
        "EncoderUtilization": (3, 167_000),
        "DecoderUtilization": (11, 167_000),
        "JpgUtilization": (0, 167_000),
        "OfaUtilization": (0, 167_000),
    }


def _reliable() -> Gpu:
    """Return ECC errors: corrected and uncorrected, since the driver was loaded and in total."""
    return {
        "EccMode": (1, 1),
        "TotalEccErrors.0.0": 2,
        "TotalEccErrors.0.1": 37,
        "TotalEccErrors.1.0": 0,
        "TotalEccErrors.1.1": 1,
        "FieldValues.3": "ullong 2",
        "FieldValues.4": "ullong 0",
        "FieldValues.5": "ullong 37",
        "FieldValues.6": "ullong 1",
        "SupportedEventTypes": 0x1FF,
    }


def p100(index: int = 0) -> Gpu:
    """Pascal: without a counter of energy, which Volta introduced; otherwise like Turing."""
    lacks = ("TotalEnergyConsumption", "FieldValues.83", "MPS")
    return {
        **{line: value for line, value in t4(index).items() if not line.startswith(lacks)},
        **_identity(index, "Tesla P100-PCIE-16GB", 0x82 + index, 0x15F8),
        **dict(_clocks((1328, 1328, 715, 1189), (1328, 1328, 715, 1189))),
        "Architecture": Generation.PASCAL.value,
        "CudaComputeCapability": (6, 0),
        "PowerUsage": 142_700,
        "EnforcedPowerLimit": 250_000,
        "PowerManagementLimit": 250_000,
        "PowerManagementDefaultLimit": 250_000,
        "PowerManagementLimitConstraints": (125_000, 250_000),
        "MemoryInfo": (16_384 * MIB, 103 * MIB, 9_281 * MIB, 7_000 * MIB),
        "CurrPcieLinkWidth": 16,
    }


def t4(index: int = 0) -> Gpu:
    """Turing, for inference: retired pages, temperature limits, and no engines except encoder and decoder."""
    engines = _engines()
    return {
        **_card("t4", index, 0x1E + index, 38_120, 60_000, (1065, 1065, 5000, 990)),
        **_reliable(),
        "Architecture": Generation.TURING.value,
        "UtilizationRates": (41, 17),
        "EncoderUtilization": engines["EncoderUtilization"],
        "DecoderUtilization": engines["DecoderUtilization"],
        "MemoryInfo": (CARDS["t4"].memory, 449 * MIB, 9_911 * MIB, 5_000 * MIB),
        "BAR1MemoryInfo": (256 * MIB, 251 * MIB, 5 * MIB),
        "Temperature.0": 52,
        "TemperatureV.0": 52,
        "TemperatureThreshold.0": 96,
        "TemperatureThreshold.1": CARDS["t4"].slowdown,
        "TemperatureThreshold.3": 85,
        "CurrentClocksEventReasons": 4,
        "CurrentClocksThrottleReasons": 4,
        "PerformanceState": 0,
        "CurrPcieLinkWidth": 8,
        "PcieReplayCounter": 0,
        "FieldValues.94": "uint 0",
        "FieldValues.29": "ullong 1",
        "FieldValues.30": "ullong 2",
        "FieldValues.31": "uint 0",
        "FieldValues.74": f"ullong {moving(12_000_000_000, 250_000_000.0)}",
        "FieldValues.75": "ullong 0",
        "RetiredPages.0": "0x1a000",
        "RetiredPages.1": "0x2b000 0x2c000",
        "RetiredPagesPendingStatus": 0,
        "ComputeRunningProcesses": "",
        "GraphicsRunningProcesses": "",
    }


def geforce(index: int = 0) -> Gpu:
    """A consumer card: two fans, no ECC memory, no NVLink, no serial number."""
    gpu: Gpu = {
        **_card("rtx4090", index, 0x01 + index, 287_450, 150_000, (2520, 2520, 10501, 1980)),
        **_engines(),
        "Architecture": Generation.ADA.value,
        "UtilizationRates": (97, 44),
        "MemoryInfo": (CARDS["rtx4090"].memory, 350 * MIB, 14_214 * MIB, 10_000 * MIB),
        "BAR1MemoryInfo": (32_768 * MIB, 32_758 * MIB, 10 * MIB),
        "Temperature.0": 64,
        "TemperatureV.0": 64,
        "TemperatureThreshold.0": 99,
        "TemperatureThreshold.1": CARDS["rtx4090"].slowdown,
        "TemperatureThreshold.3": 84,
        "CurrentClocksEventReasons": 0,
        "CurrentClocksThrottleReasons": 0,
        "PerformanceState": 2,
        "NumFans": 2,
        "FanSpeed": 45,
        "FanSpeed.0": 45,
        "FanSpeed.1": 47,
        "FanSpeedRPM.0": 1620,
        "FanSpeedRPM.1": 1690,
        "PcieReplayCounter": 0,
        "FieldValues.94": "uint 0",
        "ComputeRunningProcesses": "",
        "GraphicsRunningProcesses": "",
    }
    del gpu["Serial"]
    return gpu


def a100(index: int = 0) -> Gpu:
    """Ampere, for training: remapped rows, NVLink, temperature of the memory."""
    return {
        **_card("a100", index, 0x07 + 8 * index, 312_340, 100_000, (1410, 1410, 1593, 1275)),
        **_reliable(),
        **_engines(),
        **dict(_nvlink(CARDS["a100"].links, 3)),
        "Architecture": Generation.AMPERE.value,
        "UtilizationRates": (88, 53),
        "MemoryInfo": (CARDS["a100"].memory, 693 * MIB, 41_227 * MIB, 40_000 * MIB),
        "BAR1MemoryInfo": (131_072 * MIB, 131_071 * MIB, 1 * MIB),
        "Temperature.0": 61,
        "TemperatureV.0": 61,
        "TemperatureThreshold.0": 92,
        "TemperatureThreshold.1": CARDS["a100"].slowdown,
        "TemperatureThreshold.2": 95,
        "TemperatureThreshold.3": 85,
        "FieldValues.82": "uint 72",
        "CurrentClocksEventReasons": 0,
        "CurrentClocksThrottleReasons": 0,
        "PerformanceState": 0,
        "PcieReplayCounter": 5,
        "FieldValues.94": "uint 5",
        **{f"FieldValues.{policy}": "ullong 0" for policy in range(74, 82)},
        "FieldValues.74": f"ullong {moving(90_000_000_000, 125_000_000.0)}",
        "FieldValues.186": "uint 330000",
        "FieldValues.187": "uint 100000",
        "FieldValues.188": "uint 400000",
        "FieldValues.189": "uint 400000",
        "FieldValues.190": "uint 400000",
        **{f"FieldValues.{field}": "uint 0" for field in (*range(173, 184), 230)},
        "FieldValues.173": "uint 7",
        "FieldValues.22": "ullong 30",
        "FieldValues.23": "ullong 0",
        "RepairStatus": (0, 0),
        "SramEccErrorStatus": (0,) * 12,
        "RemappedRows": (2, 1, 0, 0),
        "FieldValues.142": "uint 2",
        "FieldValues.143": "uint 1",
        "FieldValues.144": "uint 0",
        "FieldValues.145": "uint 0",
        "MigMode": (0, 0),
        "MaxMigDeviceCount": 7,
        "ComputeRunningProcesses": "",
        "GraphicsRunningProcesses": "",
    }


def h100(index: int = 0) -> Gpu:
    """Hopper: GPM, temperature margins instead of limits, PCIe byte counters, and NVLink errors by link only."""
    gpu = {
        **a100(index),
        **_card("h100", index, 0x1A + index, 512_600, 200_000),
        **dict(_nvlink(CARDS["h100"].links, 4)),
        "Architecture": Generation.HOPPER.value,
        "MemoryInfo": (CARDS["h100"].memory, 557 * MIB, 31_002 * MIB, 50_000 * MIB),
        "MarginTemperature": 26,
        "FieldValues.185": "uint 512600",
        "FieldValues.186": "uint 548000",
        "FieldValues.187": "uint 200000",
        "FieldValues.188": "uint 700000",
        "FieldValues.189": "uint 700000",
        "FieldValues.190": "uint 700000",
        "FieldValues.193": "int -8",
        "FieldValues.194": "int -2",
        "FieldValues.195": "int 0",
        "FieldValues.196": "int 0",
        "FieldValues.197": f"uint {moving(700_000_000, 300_000_000.0)}",
        "FieldValues.198": f"uint {moving(900_000_000, 100_000_000.0)}",
        **{f"FieldValues.{total}": "ullong 0" for total in (38, 45, 52, 59)},
        **dict(_link_errors(18)),
        "UnrepairableMemoryFlag_v1": 0,
        "GpuFabricInfoV": (0, 0, FABRIC_COMPLETED, 0),
        "GpmQueryDeviceSupport": 1,
        **{f"GpmCounter.{metric}": moving(0, rate) for metric, rate in GPM_RATES.items()},
    }
    return {call: value for call, value in gpu.items() if not call.startswith("TemperatureThreshold")}


# GPM metrics that a busy GPU has by themselves: percent, and MiB/s from 20 on.
GPM_RATES: Mapping[int, float] = {
    1: 88,
    2: 76,
    3: 41,
    4: 21,
    5: 62,
    6: 1,
    7: 60,
    8: 0,
    9: 2,
    10: 53,
    11: 4,
    12: 12,
    13: 2,
    20: 286,
    21: 95,
    60: 18 * 1024,
    61: 18 * 2048,
}


def _nvlink(links: int, version: int, errors: bool = True) -> Iterator[tuple[str, Value]]:
    """Return links that each send 2 GiB/s and receive 1 GiB/s (in KiB), with four kinds of errors before NVLink 5."""
    for fields, of in ((("138", "140"), 2), (("139", "141"), 1)):
        for field in fields:
            rate = of * 1024 * 1024
            yield f"FieldValues.{field}.{ALL_LINKS}", f"ullong {moving(1_000_000 * links, rate * links)}"
            for link in range(links):
                scope = f".{link}" if link else ""
                yield f"FieldValues.{field}{scope}", f"ullong {moving(1_000_000, rate)}"
    for kind, total in enumerate((38, 45, 52, 59) if errors else ()):
        yield f"FieldValues.{total}", f"ullong {kind}"
    yield "FieldValues.91", f"uint {links}"
    for link in range(links):
        yield f"NvLinkState.{link}", 1
        yield f"FieldValues.165{f'.{link}' if link else ''}", "uint 1"
        yield f"NvLinkVersion.{link}", version
        for counter in range(4) if errors else ():
            yield f"NvLinkErrorCounter.{link}.{counter}", counter if link == 0 else 0


FABRIC_COMPLETED = 3  # `NVML_GPU_FABRIC_STATE_COMPLETED`


def _link_errors(links: int) -> Iterator[tuple[str, Value]]:
    """Return the errors of each link: 2 replays and a recovery of the first one, and a CRC error of each."""
    for link in range(links):
        scope = f".{link}" if link else ""
        yield f"FieldValues.161{scope}", f"ullong {0 if link else 2}"
        yield f"FieldValues.162{scope}", f"ullong {0 if link else 1}"
        yield f"FieldValues.163{scope}", "ullong 1"


def b200(index: int = 0) -> Gpu:
    """Blackwell: NVLink 5, with errors of all links together."""
    hopper = {f"FieldValues.{field}" for field in (38, 45, 52, 59, 161, 162, 163)}
    lacks = tuple(f"{field}." for field in hopper)
    gpu = {line: value for line, value in h100(index).items() if line not in hopper and not line.startswith(lacks)}
    return {
        **gpu,
        **_card("b200", index, 0x1B + index, 812_300, 200_000),
        **dict(_nvlink(CARDS["b200"].links, 5, errors=False)),
        "Architecture": Generation.BLACKWELL.value,
        "MemoryInfo": (CARDS["b200"].memory, 757 * MIB, 92_602 * MIB, 90_000 * MIB),
        **{f"FieldValues.{field}.{ALL_LINKS}": f"ullong {field - 200}" for field in (*range(206, 216), 219, 221)},
    }


def gh200(index: int = 0) -> Gpu:
    """Hopper on a module with a CPU, with the power of module and memory.

    Each link from chip to chip had 1 CRC error, 2 replays, and no repeated one.
    """
    return {
        **h100(index),
        **_identity(index, "NVIDIA GH200 144G HBM3e", 0x09 + index, 0x2348),
        "FieldValues.185.1": "uint 720000",
        "FieldValues.185.2": "uint 97690",
        "FieldValues.170": "uint 10",
        **{
            f"FieldValues.{field}{f'.{link}' if link else ''}": f"ullong {count}"
            for field, count in ((231, 1), (232, 2), (233, 0))
            for link in range(10)
        },
    }


def mig(gpu: Mapping[str, Value], index: int, slots: Mapping[int, tuple[int, int]]) -> Gpu:
    """Divide the GPU into seven parts. `slots` maps the used ones to their GPU and compute instance.

    Each part uses (slot + 1) of 10 GiB. The whole GPU reports no utilization.
    """
    kept: Gpu = {line: value for line, value in gpu.items() if (call := known(line)) is not None and call.mig}
    kept |= {"MigMode": (1, 1), "MaxMigDeviceCount": 7}
    for slot, (gpu_instance, compute_instance) in slots.items():
        used = (slot + 1) * 1024 * MIB
        parts: Gpu = {
            "Name": f"{gpu['Name']} MIG 1g.10gb",
            "UUID": f"MIG-00000000-0000-5000-8000-{index:06x}{slot:06x}",
            "GpuInstanceId": gpu_instance,
            "ComputeInstanceId": compute_instance,
            "Attributes": (16, 1, 1, 0, 1, 0, 1, 1, 9984),
            "MemoryInfo": (9_984 * MIB, 16 * MIB, 9_968 * MIB - used, used),
            "BAR1MemoryInfo": (16_383 * MIB, 16_382 * MIB, 1 * MIB),
            "ComputeRunningProcesses": "",
            "GraphicsRunningProcesses": "",
        }
        kept |= {f"mig{slot}.{call}": value for call, value in parts.items()}
        if "GpmQueryDeviceSupport" in gpu:
            kept |= {f"gi{gpu_instance}.GpmCounter.{metric}": moving(0, 10 * slot + 5) for metric in (1, 2, 10)}
    return kept


def unified(index: int = 0) -> Gpu:
    """A GPU that shares the memory of the CPU: no memory of its own, no power limits."""
    lacks = (
        "MemoryInfo",
        "BAR1",
        "NumFans",
        "Fan",
        "EnforcedPower",
        "PowerManagement",
        "ClockInfo.2",
        "MaxClockInfo.2",
    )
    gpu = {line: value for line, value in geforce(index).items() if not line.startswith((*lacks, "TemperatureThres"))}
    return {
        **gpu,
        "Name": "NVIDIA GB10",
        "Architecture": Generation.BLACKWELL.value,
        "CudaComputeCapability": (12, 1),
        "UtilizationRates": (97, 0),
        "PowerUsage": 14_020,
        "Temperature.0": 48,
        "TemperatureV.0": 48,
        "CurrPcieLinkGeneration": 1,
        "CurrPcieLinkWidth": 1,
        "MaxPcieLinkGeneration": 5,
        "MaxPcieLinkWidth": 16,
    }


def thor(index: int = 0) -> Gpu:
    """A Jetson whose NVML answers like that of GB10, with a UUID without "GPU-" (go-nvlib).

    With JetPack 7.0, NVML has no temperature, power, clock and performance state; that of 7.2 has the first two.
    """
    return {**unified(index), "Name": "NVIDIA Thor", "UUID": f"7ab2f19e-1c0d-5e6f-8a9b-{index:012x}"}


def orin(index: int = 0) -> Gpu:
    """A Jetson: its name, and a UUID without "GPU-" (go-nvlib; intelligence-per-watt #40)."""
    return {"Name": "Orin (nvgpu)", "UUID": f"54d0709b-558d-5a59-9c65-{index:012x}"}


def wsl(index: int = 0) -> Gpu:
    """A GPU in WSL: calls that the Windows driver does not support fail with an unknown error."""
    failing = dict.fromkeys(("UtilizationRates", "ComputeRunningProcesses", "GraphicsRunningProcesses"), refused(999))
    lacks = ("Fan", "NumFans", "FieldValues", "Encoder", "Decoder", "Jpg", "Ofa")
    return {call: value for call, value in geforce(index).items() if not call.startswith(lacks)} | failing


def vgpu(index: int = 0) -> Gpu:
    """A vGPU of a virtual machine: utilization and memory, no properties of the board."""
    kept = ("Name", "UUID", "PciInfo", "MinorNumber", "UtilizationRates", "Encoder", "Decoder", "MemoryInfo", "Compute")
    gpu = {call: value for call, value in a100(index).items() if call.startswith(kept)}
    return {**gpu, "Name": "GRID A100D-10C", "MemoryInfo": (10_240 * MIB, 0, 7_240 * MIB, 3_000 * MIB)}


_BOARD = frozenset({"memory", "sensors", "limits"})
_DATA_CENTRE = _BOARD | {"ecc", "inforom"}
_SXM = _DATA_CENTRE | {"hbm", "nvlink", "mig"}

# The properties of each card.
BOARDS: Mapping[Callable[[], Gpu], Board] = {
    p100: Board(Generation.PASCAL, _DATA_CENTRE),
    t4: Board(Generation.TURING, _DATA_CENTRE),
    geforce: Board(Generation.ADA, _BOARD | {"fan", "average"}),
    a100: Board(Generation.AMPERE, _SXM),
    h100: Board(Generation.HOPPER, _SXM | {"gpm", "average", "fabric"}),
    gh200: Board(Generation.HOPPER, _SXM | {"gpm", "average", "fabric", "c2c"}),
    b200: Board(Generation.BLACKWELL, _SXM | {"gpm", "average", "fabric"}),
    unified: Board(Generation.BLACKWELL, frozenset({"sensors"})),
    thor: Board(Generation.BLACKWELL, frozenset({"sensors"})),
    orin: Board(Generation.AMPERE, frozenset()),
    wsl: Board(Generation.ADA, _BOARD),
    vgpu: Board(Generation.AMPERE, frozenset({"memory"})),
}
