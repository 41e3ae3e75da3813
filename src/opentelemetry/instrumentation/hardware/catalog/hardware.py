"""Metrics of hardware components of any type (``hw.*``)."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog import attributes as a
from opentelemetry.instrumentation.hardware.model import Window, counter, gauge, updown

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

HW_ENERGY = counter(
    "hw.energy", "J", a.HW_COMPONENT,
    "Energy used by a component.",
    source="/sys/class/powercap/intel-rapl:*: package (cpu) and dram (memory), where readable; NVML field "
    "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION; i915, xe: hwmon "
    "energy1_input; for a device without an energy counter, the integral of hw.power",
)
HW_POWER = gauge(
    "hw.power", "W", a.HW_COMPONENT,
    "Power drawn by a component.",
    source="nvmlDeviceGetPowerUsage; memory of a GPU, and a module of GPU and CPU: NVML field POWER_AVERAGE; amdgpu: "
    "hwmon power1_average, else power1_input; i915, xe: growth of energy1_input; Apple: macmon gpu_power, "
    "cpu_power, ane_power (npu), ram_power; apple_gpu_stats; gcipuinfo: ipu power, total board power; NVIDIA Grace: "
    "/sys/class/hwmon/*/device/power1_average",
    window=Window.MEAN, opt_in_extras="with DETAIL=sensors all power sensors in /sys/class/hwmon",
)
HW_POWER_PEAK = gauge(
    "hw.power.peak", "W", a.HW_COMPONENT,
    "Highest power sample since the previous collection.",
    source="as hw.power",
    window=Window.PEAK, standard=False,
)
HW_POWER_INSTANT = gauge(
    "hw.power.instant", "W", a.HW_COMPONENT,
    "Power drawn by a component at the newest reading. hw.power of NVIDIA GPUs is a mean of one second.",
    source="NVML field POWER_INSTANT; amdgpu: hwmon power1_input beside power1_average",
    opt_in="gpu", standard=False,
)
HW_POWER_LIMIT = gauge(
    "hw.power.limit", "W", (*a.HW_COMPONENT, a.HW_LIMIT_TYPE),
    "Power limit of a component: enforced now, default, or the maximum that can be set.",
    source="nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementLimitConstraints (max), "
    "nvmlDeviceGetPowerManagementDefaultLimit; amdgpu: hwmon power1_cap, power1_cap_max, power1_cap_default; "
    "i915, xe: hwmon power1_max, else power1_cap (enforced), power1_rated_max (default)",
    standard=False,
)
HW_POWER_UTILIZATION = gauge(
    "hw.power.utilization", "1", a.HW_COMPONENT,
    "Power over the enforced limit. Short peaks may exceed 1.",
    source="hw.power over hw.power.limit{hw.limit_type=enforced}; Neuron: "
    "/sys/devices/virtual/neuron_device/*/stats/power/utilization, a mean of one minute",
    window=Window.MEAN, standard=False,
)
HW_TEMPERATURE = gauge(
    "hw.temperature", "Cel", (*a.HW_COMPONENT, a.HW_SENSOR_LOCATION),
    "Temperature of a component at one sensor.",
    source="nvmlDeviceGetTemperature, nvmlDeviceGetTemperatureV (gpu); NVML field MEMORY_TEMP (memory); Jetson: "
    "thermal zone gpu-thermal; amdgpu: hwmon temp*_input, by label; Apple: macmon gpu_temp_avg, cpu_temp_avg; "
    "apple_gpu_stats; gcipuinfo: average board temp (board), average die temp (die); nouveau, ivpu: hwmon "
    "temp1_input; i915, xe: hwmon temp*_input; CPUs and NVMe disks: "
    "/sys/class/hwmon/*/temp*_input, else /sys/class/thermal",
    window=Window.MEAN, opt_in_extras="with DETAIL=sensors all sensors in /sys/class/hwmon",
)
HW_TEMPERATURE_PEAK = gauge(
    "hw.temperature.peak", "Cel", (*a.HW_COMPONENT, a.HW_SENSOR_LOCATION),
    "Highest temperature sample since the previous collection.",
    source="as hw.temperature",
    window=Window.PEAK, standard=False,
)
HW_TEMPERATURE_LIMIT = gauge(
    "hw.temperature.limit", "Cel", (*a.HW_COMPONENT, a.HW_SENSOR_LOCATION, a.HW_LIMIT_TYPE),
    "Temperature at which a component slows down (high.degraded) or shuts down (high.critical), and its highest "
    "operating temperature (max).",
    source="nvmlDeviceGetTemperatureThreshold: SLOWDOWN, SHUTDOWN, GPU_MAX, MEM_MAX; amdgpu: hwmon temp*_crit, "
    "temp*_emergency; CPUs and disks: /sys/class/hwmon/*/temp*_max (high.degraded), temp*_crit (high.critical)",
)
HW_FAN_SPEED = gauge(
    "hw.fan.speed", "rpm", a.HW_DEVICE,
    "Speed of a fan.",
    source="nvmlDeviceGetFanSpeedRPM; amdgpu, i915, xe: hwmon fan*_input; Apple: macmon fans",
    opt_in_extras="with DETAIL=sensors all fans in /sys/class/hwmon",
)
HW_FAN_SPEED_RATIO = gauge(
    "hw.fan.speed_ratio", "1", a.HW_DEVICE,
    "Fan speed as a share of its maximum.",
    source="nvmlDeviceGetFanSpeed_v2 (the intended speed); amdgpu: hwmon pwm1; Apple: macmon fans",
)
HW_VOLTAGE = gauge(
    "hw.voltage", "V", (*a.HW_DEVICE, a.HW_SENSOR_LOCATION),
    "Supply voltage of a component.",
    source="nvidia-smi: graphics_volt; amdgpu: hwmon in*_input, by label, gpu_metrics (soc, memory)",
    window=Window.MEAN, opt_in_extras="with DETAIL=sensors all voltages in /sys/class/hwmon",
)
HW_ERRORS = counter(
    "hw.errors", "{error}", (*a.HW_COMPONENT, a.ERROR_TYPE, a.GPU_XID),
    "Errors of a component by type. Xids, the critical events of an NVIDIA GPU, have their number in hw.gpu.xid: "
    "13, 31 and 43 are mostly errors of the program, 48, 79 and 94 of the hardware.",
    source="/sys/class/infiniband/*/ports/*/counters; NVML: ECC errors over the device's lifetime, of its "
    "memory (corrected, uncorrected) and of its other memories (sram_corrected, sram_uncorrected), retired_page, "
    "row_remap, pcie_*, nvlink_*, c2c_*, and xid (nvmlEventSetWait_v2) since instrumentation started; "
    "amdgpu: ras/*_err_count, pcie_replay_count; Neuron: stats/hardware of /sys/devices/virtual/neuron_device/*, "
    "neuron-monitor; gcipuinfo: link correctable error count",
)
HW_STATUS = updown(
    "hw.status", "1", (*a.HW_COMPONENT, a.HW_STATE),
    "1 for the current state of a component, 0 for its other states.",
    source="failed: the driver lost the device or requires a reset; degraded: memory rows or pages await retirement "
    "or could not be retired (AMD: gpu_vram_bad_pages), a channel or TPC awaits repair, memory cannot be repaired, "
    "SRAM errors exceed NVIDIA's threshold, the driver requires a recovery action, "
    "the NVLink fabric is not ready or unhealthy (hw.type=network), or an IPU reports an error (ipu "
    "error state)",
)
HW_HOST_ENERGY = counter(
    "hw.host.energy", "J", (a.HW_ID, a.HW_NAME),
    "Energy used by the whole machine.",
    source="/sys/class/powercap/intel-rapl:*: psys, where readable; Apple: integral of hw.host.power",
)
HW_HOST_POWER = gauge(
    "hw.host.power", "W", (a.HW_ID, a.HW_NAME),
    "Power drawn by the whole machine.",
    source="Apple: macmon sys_power; apple_gpu_stats systemPower; ACPI power meter: /sys/class/hwmon/*/power1_average",
    window=Window.MEAN,
)
HW_CPU_SPEED = gauge(
    "hw.cpu.speed", "Hz", a.HW_DEVICE,
    "Frequency of a cluster of CPU cores, averaged over its active cores.",
    source="Apple: macmon ecpu_freq_mhz, pcpu_freq_mhz; before macmon 0.8 ecpu_usage, pcpu_usage",
    window=Window.MEAN,
)
HW_NETWORK_IO = counter(
    "hw.network.io", "By", (a.HW_ID, a.HW_NAME, a.NETWORK_DIRECTION),
    "Bytes sent and received by an InfiniBand or RoCE port.",
    source="/sys/class/infiniband/*/ports/*/counters: port_xmit_data, port_rcv_data (words of 4 bytes)",
)
HW_NETWORK_UP = updown(
    "hw.network.up", "1", (a.HW_ID, a.HW_NAME),
    "1 if the InfiniBand or RoCE port is active, otherwise 0.",
    source="/sys/class/infiniband/*/ports/*/state",
)
HW_HOLDER_INFO = gauge(
    "hw.holder.info", "{info}", a.HW_HOLDER,
    "Constant 1 for each device and pod, job, container or user that uses it or was given it. An agent without a "
    "program reports it (otel-hardware run). Join it to other metrics by host and hw.id.",
    source="/proc/{pid}/cgroup and /proc/{pid}/status of the processes that the driver lists; the kubelet's "
    "PodResources; the files of JOB_FILES; names of pods: /var/log/pods",
    standard=False,
)
HW_HOLDER_UTILIZATION = gauge(
    "hw.holder.utilization", "1", a.HW_HOLDER,
    "Share of the time in which the processes of a pod, job, container or user ran on the SMs of the GPU.",
    source="nvmlDeviceGetProcessUtilization, summed over the holder's processes",
    standard=False,
)
HW_HOLDER_MEMORY = updown(
    "hw.holder.memory.usage", "By", a.HW_HOLDER,
    "Memory of the device that is used by the processes of a pod, job, container or user. With the state none, the "
    "memory in use that no process has.",
    source="as process.gpu.memory.usage; none: hw.gpu.memory.usage without the memory of all processes",
    standard=False,
)
