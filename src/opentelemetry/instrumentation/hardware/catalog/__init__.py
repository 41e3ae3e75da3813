"""THE vocabulary: every metric, one row each, and every attribute's name.

The only place where a metric's name is spelled. Instruments, documentation and the tests of completeness are
functions of :data:`CATALOG`. Rows with ``standard=True`` carry the name, kind and unit of the semantic conventions (a
test compares them with the installed package); the others are ours, because the conventions have none.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.instrumentation.hardware.model import Kind, Metric, Scope, Window

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions that the standard rows are taken from."""

# Attributes.
CPU_MODE: Final = "cpu.mode"
CPU_NUMBER: Final = "cpu.logical_number"
MEMORY_STATE: Final = "system.memory.state"
PAGING_STATE: Final = "system.paging.state"
PAGING_DIRECTION: Final = "system.paging.direction"
FAULT_TYPE: Final = "system.paging.fault.type"
DEVICE: Final = "system.device"
DISK_DIRECTION: Final = "disk.io.direction"
FILESYSTEM_STATE: Final = "system.filesystem.state"
FILESYSTEM_MOUNTPOINT: Final = "system.filesystem.mountpoint"
FILESYSTEM_TYPE: Final = "system.filesystem.type"
INTERFACE: Final = "network.interface.name"
NETWORK_DIRECTION: Final = "network.io.direction"
NETWORK_TRANSPORT: Final = "network.transport"
CONNECTION_STATE: Final = "network.connection.state"
PROCESS_STATE: Final = "process.state"
SWITCH_TYPE: Final = "process.context_switch.type"
PRESSURE_RESOURCE: Final = "system.pressure.resource"
PRESSURE_KIND: Final = "system.pressure.kind"
GC_GENERATION: Final = "cpython.gc.generation"
HW_ID: Final = "hw.id"
HW_NAME: Final = "hw.name"
HW_TYPE: Final = "hw.type"
HW_PARENT: Final = "hw.parent"
HW_STATE: Final = "hw.state"
HW_VENDOR: Final = "hw.vendor"
HW_MODEL: Final = "hw.model"
HW_SERIAL_NUMBER: Final = "hw.serial_number"
HW_DRIVER_VERSION: Final = "hw.driver_version"
HW_FIRMWARE_VERSION: Final = "hw.firmware_version"
HW_LIMIT_TYPE: Final = "hw.limit_type"
HW_SENSOR_LOCATION: Final = "hw.sensor_location"
GPU_TASK: Final = "hw.gpu.task"
GPU_INDEX: Final = "hw.gpu.index"
GPU_TYPE: Final = "hw.gpu.type"
GPU_LINK: Final = "hw.gpu.link"
THROTTLE_REASON: Final = "hw.gpu.throttle.reason"
FREQUENCY_DOMAIN: Final = "hw.frequency.domain"
PCI_BDF: Final = "pci.bdf"
NPU_TASK: Final = "hw.npu.task"
NEURON_MEMORY_TYPE: Final = "aws.neuron.memory.type"
NEURON_MEMORY_CATEGORY: Final = "aws.neuron.memory.category"
NEURON_RESULT: Final = "aws.neuron.execution.result"
NEURON_LATENCY: Final = "aws.neuron.execution.latency.type"
NEURON_QUANTILE: Final = "aws.neuron.execution.quantile"
NEURON_TAG: Final = "aws.neuron.runtime.tag"
ERROR_TYPE: Final = "error.type"
TPU_CORE_TYPE: Final = "google.tpu.core.type"
TPU_TRANSFER_KIND: Final = "google.tpu.transfer.kind"
TPU_BUFFER_SIZE: Final = "google.tpu.buffer.size"
TPU_LINK: Final = "google.tpu.link"
SOURCE: Final = "otel_hardware.source"
OPENMETRICS_ENDPOINT: Final = "openmetrics.endpoint"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

# Host: processor.
SYSTEM_CPU_TIME = Metric(
    "system.cpu.time",
    Kind.COUNTER,
    "s",
    "CPU time by mode, all logical CPUs together.",
    (CPU_MODE, CPU_NUMBER),
    opt_in_extras="with DETAIL=cpu one series per logical CPU instead of their sum",
    source="/proc/stat; elsewhere psutil.cpu_times",
)
SYSTEM_CPU_UTILIZATION = Metric(
    "system.cpu.utilization",
    Kind.GAUGE,
    "1",
    "Share of the CPU time spent in a mode, exact over the window.",
    (CPU_MODE, CPU_NUMBER),
    Window.RATIO,
    opt_in_extras="mode idle; with DETAIL=cpu one series per logical CPU",
    source="increase of the time in a mode over the increase of all of them",
    wandb="cpu.{i}.cpu_percent",
)
SYSTEM_CPU_LOGICAL_COUNT = Metric(
    "system.cpu.logical.count",
    Kind.UPDOWN,
    "{cpu}",
    "Logical CPUs of the host.",
    source="sysconf(_SC_NPROCESSORS_ONLN); elsewhere psutil.cpu_count",
)
SYSTEM_CPU_PHYSICAL_COUNT = Metric(
    "system.cpu.physical.count",
    Kind.UPDOWN,
    "{cpu}",
    "Physical cores of the host.",
    source="/sys/devices/system/cpu/cpu*/topology; elsewhere psutil.cpu_count(logical=False)",
)
SYSTEM_CPU_FREQUENCY = Metric(
    "system.cpu.frequency",
    Kind.GAUGE,
    "Hz",
    "Operating frequency of a logical CPU.",
    (CPU_NUMBER,),
    Window.MEAN,
    opt_in="cpu",
    source="/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq; elsewhere psutil.cpu_freq",
)
SYSTEM_CPU_LOAD_1M = Metric(
    "system.cpu.load_average.1m",
    Kind.GAUGE,
    "{thread}",
    "Threads running or waiting for a CPU or a disk, averaged by the kernel over a minute.",
    source="/proc/loadavg; elsewhere psutil.getloadavg",
    standard=False,
)
SYSTEM_CPU_LOAD_5M = Metric(
    "system.cpu.load_average.5m",
    Kind.GAUGE,
    "{thread}",
    "The same over five minutes.",
    opt_in="request",
    source="/proc/loadavg; elsewhere psutil.getloadavg",
    standard=False,
)
SYSTEM_CPU_LOAD_15M = Metric(
    "system.cpu.load_average.15m",
    Kind.GAUGE,
    "{thread}",
    "The same over fifteen minutes.",
    opt_in="request",
    source="/proc/loadavg; elsewhere psutil.getloadavg",
    standard=False,
)

# Host: memory.
SYSTEM_MEMORY_USAGE = Metric(
    "system.memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory by state; the states sum to the limit.",
    (MEMORY_STATE,),
    source="/proc/meminfo: MemFree, Buffers, Cached + SReclaimable, used is the rest; elsewhere psutil.virtual_memory",
)
SYSTEM_MEMORY_UTILIZATION = Metric(
    "system.memory.utilization",
    Kind.GAUGE,
    "1",
    "Memory in a state over the limit.",
    (MEMORY_STATE,),
    Window.MEAN,
    opt_in_extras="states free, cached, buffers",
    source="system.memory.usage over system.memory.limit",
    wandb="memory, memory_percent",
)
SYSTEM_MEMORY_LIMIT = Metric(
    "system.memory.limit",
    Kind.UPDOWN,
    "By",
    "Memory of the host.",
    source="/proc/meminfo: MemTotal; elsewhere psutil.virtual_memory",
)
SYSTEM_MEMORY_LINUX_AVAILABLE = Metric(
    "system.memory.linux.available",
    Kind.UPDOWN,
    "By",
    "Memory that programs can still take without swapping, by the kernel's estimate.",
    source="/proc/meminfo: MemAvailable",
    wandb="proc.memory.availableMB",
)
SYSTEM_MEMORY_AVAILABLE = Metric(
    "system.memory.available",
    Kind.UPDOWN,
    "By",
    "The same where the system is not Linux.",
    source="psutil.virtual_memory",
    wandb="proc.memory.availableMB",
    standard=False,
)

# Host: paging.
SYSTEM_PAGING_USAGE = Metric(
    "system.paging.usage",
    Kind.UPDOWN,
    "By",
    "Swap space by state.",
    (PAGING_STATE,),
    source="/proc/meminfo: SwapTotal, SwapFree; elsewhere psutil.swap_memory",
)
SYSTEM_PAGING_UTILIZATION = Metric(
    "system.paging.utilization",
    Kind.GAUGE,
    "1",
    "Swap space in a state over all of it; absent where there is none.",
    (PAGING_STATE,),
    Window.MEAN,
    opt_in_extras="state free",
    source="system.paging.usage over its sum",
)
SYSTEM_PAGING_FAULTS = Metric(
    "system.paging.faults",
    Kind.COUNTER,
    "{fault}",
    "Page faults of the host; major ones had to read from a disk.",
    (FAULT_TYPE,),
    source="/proc/vmstat: pgfault, pgmajfault",
)
SYSTEM_PAGING_OPERATIONS = Metric(
    "system.paging.operations",
    Kind.COUNTER,
    "{operation}",
    "Pages swapped in and out.",
    (PAGING_DIRECTION,),
    opt_in="request",
    source="/proc/vmstat: pswpin, pswpout; elsewhere psutil.swap_memory",
)

# Host: disks.
SYSTEM_DISK_IO = Metric(
    "system.disk.io",
    Kind.COUNTER,
    "By",
    "Bytes read from and written to a whole disk.",
    (DEVICE, DISK_DIRECTION),
    source="/proc/diskstats, sectors of 512 bytes; elsewhere psutil.disk_io_counters",
    wandb="disk.in, disk.out",
)
SYSTEM_DISK_OPERATIONS = Metric(
    "system.disk.operations",
    Kind.COUNTER,
    "{operation}",
    "Reads and writes that a disk completed.",
    (DEVICE, DISK_DIRECTION),
    source="/proc/diskstats; elsewhere psutil.disk_io_counters",
)
SYSTEM_DISK_OPERATION_TIME = Metric(
    "system.disk.operation_time",
    Kind.COUNTER,
    "s",
    "Time that the operations took, summed over all of them; over their number it is the mean latency.",
    (DEVICE, DISK_DIRECTION),
    opt_in="request",
    source="/proc/diskstats; elsewhere psutil.disk_io_counters",
)
SYSTEM_DISK_IO_TIME = Metric(
    "system.disk.io_time",
    Kind.COUNTER,
    "s",
    "Time that a disk had something to do; its rate is the share of time that the disk was busy.",
    (DEVICE,),
    source="/proc/diskstats; elsewhere psutil.disk_io_counters (busy_time)",
)

# Host: file systems.
SYSTEM_FILESYSTEM_USAGE = Metric(
    "system.filesystem.usage",
    Kind.UPDOWN,
    "By",
    "Space of a file system by state; reserved is what only root may use. The states sum to the limit.",
    (DEVICE, FILESYSTEM_STATE, FILESYSTEM_TYPE, FILESYSTEM_MOUNTPOINT),
    source="statvfs",
    wandb="disk.{path}.usageGB",
)
SYSTEM_FILESYSTEM_UTILIZATION = Metric(
    "system.filesystem.utilization",
    Kind.GAUGE,
    "1",
    "Space in a state over all of it, reserved space included; df's Use% is used / (used + free).",
    (DEVICE, FILESYSTEM_STATE, FILESYSTEM_TYPE, FILESYSTEM_MOUNTPOINT),
    Window.MEAN,
    opt_in_extras="states free, reserved",
    source="statvfs",
    wandb="disk.{path}.usagePercent",
)
SYSTEM_FILESYSTEM_LIMIT = Metric(
    "system.filesystem.limit",
    Kind.UPDOWN,
    "By",
    "Size of a file system.",
    (DEVICE, FILESYSTEM_TYPE, FILESYSTEM_MOUNTPOINT),
    source="statvfs",
)

# Host: network.
SYSTEM_NETWORK_IO = Metric(
    "system.network.io",
    Kind.COUNTER,
    "By",
    "Bytes that an interface sent and received.",
    (INTERFACE, NETWORK_DIRECTION),
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
    wandb="network.sent, network.recv",
)
SYSTEM_NETWORK_PACKET_COUNT = Metric(
    "system.network.packet.count",
    Kind.COUNTER,
    "{packet}",
    "Packets that an interface sent and received.",
    (INTERFACE, NETWORK_DIRECTION),
    opt_in="request",
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
)
SYSTEM_NETWORK_PACKET_DROPPED = Metric(
    "system.network.packet.dropped",
    Kind.COUNTER,
    "{packet}",
    "Packets dropped, though there was no error.",
    (INTERFACE, NETWORK_DIRECTION),
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
)
SYSTEM_NETWORK_ERRORS = Metric(
    "system.network.errors",
    Kind.COUNTER,
    "{error}",
    "Network errors of an interface.",
    (INTERFACE, NETWORK_DIRECTION),
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
)
SYSTEM_NETWORK_CONNECTION_COUNT = Metric(
    "system.network.connection.count",
    Kind.UPDOWN,
    "{connection}",
    "Sockets by transport and state, from the kernel's statistics (no walk over sockets).",
    (NETWORK_TRANSPORT, CONNECTION_STATE),
    opt_in="connections",
    source="/proc/net/sockstat, sockstat6, snmp (CurrEstab); absent elsewhere",
)

# Host: the rest.
SYSTEM_UPTIME = Metric(
    "system.uptime",
    Kind.GAUGE,
    "s",
    "Time since the system started.",
    source="CLOCK_BOOTTIME; elsewhere psutil.boot_time",
)
SYSTEM_PROCESS_COUNT = Metric(
    "system.process.count",
    Kind.UPDOWN,
    "{process}",
    "Processes by state.",
    (PROCESS_STATE,),
    opt_in="processes",
    source="/proc/{pid}/stat of all processes, every 10 s at most; absent elsewhere",
)
SYSTEM_PRESSURE_TIME = Metric(
    "system.pressure.linux.time",
    Kind.COUNTER,
    "s",
    "Time that some or all (full) tasks waited for a resource; its rate is the share of time lost.",
    (PRESSURE_RESOURCE, PRESSURE_KIND),
    source="/proc/pressure/{cpu,memory,io}, total",
    standard=False,
)
HW_ENERGY = Metric(
    "hw.energy",
    Kind.COUNTER,
    "J",
    "Energy that a component used.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT),
    source="/sys/class/powercap/intel-rapl:*: package (cpu) and dram (memory), where readable; NVML field "
    "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, and for a GPU that does not count, the integral of its power",
)
HW_HOST_ENERGY = Metric(
    "hw.host.energy",
    Kind.COUNTER,
    "J",
    "Energy that the whole machine used.",
    (HW_ID, HW_NAME),
    source="/sys/class/powercap/intel-rapl:*: psys, where readable; Apple: integral of hw.host.power",
)
HW_HOST_POWER = Metric(
    "hw.host.power",
    Kind.GAUGE,
    "W",
    "Power that the whole machine draws.",
    (HW_ID, HW_NAME),
    Window.MEAN,
    source="Apple: macmon sys_power; apple_gpu_stats systemPower",
)
HW_CPU_SPEED = Metric(
    "hw.cpu.speed",
    Kind.GAUGE,
    "Hz",
    "Frequency of a cluster of CPU cores, the mean of its cores while they work.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.MEAN,
    source="Apple: macmon ecpu_freq_mhz, pcpu_freq_mhz; before 0.8 ecpu_usage, pcpu_usage",
)
HW_NETWORK_IO = Metric(
    "hw.network.io",
    Kind.COUNTER,
    "By",
    "Bytes that an InfiniBand or RoCE port sent and received.",
    (HW_ID, HW_NAME, NETWORK_DIRECTION),
    source="/sys/class/infiniband/*/ports/*/counters: port_xmit_data, port_rcv_data (words of 4 bytes)",
)
HW_NETWORK_UP = Metric(
    "hw.network.up",
    Kind.UPDOWN,
    "1",
    "1 where the port is active, 0 where it is not.",
    (HW_ID, HW_NAME),
    source="/sys/class/infiniband/*/ports/*/state",
)
HW_ERRORS = Metric(
    "hw.errors",
    Kind.COUNTER,
    "{error}",
    "Errors of a component by type.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT, ERROR_TYPE),
    source="/sys/class/infiniband/*/ports/*/counters; NVML: lifetime ECC errors (corrected, uncorrected), "
    "retired_page, row_remap, pcie_replay, nvlink_crc, nvlink_replay, nvlink_recovery; xid counts the critical events "
    "since this package began to listen; Neuron: mem_*, sram_* (/sys/devices/virtual/neuron_device, neuron-monitor); "
    "gcipuinfo: link correctable error count",
    wandb="gpu.{i}.correctedMemoryErrors, gpu.{i}.unCorrectedMemoryErrors",
)

# GPU.
HW_GPU_INFO = Metric(
    "hw.gpu.info",
    Kind.GAUGE,
    "1",
    "Always 1: what the GPU is. The other rows carry its hw.id only.",
    (
        HW_ID,
        HW_NAME,
        HW_PARENT,
        HW_VENDOR,
        HW_MODEL,
        HW_SERIAL_NUMBER,
        HW_DRIVER_VERSION,
        HW_FIRMWARE_VERSION,
        PCI_BDF,
        GPU_INDEX,
        GPU_TYPE,
    ),
    source="nvmlDeviceGetName, GetUUID, GetSerial, GetPciInfo_v3, GetVbiosVersion, nvmlSystemGetDriverVersion; "
    "amdgpu: unique_id, product_name or libdrm's amdgpu.ids, serial_number, vbios_version",
    standard=False,
)
HW_STATUS = Metric(
    "hw.status",
    Kind.UPDOWN,
    "1",
    "1 for the state that a component is in, 0 for the others.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT, HW_STATE),
    source="failed: the driver lost the device or wants it reset; degraded: memory rows or pages wait to be taken out "
    "of use, or could not be (AMD: gpu_vram_bad_pages); an IPU speaks of errors (ipu error state)",
)
HW_GPU_UTILIZATION = Metric(
    "hw.gpu.utilization",
    Kind.GAUGE,
    "1",
    "Share of time that the GPU was busy with a task; sm, tensor, dram and fp* are shares of the unit's peak, scaled "
    "is the share of all that the GPU could do at its highest frequency.",
    (HW_ID, HW_NAME, HW_PARENT, GPU_TASK),
    Window.MEAN,
    source="general: nvmlDeviceGetSamples, else GetUtilizationRates, which says memory too; "
    "nvmlDeviceGetEncoderUtilization and the like; sm, tensor, dram, fp64, fp32, fp16: nvmlGpmMetricsGet; "
    "amdgpu: gpu_busy_percent, mem_busy_percent (memory), gpu_metrics (video, jpeg); Apple: the registry's Device "
    "Utilization %, macmon gpu_active_ratio (general), gpu_scaled_ratio (scaled)",
    wandb="gpu.{i}.gpu, gpu.{i}.memory, gpu.{i}.encoderUtilization, gpu.{i}.smActive, gpu.{i}.pipeTensorActive, "
    "gpu.{i}.dramActive, gpu.{i}.pipeFp64Active, gpu.{i}.pipeFp32Active, gpu.{i}.pipeFp16Active",
)
HW_GPU_UTILIZATION_PEAK = Metric(
    "hw.gpu.utilization.peak",
    Kind.GAUGE,
    "1",
    "Highest sample of the general utilization.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.PEAK,
    source="as hw.gpu.utilization",
    standard=False,
)
HW_GPU_TIME = Metric(
    "hw.gpu.time",
    Kind.COUNTER,
    "s",
    "Seconds that the GPU was busy with a task, since this package began to look.",
    (HW_ID, HW_NAME, HW_PARENT, GPU_TASK),
    source="integral of hw.gpu.utilization",
    standard=False,
)
HW_GPU_SM_OCCUPANCY = Metric(
    "hw.gpu.sm.occupancy",
    Kind.GAUGE,
    "1",
    "Warps resident on the SMs over the most that fit.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.MEAN,
    source="nvmlGpmMetricsGet: NVML_GPM_METRIC_SM_OCCUPANCY",
    wandb="gpu.{i}.smOccupancy",
    standard=False,
)
HW_GPU_MEMORY_USAGE = Metric(
    "hw.gpu.memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory in use, without what the driver keeps for itself where it says that apart.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="nvmlDeviceGetMemoryInfo_v2: used; older drivers GetMemoryInfo; amdgpu: mem_info_vram_used; "
    "Apple: the registry's In use system memory",
    wandb="gpu.{i}.memoryAllocatedBytes",
)
HW_GPU_MEMORY_LIMIT = Metric(
    "hw.gpu.memory.limit",
    Kind.UPDOWN,
    "By",
    "Memory of the device.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="nvmlDeviceGetMemoryInfo_v2: total; amdgpu: mem_info_vram_total",
)
HW_GPU_MEMORY_UTILIZATION = Metric(
    "hw.gpu.memory.utilization",
    Kind.GAUGE,
    "1",
    "Memory in use over all of it.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.MEAN,
    source="hw.gpu.memory.usage over hw.gpu.memory.limit",
    wandb="gpu.{i}.memoryAllocated",
)
HW_GPU_MEMORY_PEAK = Metric(
    "hw.gpu.memory.peak",
    Kind.GAUGE,
    "By",
    "Highest sample of the memory in use.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.PEAK,
    source="as hw.gpu.memory.usage",
    standard=False,
)
HW_GPU_IO = Metric(
    "hw.gpu.io",
    Kind.COUNTER,
    "By",
    "Bytes that the GPU sent and received over a link.",
    (HW_ID, HW_NAME, HW_PARENT, NETWORK_DIRECTION, GPU_LINK),
    source="NVML fields PCIE_COUNT_TX_BYTES, PCIE_COUNT_RX_BYTES, NVLINK_THROUGHPUT_DATA_TX, _RX (all links together); "
    "amdgpu: gpu_metrics (xgmi)",
    wandb="gpu.{i}.pcieTxBytes, gpu.{i}.pcieRxBytes, gpu.{i}.nvlinkTxBytes, gpu.{i}.nvlinkRxBytes",
)
HW_POWER = Metric(
    "hw.power",
    Kind.GAUGE,
    "W",
    "Power that a component draws.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT),
    Window.MEAN,
    source="nvmlDeviceGetPowerUsage; amdgpu: hwmon power1_average, else power1_input; Apple: macmon "
    "gpu_power, cpu_power, ane_power (npu), ram_power; apple_gpu_stats; "
    "gcipuinfo: ipu power, total board power",
    wandb="gpu.{i}.powerWatts, ipu.{i}.ipu power (W)",
)
HW_POWER_PEAK = Metric(
    "hw.power.peak",
    Kind.GAUGE,
    "W",
    "Highest sample of the power.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT),
    Window.PEAK,
    source="as hw.power",
    standard=False,
)
HW_POWER_LIMIT = Metric(
    "hw.power.limit",
    Kind.GAUGE,
    "W",
    "Power that a component may draw.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT, HW_LIMIT_TYPE),
    source="nvmlDeviceGetEnforcedPowerLimit, GetPowerManagementLimitConstraints (max), GetPowerManagementDefaultLimit; "
    "amdgpu: hwmon power1_cap, power1_cap_max, power1_cap_default",
    wandb="gpu.{i}.enforcedPowerLimitWatts",
    standard=False,
)
HW_POWER_UTILIZATION = Metric(
    "hw.power.utilization",
    Kind.GAUGE,
    "1",
    "Power over the enforced limit; may exceed 1 for a moment.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT),
    Window.MEAN,
    source="hw.power over hw.power.limit{hw.limit_type=enforced}; Neuron: /sys/devices/virtual/neuron_device/*/stats/"
    "power/utilization, the mean of a minute",
    wandb="gpu.{i}.powerPercent",
    standard=False,
)
HW_TEMPERATURE = Metric(
    "hw.temperature",
    Kind.GAUGE,
    "Cel",
    "Temperature of a component at a sensor.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT, HW_SENSOR_LOCATION),
    Window.MEAN,
    source="nvmlDeviceGetTemperature (gpu); NVML field MEMORY_TEMP (memory); amdgpu: hwmon temp*_input, by label; "
    "Apple: macmon gpu_temp_avg, cpu_temp_avg; apple_gpu_stats; "
    "gcipuinfo: average board temp (board), average die temp (die)",
    wandb="gpu.{i}.temp, ipu.{i}.average board temp (C), ipu.{i}.average die temp (C)",
)
HW_TEMPERATURE_PEAK = Metric(
    "hw.temperature.peak",
    Kind.GAUGE,
    "Cel",
    "Highest sample of the temperature.",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT, HW_SENSOR_LOCATION),
    Window.PEAK,
    source="as hw.temperature",
    standard=False,
)
HW_TEMPERATURE_LIMIT = Metric(
    "hw.temperature.limit",
    Kind.GAUGE,
    "Cel",
    "Temperature at which a component slows down (high.degraded) or shuts down (high.critical), and the highest that "
    "it is made to work at (max).",
    (HW_ID, HW_NAME, HW_TYPE, HW_PARENT, HW_SENSOR_LOCATION, HW_LIMIT_TYPE),
    source="nvmlDeviceGetTemperatureThreshold: SLOWDOWN, SHUTDOWN, GPU_MAX, MEM_MAX; amdgpu: hwmon temp*_crit, "
    "temp*_emergency",
)
HW_GPU_FREQUENCY = Metric(
    "hw.gpu.frequency",
    Kind.GAUGE,
    "Hz",
    "Clock frequency of a part of the GPU.",
    (HW_ID, HW_NAME, HW_PARENT, FREQUENCY_DOMAIN),
    Window.MEAN,
    source="nvmlDeviceGetClockInfo; amdgpu: hwmon freq*_input, by label; Apple: macmon gpu_freq_mhz",
    wandb="gpu.{i}.smClock, gpu.{i}.memoryClock, gpu.{i}.graphicsClock",
    standard=False,
)
HW_GPU_FREQUENCY_LIMIT = Metric(
    "hw.gpu.frequency.limit",
    Kind.GAUGE,
    "Hz",
    "Highest clock frequency of a part of the GPU.",
    (HW_ID, HW_NAME, HW_PARENT, FREQUENCY_DOMAIN),
    source="nvmlDeviceGetMaxClockInfo; amdgpu: pp_dpm_sclk, pp_dpm_mclk",
    standard=False,
)
HW_GPU_THROTTLE_TIME = Metric(
    "hw.gpu.throttle.time",
    Kind.COUNTER,
    "s",
    "Seconds that the clocks were held down, by reason; several may hold at a time.",
    (HW_ID, HW_NAME, HW_PARENT, THROTTLE_REASON),
    source="integral of nvmlDeviceGetCurrentClocksEventReasons as sampled; amdgpu: gpu_metrics",
    standard=False,
)
HW_GPU_PERFORMANCE_STATE = Metric(
    "hw.gpu.performance_state",
    Kind.GAUGE,
    "1",
    "Performance state, 0 (P0, the fastest) to 15.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="nvmlDeviceGetPerformanceState",
    standard=False,
)
HW_FAN_SPEED_RATIO = Metric(
    "hw.fan.speed_ratio",
    Kind.GAUGE,
    "1",
    "Fan speed over its maximum.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="nvmlDeviceGetFanSpeed_v2: what the fan is told to do; amdgpu: hwmon pwm1; Apple: macmon fans",
    wandb="gpu.{i}.fanSpeed",
)
HW_FAN_SPEED = Metric(
    "hw.fan.speed",
    Kind.GAUGE,
    "rpm",
    "Speed of a fan.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="nvmlDeviceGetFanSpeedRPM; amdgpu: hwmon fan1_input; Apple: macmon fans",
)
HW_VOLTAGE = Metric(
    "hw.voltage",
    Kind.GAUGE,
    "V",
    "Voltage that a part of a component is fed with.",
    (HW_ID, HW_NAME, HW_PARENT, HW_SENSOR_LOCATION),
    Window.MEAN,
    source="amdgpu: hwmon in*_input, by label",
)

# NPU (other accelerators).
HW_NPU_UTILIZATION = Metric(
    "hw.npu.utilization",
    Kind.GAUGE,
    "1",
    "Share of time that an accelerator worked (general); of a part of it, share of what it could do at most.",
    (HW_ID, HW_NAME, HW_PARENT, NPU_TASK),
    Window.MEAN,
    source="TPU runtime: tensorcore.dutycycle.percent (general), hbm.utilization.percent (hbm: memory bandwidth); "
    "libtpu's SDK: tensorcore_util (tensorcore); TPU profiler: idle time (general), matrix units (matrix); "
    "gcipuinfo: ipu utilisation; neuron-monitor: neuroncores_in_use, neuroncore_utilization",
    wandb="ipu.{i}.ipu utilisation (%), trn.{i}.neuroncore_utilization, tpu.{i}.dutyCycle, "
    "tpu.{i}.runtimeHbmUtilization, tpu.{i}.tensorcoreUtilization, tpu",
    standard=False,
)
HW_NPU_MEMORY_USAGE = Metric(
    "hw.npu.memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory of an accelerator or of a core of it in use.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="TPU runtime: hbm.memory.usage.bytes; Neuron: /sys/devices/virtual/neuron_device/*/neuron_core*/stats/"
    "memory_usage/device_mem/present, else neuron-monitor",
    wandb="tpu.{i}.memoryUsageBytes, tpu.{i}.hbmCapacityUsage",
    standard=False,
)
HW_NPU_MEMORY_LIMIT = Metric(
    "hw.npu.memory.limit",
    Kind.UPDOWN,
    "By",
    "Memory of an accelerator or of a core of it.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="TPU runtime: hbm.memory.total.bytes; neuron-monitor: neuron_device_memory_size",
    wandb="tpu.{i}.hbmCapacityTotal",
    standard=False,
)
HW_NPU_MEMORY_UTILIZATION = Metric(
    "hw.npu.memory.utilization",
    Kind.GAUGE,
    "1",
    "Memory in use over all of it.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.MEAN,
    source="hw.npu.memory.usage over hw.npu.memory.limit",
    wandb="tpu.{i}.memoryUsage, tpu.{i}.hbmMemoryUsage",
    standard=False,
)
HW_NPU_INFO = Metric(
    "hw.npu.info",
    Kind.GAUGE,
    "1",
    "Always 1; the attributes say what the accelerator is.",
    (
        HW_ID,
        HW_NAME,
        HW_PARENT,
        HW_VENDOR,
        HW_MODEL,
        HW_SERIAL_NUMBER,
        HW_DRIVER_VERSION,
        HW_FIRMWARE_VERSION,
        PCI_BDF,
    ),
    source="PCI bus and TPU runtime; gcipuinfo; /sys/devices/virtual/neuron_device, else neuron-monitor",
    standard=False,
)
GOOGLE_TPU_IDLE_DURATION = Metric(
    "google.tpu.idle.duration",
    Kind.GAUGE,
    "s",
    "Time since a program last ran on a TPU device.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="TPU runtime: tensorcore.idle_duration.seconds",
    wandb="tpu.{i}.tensorcoreIdleDuration",
    standard=False,
)
GOOGLE_TPU_HLO_QUEUE_SIZE = Metric(
    "google.tpu.hlo.queue.size",
    Kind.GAUGE,
    "{program}",
    "Compiled programs that wait for a TPU device.",
    (HW_ID, HW_NAME, HW_PARENT, TPU_CORE_TYPE),
    Window.MEAN,
    source="TPU runtime: hlo.queue.size.gauge",
    wandb="tpu.hloQueueSize.{core}",
    standard=False,
)
GOOGLE_TPU_HLO_EXECUTION_COUNT = Metric(
    "google.tpu.hlo.execution.count",
    Kind.COUNTER,
    "{operation}",
    "Compiled programs that a TPU device has executed.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="TPU runtime: hlo.execution.timing.distribution.microseconds",
    wandb="tpu.hloExecTiming.{core}.{stat}Us",
    standard=False,
)
GOOGLE_TPU_HLO_EXECUTION_TIME = Metric(
    "google.tpu.hlo.execution.time",
    Kind.COUNTER,
    "s",
    "Time that the execution of compiled programs on a TPU device took.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="TPU runtime: hlo.execution.timing.distribution.microseconds",
    wandb="tpu.hloExecTiming.{core}.{stat}Us",
    standard=False,
)
GOOGLE_TPU_TRANSFER_COUNT = Metric(
    "google.tpu.transfer.count",
    Kind.COUNTER,
    "{operation}",
    "Transfers between TPU slices, hosts and devices, and the operations that they belong to.",
    (TPU_TRANSFER_KIND, TPU_BUFFER_SIZE),
    source="TPU runtime: megascale.*_latencies.microsecond.cumulative.distribution",
    wandb="tpu.bufferTransferLatency.{label}.{stat}Us, tpu.inboundBufferTransferLatency.{label}.{stat}Us, "
    "tpu.hostToDeviceTransferLatency.{label}.{stat}Us, tpu.deviceToHostTransferLatency.{label}.{stat}Us, "
    "tpu.collectiveE2ELatency.{label}.{stat}Us, tpu.hostComputeLatency.{label}.{stat}Us",
    standard=False,
)
GOOGLE_TPU_TRANSFER_TIME = Metric(
    "google.tpu.transfer.time",
    Kind.COUNTER,
    "s",
    "Latencies of the transfers, summed.",
    (TPU_TRANSFER_KIND, TPU_BUFFER_SIZE),
    source="TPU runtime: megascale.*_latencies.microsecond.cumulative.distribution",
    wandb="tpu.bufferTransferLatency.{label}.{stat}Us, tpu.inboundBufferTransferLatency.{label}.{stat}Us, "
    "tpu.hostToDeviceTransferLatency.{label}.{stat}Us, tpu.deviceToHostTransferLatency.{label}.{stat}Us, "
    "tpu.collectiveE2ELatency.{label}.{stat}Us, tpu.hostComputeLatency.{label}.{stat}Us",
    standard=False,
)
GOOGLE_TPU_LINK_HEALTH = Metric(
    "google.tpu.link.health",
    Kind.GAUGE,
    "1",
    "State of a link between TPU chips: 0 healthy, 1 to 5 transient trouble, 6 to 9 lasting trouble, 10 not usable.",
    (TPU_LINK,),
    source="libtpu's SDK, on request: ici_link_health",
    wandb="tpu.{i}.iciLinkHealth",
    standard=False,
)
GOOGLE_TPU_THROTTLE_SCORE = Metric(
    "google.tpu.throttle.score",
    Kind.GAUGE,
    "1",
    "How far a TPU device is throttled: 0 not, 1 by 10 %, 10 wholly.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="libtpu's SDK, on request: tpu_throttle_score",
    wandb="tpu.{i}.throttleScore",
    standard=False,
)

# Container (of the observed process).
CONTAINER_CPU_TIME = Metric(
    "container.cpu.time",
    Kind.COUNTER,
    "s",
    "CPU time that the container used.",
    source="cgroup v2 cpu.stat usage_usec; v1 cpuacct.usage",
)
CONTAINER_MEMORY_USAGE = Metric(
    "container.memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory charged to the container, page cache included.",
    source="cgroup v2 memory.current; v1 memory.usage_in_bytes",
)
CONTAINER_MEMORY_WORKING_SET = Metric(
    "container.memory.working_set",
    Kind.UPDOWN,
    "By",
    "Memory charged to the container without the page cache that the kernel can drop at once.",
    source="usage - inactive_file (memory.stat; v1 total_inactive_file), at least 0",
)
CONTAINER_MEMORY_LIMIT = Metric(
    "container.memory.limit",
    Kind.UPDOWN,
    "By",
    "The tightest memory limit on the way from the process's cgroup to the root; absent where there is none.",
    source="cgroup v2 memory.max; v1 memory.limit_in_bytes",
    standard=False,
)
CONTAINER_CPU_LIMIT = Metric(
    "container.cpu.limit",
    Kind.UPDOWN,
    "{cpu}",
    "The tightest CPU limit on the way from the process's cgroup to the root; absent where there is none.",
    source="cgroup v2 cpu.max; v1 cpu.cfs_quota_us over cpu.cfs_period_us",
    standard=False,
)
CONTAINER_CPU_THROTTLED_TIME = Metric(
    "container.cpu.throttled.time",
    Kind.COUNTER,
    "s",
    "Time that the container's tasks wanted to run and its CPU limit kept them waiting.",
    source="cgroup cpu.stat: v2 throttled_usec, v1 throttled_time",
    standard=False,
)

# Process.
PROCESS_CPU_TIME = Metric(
    "process.cpu.time",
    Kind.COUNTER,
    "s",
    "CPU time of the process by mode.",
    (CPU_MODE,),
    scope=Scope.PROCESS,
    source="getrusage; of another process /proc/{pid}/stat; elsewhere psutil.Process.cpu_times",
)
PROCESS_CPU_UTILIZATION = Metric(
    "process.cpu.utilization",
    Kind.GAUGE,
    "1",
    "CPU time of the process over the time of the CPUs it may use (affinity, cgroup limit), exact over the window.",
    (CPU_MODE,),
    Window.RATIO,
    Scope.PROCESS,
    source="increase of process.cpu.time over elapsed time x CPUs available",
    wandb="cpu",
)
PROCESS_THREAD_COUNT = Metric(
    "process.thread.count",
    Kind.UPDOWN,
    "{thread}",
    "Threads of the process.",
    scope=Scope.PROCESS,
    source="/proc/{pid}/stat num_threads; elsewhere psutil.Process.num_threads",
    wandb="proc.cpu.threads",
)
PROCESS_MEMORY_USAGE = Metric(
    "process.memory.usage",
    Kind.UPDOWN,
    "By",
    "Resident memory of the process.",
    scope=Scope.PROCESS,
    source="/proc/{pid}/statm; elsewhere psutil.Process.memory_info().rss",
    wandb="proc.memory.rssMB",
)
PROCESS_MEMORY_VIRTUAL = Metric(
    "process.memory.virtual",
    Kind.UPDOWN,
    "By",
    "Address space of the process.",
    scope=Scope.PROCESS,
    source="/proc/{pid}/statm; elsewhere psutil.Process.memory_info().vms",
)
PROCESS_MEMORY_UTILIZATION = Metric(
    "process.memory.utilization",
    Kind.GAUGE,
    "1",
    "Resident memory over what the process may use: the tightest cgroup limit, else the host's memory.",
    window=Window.MEAN,
    scope=Scope.PROCESS,
    source="process.memory.usage over the limit",
    wandb="proc.memory.percent",
)
PROCESS_MEMORY_PEAK = Metric(
    "process.memory.peak",
    Kind.GAUGE,
    "By",
    "Highest resident memory of the window's samples.",
    window=Window.PEAK,
    scope=Scope.PROCESS,
    source="as process.memory.usage",
    standard=False,
)
PROCESS_DISK_IO = Metric(
    "process.disk.io",
    Kind.COUNTER,
    "By",
    "Bytes that the process made storage read and write.",
    (DISK_DIRECTION,),
    scope=Scope.PROCESS,
    source="/proc/{pid}/io read_bytes, write_bytes; elsewhere psutil.Process.io_counters",
)
PROCESS_DISK_OPERATIONS = Metric(
    "process.disk.operations",
    Kind.COUNTER,
    "{operation}",
    "Read and write calls of the process.",
    (DISK_DIRECTION,),
    scope=Scope.PROCESS,
    opt_in="request",
    source="/proc/{pid}/io syscr, syscw; elsewhere psutil.Process.io_counters",
)
PROCESS_CONTEXT_SWITCHES = Metric(
    "process.context_switches",
    Kind.COUNTER,
    "{context_switch}",
    "Times that a thread of the process left a CPU: voluntarily (it waited) or not (its time was up).",
    (SWITCH_TYPE,),
    scope=Scope.PROCESS,
    source="getrusage; absent for another process, where Linux counts the main thread alone",
)
PROCESS_PAGING_FAULTS = Metric(
    "process.paging.faults",
    Kind.COUNTER,
    "{fault}",
    "Page faults of the process; major ones had to read from a disk.",
    (FAULT_TYPE,),
    scope=Scope.PROCESS,
    source="/proc/{pid}/stat minflt, majflt",
)
PROCESS_FILE_DESCRIPTOR_COUNT = Metric(
    "process.unix.file_descriptor.count",
    Kind.UPDOWN,
    "{file_descriptor}",
    "Open file descriptors of the process.",
    scope=Scope.PROCESS,
    source="/proc/{pid}/fd; elsewhere psutil.Process.num_fds",
)
PROCESS_HANDLE_COUNT = Metric(
    "process.windows.handle.count",
    Kind.UPDOWN,
    "{handle}",
    "Open handles of the process.",
    scope=Scope.PROCESS,
    source="psutil.Process.num_handles, on Windows",
)
PROCESS_UPTIME = Metric(
    "process.uptime",
    Kind.GAUGE,
    "s",
    "Time since the process started.",
    scope=Scope.PROCESS,
    source="/proc/{pid}/stat starttime; elsewhere psutil.Process.create_time",
)
PROCESS_TREE_COUNT = Metric(
    "process.tree.count",
    Kind.UPDOWN,
    "{process}",
    "The process and all its descendants (1 without children; the other tree rows are then absent).",
    scope=Scope.PROCESS,
    source="/proc/{pid}/task/*/children; elsewhere psutil.Process.children",
    standard=False,
)
PROCESS_TREE_MEMORY_USAGE = Metric(
    "process.tree.memory.usage",
    Kind.UPDOWN,
    "By",
    "Resident memory of the process and its descendants; pages that they share count once for each.",
    scope=Scope.PROCESS,
    source="as process.memory.usage",
    standard=False,
)
PROCESS_TREE_CPU_UTILIZATION = Metric(
    "process.tree.cpu.utilization",
    Kind.GAUGE,
    "1",
    "CPU time of the process and its descendants over the time of the CPUs that they may use.",
    window=Window.RATIO,
    scope=Scope.PROCESS,
    source="as process.cpu.utilization",
    standard=False,
)
PROCESS_TREE_THREAD_COUNT = Metric(
    "process.tree.thread.count",
    Kind.UPDOWN,
    "{thread}",
    "Threads of the process and its descendants.",
    scope=Scope.PROCESS,
    source="as process.thread.count",
    standard=False,
)
GC_COLLECTIONS = Metric(
    "cpython.gc.collections",
    Kind.COUNTER,
    "{collection}",
    "Runs of the garbage collector.",
    (GC_GENERATION,),
    scope=Scope.PROCESS,
    opt_in="request",
    source="gc.get_stats",
)
GC_COLLECTED = Metric(
    "cpython.gc.collected_objects",
    Kind.COUNTER,
    "{object}",
    "Objects that the garbage collector freed.",
    (GC_GENERATION,),
    scope=Scope.PROCESS,
    opt_in="request",
    source="gc.get_stats",
)
GC_UNCOLLECTABLE = Metric(
    "cpython.gc.uncollectable_objects",
    Kind.COUNTER,
    "{object}",
    "Objects that the garbage collector could not free.",
    (GC_GENERATION,),
    scope=Scope.PROCESS,
    opt_in="request",
    source="gc.get_stats",
)
PROCESS_GPU_MEMORY_USAGE = Metric(
    "process.gpu.memory.usage",
    Kind.UPDOWN,
    "By",
    "GPU memory of the process and all its descendants; present while they use the GPU.",
    (HW_ID,),
    scope=Scope.PROCESS,
    source="nvmlDeviceGetComputeRunningProcesses, GetGraphicsRunningProcesses; amdgpu: /sys/class/kfd/kfd/proc, "
    "/proc/{pid}/fdinfo",
    standard=False,
)
PROCESS_GPU_UTILIZATION = Metric(
    "process.gpu.utilization",
    Kind.GAUGE,
    "1",
    "Share of the GPU that the process and all its descendants used.",
    (HW_ID, GPU_TASK),
    Window.MEAN,
    scope=Scope.PROCESS,
    source="nvmlDeviceGetProcessUtilization; amdgpu: /proc/{pid}/fdinfo",
    standard=False,
)

HW_NPU_FREQUENCY = Metric(
    "hw.npu.frequency",
    Kind.GAUGE,
    "Hz",
    "Operating frequency of an accelerator.",
    (HW_ID, HW_NAME, HW_PARENT),
    Window.MEAN,
    source="gcipuinfo: clock",
    wandb="ipu.{i}.clock (MHz)",
    standard=False,
)
HW_NPU_LINK_SPEED = Metric(
    "hw.npu.link.speed",
    Kind.GAUGE,
    "{transfer}/s",
    "Transfers that each lane of the link to an accelerator makes in a second.",
    (HW_ID, HW_NAME, HW_PARENT),
    source="gcipuinfo: link speed",
    wandb="ipu.{i}.speed (GT/s)",
    standard=False,
)
PROCESS_NPU_UTILIZATION = Metric(
    "process.npu.utilization",
    Kind.GAUGE,
    "1",
    "Utilization of an accelerator by the session of the process or one of its descendants.",
    (HW_ID,),
    Window.MEAN,
    scope=Scope.PROCESS,
    source="gcipuinfo: ipu utilisation (session)",
    wandb="ipu.{i}.ipu utilisation (session) (%)",
    standard=False,
)
AWS_NEURON_RUNTIME_MEMORY_USAGE = Metric(
    "aws.neuron.runtime.memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory that a Neuron runtime uses, on the host and on the devices.",
    (NEURON_MEMORY_TYPE, NEURON_TAG),
    scope=Scope.PROCESS,
    source="neuron-monitor: memory_used, neuron_runtime_used_bytes",
    wandb="trn.host_total_memory_usage, trn.neuron_device_total_memory_usage",
    standard=False,
)
AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE = Metric(
    "aws.neuron.runtime.host_memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory of the host that a Neuron runtime uses, by category.",
    (NEURON_MEMORY_CATEGORY, NEURON_TAG),
    scope=Scope.PROCESS,
    source="neuron-monitor: memory_used, usage_breakdown, host",
    wandb="trn.host_total_memory_usage.{category}, trn.host_memory_usage.{category}",
    standard=False,
)
AWS_NEURON_RUNTIME_CPU_UTILIZATION = Metric(
    "aws.neuron.runtime.cpu.utilization",
    Kind.GAUGE,
    "1",
    "Share of the instance's CPUs that the process of a Neuron runtime used.",
    (CPU_MODE, NEURON_TAG),
    Window.MEAN,
    scope=Scope.PROCESS,
    source="neuron-monitor: neuron_runtime_vcpu_usage",
    standard=False,
)
AWS_NEURON_NEURONCORE_MEMORY_USAGE = Metric(
    "aws.neuron.neuroncore.memory.usage",
    Kind.UPDOWN,
    "By",
    "Memory of a device that is in use for a NeuronCore, by category.",
    (HW_ID, HW_NAME, HW_PARENT, NEURON_MEMORY_CATEGORY),
    source="neuron-monitor: memory_used, usage_breakdown, neuroncore_memory_usage; without it "
    "/sys/devices/virtual/neuron_device/*/neuron_core*/stats/memory_usage/device_mem/*/present",
    wandb="trn.{i}.neuroncore_memory_usage.{category}",
    standard=False,
)
AWS_NEURON_EXECUTION_COUNT = Metric(
    "aws.neuron.execution.count",
    Kind.COUNTER,
    "{execution}",
    "Executions of models by how they ended, since this package began to listen.",
    (NEURON_RESULT, NEURON_TAG),
    scope=Scope.PROCESS,
    source="neuron-monitor: execution_stats, execution_summary, summed over its periods",
    standard=False,
)
AWS_NEURON_EXECUTION_ERRORS = Metric(
    "aws.neuron.execution.errors",
    Kind.COUNTER,
    "{error}",
    "Errors of executions by type; at least so many.",
    (ERROR_TYPE, NEURON_TAG),
    scope=Scope.PROCESS,
    source="neuron-monitor: execution_stats, error_summary; its increases are summed, because the numbers that were "
    "recorded are running totals, though they are documented as those of a period",
    standard=False,
)
AWS_NEURON_EXECUTION_LATENCY = Metric(
    "aws.neuron.execution.latency",
    Kind.GAUGE,
    "s",
    "Quantiles of the latency of executions: total, and of the device alone.",
    (NEURON_LATENCY, NEURON_QUANTILE, NEURON_TAG),
    scope=Scope.PROCESS,
    opt_in_extras="quantiles p0, p1, p25, p75",
    source="neuron-monitor: execution_stats, latency_stats, of its newest period",
    standard=False,
)

# Scraped endpoints; what stands on their pages is not in this vocabulary, and keeps its own names.
OPENMETRICS_UP = Metric(
    "openmetrics.up",
    Kind.GAUGE,
    "1",
    "1 where an endpoint has answered the newest scrape with a page, 0 where it has not.",
    (OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT),
    source="the endpoints of OPENMETRICS",
    standard=False,
)
OPENMETRICS_DURATION = Metric(
    "openmetrics.scrape.duration",
    Kind.GAUGE,
    "s",
    "Time until the whole page of the newest scrape was there.",
    (OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT),
    source="the endpoints of OPENMETRICS",
    standard=False,
)
OPENMETRICS_DROPPED = Metric(
    "openmetrics.scrape.dropped",
    Kind.GAUGE,
    "{series}",
    "Series of the newest scrape that filters want and limits leave out; otel-hardware doctor says which limits.",
    (OPENMETRICS_ENDPOINT, SERVER_ADDRESS, SERVER_PORT),
    source="the endpoints of OPENMETRICS",
    standard=False,
)

# Ourselves.
SOURCE_UP = Metric(
    "otel_hardware.source.up",
    Kind.GAUGE,
    "1",
    "1 where a source is read, 0 where it failed, hangs or lies.",
    (SOURCE,),
    scope=Scope.PROCESS,
    source="this package",
    standard=False,
)
SOURCE_READ_DURATION = Metric(
    "otel_hardware.source.read.duration",
    Kind.GAUGE,
    "s",
    "Wall time of the newest reading of a source.",
    (SOURCE,),
    scope=Scope.PROCESS,
    opt_in="request",
    source="this package",
    standard=False,
)
OWN_CPU_TIME = Metric(
    "otel_hardware.cpu.time",
    Kind.COUNTER,
    "s",
    "CPU time of this package's own threads.",
    scope=Scope.PROCESS,
    source="CLOCK_THREAD_CPUTIME_ID of each reading thread",
    standard=False,
)

CATALOG: Final[tuple[Metric, ...]] = tuple(row for row in tuple(globals().values()) if isinstance(row, Metric))
"""Every row, in the order above."""
