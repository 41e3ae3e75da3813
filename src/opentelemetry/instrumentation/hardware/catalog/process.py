"""Metrics of a process and its descendants. Every process reports its own."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog import attributes as a
from opentelemetry.instrumentation.hardware.model import Scope, Window, counter, gauge, updown

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

PROCESS_CPU_TIME = counter(
    "process.cpu.time", "s", (a.CPU_MODE,),
    "CPU time of the process by mode.",
    source="getrusage; of another process /proc/{pid}/stat; elsewhere psutil.Process.cpu_times",
    scope=Scope.PROCESS,
)
PROCESS_CPU_UTILIZATION = gauge(
    "process.cpu.utilization", "1", (a.CPU_MODE,),
    "CPU time of the process over the CPU time available to it (affinity, cgroup limit) since the previous collection.",
    source="increase of process.cpu.time over elapsed time x available CPUs",
    window=Window.RATIO, scope=Scope.PROCESS,
)
PROCESS_CPU_LIMIT = updown(
    "process.cpu.limit", "{cpu}", (),
    "CPUs that the process may use, by its affinity and the lowest limit of its cgroup and its ancestors.",
    source="sched_getaffinity of all threads, else the number of logical CPUs; container.cpu.limit",
    scope=Scope.PROCESS, opt_in="request", standard=False,
)
PROCESS_THREAD_COUNT = updown(
    "process.thread.count", "{thread}", (),
    "Number of threads of the process.",
    source="/proc/{pid}/stat num_threads; elsewhere psutil.Process.num_threads",
    scope=Scope.PROCESS,
)
PROCESS_MEMORY_USAGE = updown(
    "process.memory.usage", "By", (),
    "Resident memory of the process.",
    source="/proc/{pid}/statm; elsewhere psutil.Process.memory_info().rss",
    scope=Scope.PROCESS,
)
PROCESS_MEMORY_VIRTUAL = updown(
    "process.memory.virtual", "By", (),
    "Virtual memory size of the process.",
    source="/proc/{pid}/statm; elsewhere psutil.Process.memory_info().vms",
    scope=Scope.PROCESS,
)
PROCESS_MEMORY_UTILIZATION = gauge(
    "process.memory.utilization", "1", (),
    "Resident memory over the lowest cgroup memory limit, or over the host's memory if there is no limit.",
    source="process.memory.usage over the limit",
    window=Window.MEAN, scope=Scope.PROCESS,
)
PROCESS_MEMORY_PEAK = gauge(
    "process.memory.peak", "By", (),
    "Highest sample of the resident memory since the previous collection.",
    source="as process.memory.usage",
    window=Window.PEAK, scope=Scope.PROCESS, standard=False,
)
PROCESS_DISK_IO = counter(
    "process.disk.io", "By", (a.DISK_DIRECTION,),
    "Bytes read from and written to storage on behalf of the process.",
    source="getrusage (blocks of 512 bytes); of another process /proc/{pid}/io read_bytes, write_bytes, which include "
    "children that it has waited for; elsewhere psutil.Process.io_counters",
    scope=Scope.PROCESS,
)
PROCESS_DISK_OPERATIONS = counter(
    "process.disk.operations", "{operation}", (a.DISK_DIRECTION,),
    "Read and write system calls of the process; on Linux also of children that it has waited for.",
    source="/proc/{pid}/io syscr, syscw; elsewhere psutil.Process.io_counters",
    scope=Scope.PROCESS, opt_in="request",
)
PROCESS_CONTEXT_SWITCHES = counter(
    "process.context_switches", "{context_switch}", (a.SWITCH_TYPE,),
    "Context switches of the process: voluntary (it waited) or involuntary (its time slice ended).",
    source="getrusage; absent for another process, for which Linux counts the main thread only",
    scope=Scope.PROCESS,
)
PROCESS_PAGING_FAULTS = counter(
    "process.paging.faults", "{fault}", (a.FAULT_TYPE,),
    "Page faults of the process. A major fault had to read from a disk.",
    source="getrusage; of another process /proc/{pid}/stat minflt, majflt",
    scope=Scope.PROCESS,
)
PROCESS_FILE_DESCRIPTOR_COUNT = updown(
    "process.unix.file_descriptor.count", "{file_descriptor}", (),
    "Open file descriptors of the process.",
    source="/proc/{pid}/fd; elsewhere psutil.Process.num_fds",
    scope=Scope.PROCESS,
)
PROCESS_HANDLE_COUNT = updown(
    "process.windows.handle.count", "{handle}", (),
    "Open handles of the process.",
    source="psutil.Process.num_handles, on Windows",
    scope=Scope.PROCESS,
)
PROCESS_UPTIME = gauge(
    "process.uptime", "s", (),
    "Time since the process started.",
    source="/proc/{pid}/stat starttime; elsewhere psutil.Process.create_time",
    scope=Scope.PROCESS,
)
PROCESS_TREE_COUNT = updown(
    "process.tree.count", "{process}", (),
    "Number of processes in the tree: the process and its descendants. If it is 1, its memory and threads are absent.",
    source="/proc/{pid}/task/*/children; elsewhere psutil.Process.children",
    scope=Scope.PROCESS, standard=False,
)
PROCESS_TREE_MEMORY_USAGE = updown(
    "process.tree.memory.usage", "By", (),
    "Resident memory of the process and its descendants. Shared pages are counted once per process.",
    source="as process.memory.usage",
    scope=Scope.PROCESS, standard=False,
)
PROCESS_TREE_CPU_UTILIZATION = gauge(
    "process.tree.cpu.utilization", "1", (),
    "CPU time of the process and its descendants over the CPU time available to them. Present from the first child on. "
    "Children that have ended count if their parent has waited for them.",
    source="as process.cpu.utilization; /proc/{pid}/stat cutime, cstime for children that have ended",
    window=Window.RATIO, scope=Scope.PROCESS, standard=False,
)
PROCESS_TREE_THREAD_COUNT = updown(
    "process.tree.thread.count", "{thread}", (),
    "Number of threads of the process and its descendants.",
    source="as process.thread.count",
    scope=Scope.PROCESS, standard=False,
)
GC_COLLECTIONS = counter(
    "cpython.gc.collections", "{collection}", (a.GC_GENERATION,),
    "Runs of the garbage collector by generation.",
    source="gc.get_stats",
    scope=Scope.PROCESS, opt_in="request",
)
GC_COLLECTED = counter(
    "cpython.gc.collected_objects", "{object}", (a.GC_GENERATION,),
    "Objects freed by the garbage collector.",
    source="gc.get_stats",
    scope=Scope.PROCESS, opt_in="request",
)
GC_UNCOLLECTABLE = counter(
    "cpython.gc.uncollectable_objects", "{object}", (a.GC_GENERATION,),
    "Objects the garbage collector could not free.",
    source="gc.get_stats",
    scope=Scope.PROCESS, opt_in="request",
)
PROCESS_GPU_MEMORY_USAGE = updown(
    "process.gpu.memory.usage", "By", (a.HW_ID,),
    "GPU memory used by the process and its descendants. Present while they use the GPU.",
    source="nvmlDeviceGetComputeRunningProcesses, GetGraphicsRunningProcesses; amdgpu: /sys/class/kfd/kfd/proc; "
    "drivers of the Direct Rendering Manager: /proc/{pid}/fdinfo",
    scope=Scope.PROCESS, standard=False,
)
PROCESS_GPU_UTILIZATION = gauge(
    "process.gpu.utilization", "1", (a.HW_ID, a.GPU_TASK),
    "GPU utilization by the process and its descendants.",
    source="nvmlDeviceGetProcessUtilization; drivers of the Direct Rendering Manager: /proc/{pid}/fdinfo",
    window=Window.MEAN, scope=Scope.PROCESS, standard=False,
)
PROCESS_NPU_UTILIZATION = gauge(
    "process.npu.utilization", "1", (a.HW_ID,),
    "Utilization of an accelerator by the process or one of its descendants.",
    source="gcipuinfo: ipu utilisation (session); NPUs of laptops: /proc/{pid}/fdinfo; hl-smi: utilization.aip",
    window=Window.MEAN, scope=Scope.PROCESS, standard=False,
)
PROCESS_NPU_MEMORY_USAGE = updown(
    "process.npu.memory.usage", "By", (a.HW_ID,),
    "Memory of an accelerator used by the process and its descendants. Present while they use the accelerator.",
    source="NPUs of laptops: /proc/{pid}/fdinfo, memory of the host",
    scope=Scope.PROCESS, standard=False,
)
