"""Metrics of the host and of the container of the observed process."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog import attributes as a
from opentelemetry.instrumentation.hardware.model import Window, counter, gauge, updown

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

SYSTEM_CPU_TIME = counter(
    "system.cpu.time", "s", (a.CPU_MODE, a.CPU_NUMBER),
    "CPU time by mode, summed over all logical CPUs.",
    source="/proc/stat; elsewhere psutil.cpu_times",
    opt_in_extras="with DETAIL=cpu one series per logical CPU instead of their sum", dips=True,
)
SYSTEM_CPU_UTILIZATION = gauge(
    "system.cpu.utilization", "1", (a.CPU_MODE, a.CPU_NUMBER),
    "Share of CPU time spent in each mode since the previous collection.",
    source="increase of system.cpu.time in the mode over the increase in all modes",
    window=Window.RATIO, opt_in_extras="mode idle; with DETAIL=cpu one series per logical CPU",
)
SYSTEM_CPU_LOGICAL_COUNT = updown(
    "system.cpu.logical.count", "{cpu}", (),
    "Number of logical CPUs of the host.",
    source="sysconf(_SC_NPROCESSORS_ONLN); elsewhere psutil.cpu_count",
)
SYSTEM_CPU_PHYSICAL_COUNT = updown(
    "system.cpu.physical.count", "{cpu}", (),
    "Number of physical CPU cores of the host.",
    source="/sys/devices/system/cpu/cpu*/topology; elsewhere psutil.cpu_count(logical=False)",
)
SYSTEM_CPU_FREQUENCY = gauge(
    "system.cpu.frequency", "Hz", (a.CPU_NUMBER,),
    "Operating frequency of a logical CPU.",
    source="/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq; elsewhere psutil.cpu_freq",
    window=Window.MEAN, opt_in="cpu",
)
SYSTEM_CPU_LOAD_1M = gauge(
    "system.cpu.load_average.1m", "{thread}", (),
    "Threads that run or wait for a CPU or for disk I/O; the kernel's 1-minute load average.",
    source="/proc/loadavg; elsewhere psutil.getloadavg",
    standard=False,
)
SYSTEM_CPU_LOAD_5M = gauge(
    "system.cpu.load_average.5m", "{thread}", (),
    "Threads that run or wait for a CPU or for disk I/O; the kernel's 5-minute load average.",
    source="/proc/loadavg; elsewhere psutil.getloadavg",
    opt_in="request", standard=False,
)
SYSTEM_CPU_LOAD_15M = gauge(
    "system.cpu.load_average.15m", "{thread}", (),
    "Threads that run or wait for a CPU or for disk I/O; the kernel's 15-minute load average.",
    source="/proc/loadavg; elsewhere psutil.getloadavg",
    opt_in="request", standard=False,
)

# Memory and paging.
SYSTEM_MEMORY_USAGE = updown(
    "system.memory.usage", "By", (a.MEMORY_STATE,),
    "Memory by state. The states add up to system.memory.limit.",
    source="/proc/meminfo: MemAvailable, and used for the remainder; before Linux 3.14 MemFree + Buffers + Cached; "
    "elsewhere psutil.virtual_memory",
)
SYSTEM_MEMORY_UTILIZATION = gauge(
    "system.memory.utilization", "1", (a.MEMORY_STATE,),
    "Share of the host's memory in each state.",
    source="system.memory.usage over system.memory.limit",
    window=Window.MEAN, opt_in_extras=f"states {', '.join(a.MEMORY_STATES[1:])}",
)
SYSTEM_MEMORY_LIMIT = updown(
    "system.memory.limit", "By", (),
    "Total memory of the host.",
    source="/proc/meminfo: MemTotal; elsewhere psutil.virtual_memory",
)
SYSTEM_MEMORY_LINUX_AVAILABLE = updown(
    "system.memory.linux.available", "By", (),
    "Memory available to programs without swapping, as estimated by the Linux kernel.",
    source="as system.memory.usage with the state available",
)
SYSTEM_PAGING_USAGE = updown(
    "system.paging.usage", "By", (a.PAGING_STATE,),
    "Swap space by state.",
    source="/proc/meminfo: SwapTotal, SwapFree; elsewhere psutil.swap_memory",
)
SYSTEM_PAGING_UTILIZATION = gauge(
    "system.paging.utilization", "1", (a.PAGING_STATE,),
    "Share of the swap space in each state. Absent on hosts without swap space.",
    source="system.paging.usage over the sum of its states",
    window=Window.MEAN, opt_in_extras="state free",
)
SYSTEM_PAGING_FAULTS = counter(
    "system.paging.faults", "{fault}", (a.FAULT_TYPE,),
    "Page faults of the host. A major fault had to read from a disk.",
    source="/proc/vmstat: pgfault, pgmajfault", dips=True,
)
SYSTEM_PAGING_OPERATIONS = counter(
    "system.paging.operations", "{operation}", (a.PAGING_DIRECTION,),
    "Pages swapped in and out.",
    source="/proc/vmstat: pswpin, pswpout; elsewhere psutil.swap_memory",
    opt_in="request",
)
SYSTEM_MEMORY_OOM_KILLS = counter(
    "system.memory.linux.oom_kills", "{process}", (),
    "Processes killed because memory, or the memory of their cgroup, was exhausted.",
    source="/proc/vmstat: oom_kill (Linux 4.13 and newer)",
    standard=False,
)
SYSTEM_MEMORY_DIRECT_RECLAIM = counter(
    "system.memory.linux.direct_reclaim.scanned", "{page}", (),
    "Pages scanned by tasks that had to wait for free memory. kswapd scans pages without making tasks wait.",
    source="/proc/vmstat: pgscan_direct",
    opt_in="request", standard=False,
)

# Disks and file systems.
SYSTEM_DISK_IO = counter(
    "system.disk.io", "By", (a.DEVICE, a.DISK_DIRECTION),
    "Bytes read from and written to a disk. Partitions are not counted separately.",
    source="/proc/diskstats (sectors of 512 bytes); elsewhere psutil.disk_io_counters",
    opt_in_extras="with DETAIL=devices also partitions and virtual disks",
)
SYSTEM_DISK_OPERATIONS = counter(
    "system.disk.operations", "{operation}", (a.DEVICE, a.DISK_DIRECTION),
    "Read and write operations that a disk completed.",
    source="/proc/diskstats; elsewhere psutil.disk_io_counters",
)
SYSTEM_DISK_OPERATION_TIME = counter(
    "system.disk.operation_time", "s", (a.DEVICE, a.DISK_DIRECTION),
    "Sum of the time that each operation took. Divided by system.disk.operations it is the mean latency.",
    source="/proc/diskstats; elsewhere psutil.disk_io_counters",
    opt_in="request",
)
SYSTEM_DISK_IO_TIME = counter(
    "system.disk.io_time", "s", (a.DEVICE,),
    "Time during which a disk had operations in progress. Its rate is the utilization of the disk.",
    source="/proc/diskstats; elsewhere psutil.disk_io_counters (busy_time)",
)
SYSTEM_FILESYSTEM_USAGE = updown(
    "system.filesystem.usage", "By", (a.DEVICE, a.FILESYSTEM_STATE, a.FILESYSTEM_TYPE, a.FILESYSTEM_MOUNTPOINT),
    "Space of a file system by state. Reserved space is usable by root only. The states add up to the limit.",
    source="statvfs",
)
SYSTEM_FILESYSTEM_UTILIZATION = gauge(
    "system.filesystem.utilization", "1", (a.DEVICE, a.FILESYSTEM_STATE, a.FILESYSTEM_TYPE, a.FILESYSTEM_MOUNTPOINT),
    "Share of the file system's space in each state, with reserved space in the total. df shows used / (used + free).",
    source="statvfs",
    window=Window.MEAN, opt_in_extras="states free, reserved",
)
SYSTEM_FILESYSTEM_LIMIT = updown(
    "system.filesystem.limit", "By", (a.DEVICE, a.FILESYSTEM_TYPE, a.FILESYSTEM_MOUNTPOINT),
    "Total space of a file system.",
    source="statvfs",
)

# Network.
SYSTEM_NETWORK_IO = counter(
    "system.network.io", "By", (a.INTERFACE, a.NETWORK_DIRECTION),
    "Bytes sent and received by an interface.",
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
    opt_in_extras="with DETAIL=devices also virtual interfaces, such as loopback",
)
SYSTEM_NETWORK_PACKET_COUNT = counter(
    "system.network.packet.count", "{packet}", (a.INTERFACE, a.NETWORK_DIRECTION),
    "Packets sent and received by an interface.",
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
    opt_in="request",
)
SYSTEM_NETWORK_PACKET_DROPPED = counter(
    "system.network.packet.dropped", "{packet}", (a.INTERFACE, a.NETWORK_DIRECTION),
    "Packets dropped although there was no error.",
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
)
SYSTEM_NETWORK_ERRORS = counter(
    "system.network.errors", "{error}", (a.INTERFACE, a.NETWORK_DIRECTION),
    "Transmit and receive errors of an interface.",
    source="/proc/net/dev; elsewhere psutil.net_io_counters",
)
SYSTEM_NETWORK_TCP_RETRANSMITS = counter(
    "system.network.linux.tcp.retransmits", "{segment}", (),
    "TCP segments that were sent again because no acknowledgement came: packets are lost, or late.",
    source="/proc/net/snmp: RetransSegs, of the network namespace",
    opt_in="request", standard=False,
)
SYSTEM_NETWORK_CONNECTION_COUNT = updown(
    "system.network.connection.count", "{connection}", (a.NETWORK_TRANSPORT, a.CONNECTION_STATE),
    "Sockets by transport and state, from the kernel's totals.",
    source="/proc/net/sockstat, sockstat6, snmp (CurrEstab); absent on other systems",
    opt_in="connections",
)

# System.
SYSTEM_UPTIME = gauge(
    "system.uptime", "s", (),
    "Time since the system started.",
    source="CLOCK_BOOTTIME; elsewhere psutil.boot_time",
)
SYSTEM_PROCESS_COUNT = updown(
    "system.process.count", "{process}", (a.PROCESS_STATE,),
    "Number of processes by state.",
    source="/proc/{pid}/stat of all processes, read at most every 10 s; absent where others are hidden; Linux only",
    opt_in="processes",
)
SYSTEM_PRESSURE_TIME = counter(
    "system.pressure.linux.time", "s", (a.PRESSURE_RESOURCE, a.PRESSURE_KIND),
    "Time during which some tasks, or all of them (full), waited for a resource. Its rate is the share of time lost.",
    source="/proc/pressure/{cpu,memory,io}: total; full of cpu is not defined for a host",
    standard=False,
)

# Container of the observed process.
CONTAINER_CPU_TIME = counter(
    "container.cpu.time", "s", (),
    "CPU time used by the cgroup with the lowest CPU limit; without a limit by the process's own.",
    source="cgroup v2 cpu.stat: usage_usec; v1 cpuacct.usage",
)
CONTAINER_MEMORY_USAGE = updown(
    "container.memory.usage", "By", (),
    "Memory, page cache included, of the cgroup with the lowest memory limit; without a limit of the process's own.",
    source="cgroup v2 memory.current; v1 memory.usage_in_bytes",
)
CONTAINER_MEMORY_WORKING_SET = updown(
    "container.memory.working_set", "By", (),
    "Memory without page cache that the kernel can reclaim at once, of the same cgroup as container.memory.usage.",
    source="container.memory.usage minus inactive_file (memory.stat; v1 total_inactive_file), at least 0",
)
CONTAINER_MEMORY_AVAILABLE = updown(
    "container.memory.available", "By", (),
    "Memory limit minus working set: what is left before processes are killed. Absent without a limit.",
    source="container.memory.limit minus container.memory.working_set, at least 0",
)
CONTAINER_MEMORY_OOM_KILLS = counter(
    "container.memory.linux.oom_kills", "{process}", (),
    "Processes killed in the cgroup with the lowest memory limit, and in those below it, because memory was exhausted.",
    source="cgroup v2 memory.events: oom_kill; v1 memory.oom_control: oom_kill, of that cgroup only",
    standard=False,
)
CONTAINER_MEMORY_LIMIT = updown(
    "container.memory.limit", "By", (),
    "Lowest memory limit of the process's cgroup and its ancestors. Absent without a limit.",
    source="cgroup v2 memory.max; v1 memory.limit_in_bytes",
    standard=False,
)
CONTAINER_CPU_LIMIT = updown(
    "container.cpu.limit", "{cpu}", (),
    "Lowest CPU limit of the process's cgroup and its ancestors. Absent without a limit.",
    source="cgroup v2 cpu.max; v1 cpu.cfs_quota_us over cpu.cfs_period_us",
    standard=False,
)
CONTAINER_CPU_THROTTLED_TIME = counter(
    "container.cpu.throttled.time", "s", (),
    "Time during which tasks of the cgroup with the lowest CPU limit were runnable but throttled.",
    source="cgroup cpu.stat: v2 throttled_usec, v1 throttled_time",
    standard=False,
)
CONTAINER_CPU_PERIODS = counter(
    "container.cpu.periods", "{period}", (),
    "Enforcement periods of the lowest CPU limit that have elapsed while tasks of its cgroup were runnable.",
    source="cgroup cpu.stat: nr_periods",
    standard=False,
)
CONTAINER_CPU_THROTTLED_PERIODS = counter(
    "container.cpu.throttled.periods", "{period}", (),
    "Enforcement periods in which the cgroup with the lowest CPU limit used up its time. Divide the increase by that "
    "of container.cpu.periods for the share of throttled periods.",
    source="cgroup cpu.stat: nr_throttled",
    standard=False,
)
CONTAINER_PRESSURE_TIME = counter(
    "container.pressure.linux.time", "s", (a.PRESSURE_RESOURCE, a.PRESSURE_KIND),
    "Time during which some tasks of the container, or all of them (full), waited for a resource. Throttling counts as "
    "waiting for the CPU. Its rate is the share of time lost.",
    source="cgroup v2 {cpu,memory,io}.pressure: total, for cpu of the cgroup with the lowest CPU limit, else of the "
    "one with the lowest memory limit",
    standard=False,
)
