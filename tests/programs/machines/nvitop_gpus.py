"""Print nvitop's values of all GPUs: one line of JSON for each line of stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from nvitop import NA, Device, PhysicalDevice, libnvml  # type: ignore[import-untyped]


def known(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without the values that nvitop does not know."""
    return {name: value for name, value in report.items() if value is not NA and value is not None}


def of(device: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    rates, memory = device.utilization_rates(), device.memory_info()
    clocks, most = device.clock_infos(), device.max_clock_infos()
    state = device.performance_state()
    nvlink = [each for each in device.nvlink_throughput() if NA not in each]
    return known(
        {
            "name": device.name(),
            "serial": device.serial(),
            "bus": device.bus_id(),
            "general": rates.gpu,
            "memory": rates.memory,
            "encoder": rates.encoder,
            "decoder": rates.decoder,
            "used": memory.used,
            "total": memory.total,
            "temperature": device.temperature(),
            "power": device.power_usage(),
            "limit": device.power_limit(),
            "fan": device.fan_speed(),
            "state": NA if state is NA else int(state.removeprefix("P")),
            "transmit": sum(each.tx for each in nvlink) if nvlink else NA,
            "receive": sum(each.rx for each in nvlink) if nvlink else NA,
            **{f"clock.{domain}": value for domain, value in clocks._asdict().items()},
            **{f"most.{domain}": value for domain, value in most._asdict().items()},
        }
    ), {str(pid): process(each) for pid, each in device.processes().items()}


def process(each: Any) -> dict[str, Any]:
    return known({"used": each.gpu_memory(), "sm": each.gpu_sm_utilization(), "memory": each.gpu_memory_utilization()})


def parts(whole: Any) -> Iterator[Any]:
    """Return the MIG devices. nvitop's list of them ends at the first empty slot."""
    for slot in range(whole.max_mig_device_count()):
        with suppress(libnvml.NVMLError):
            yield whole.mig_device(slot)


wholes = PhysicalDevice.all()
devices = [*wholes, *chain.from_iterable(map(parts, wholes))]
for _ in sys.stdin:
    report = {device.uuid(): of(device) for device in devices}
    print(json.dumps({"driver": Device.driver_version(), "devices": report}), flush=True)
