"""Usage of a device by the observed program, from the process lists of the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.instrumentation.hardware.accelerators.driver import Holders
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f

Shares = Mapping[int, Sequence[float]]  # by PID the mean utilization in percent, in the order of the fields


def usage(users: Holders, own: set[int], shares: Shares | None = None) -> dict[Field, object]:
    """Return the sums over the program's processes by field.

    Args:
        users: All processes that use the device, with their bytes.
        own: The PIDs of the program.
        shares: Utilization by process; None if unknown. A process that is missing used nothing.
    """
    sizes = [size for pid in own if (size := users[pid]) is not None]
    found: dict[Field, object] = {f.PROCESS_MEMORY: sum(sizes)} if sizes else {}
    if shares is not None:
        for column, field in enumerate(f.PROCESS_UTILIZATION):
            found[field] = min(100.0, sum(shares[pid][column] for pid in own if pid in shares))
    return found


def shared_memory(users: Holders, total: int | None) -> dict[Field, object]:
    """Return used and total memory of a GPU that uses the host's memory.

    Used is the sum of its processes, as in nvtop (https://github.com/Syllo/nvtop/issues/511), and unknown if that of
    one of them is, or its PID, which NVML of an Orin leaves out.
    """
    sizes = [size for pid, size in users.items() if pid and size is not None]
    return {f.MEMORY_USED: sum(sizes) if len(sizes) == len(users) else None, f.MEMORY_TOTAL: total}


def mean_shares(samples: Sequence[Sequence[int]]) -> Shares:
    """Return the mean utilization of each process, without implausible samples of PID, time and percents."""
    grouped: dict[int, list[Sequence[int]]] = {}
    for pid, _, *percents in samples:
        if all(0 <= percent <= 100 for percent in percents):
            grouped.setdefault(pid, []).append(percents)
    return {pid: [sum(column) / len(column) for column in zip(*percents)] for pid, percents in grouped.items()}
