"""The attribute names of all metrics, and the meaning of those that the semantic conventions do not define."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CPU_MODE: Final = "cpu.mode"
CPU_NUMBER: Final = "cpu.logical_number"
MEMORY_STATE: Final = "system.memory.state"
MEMORY_STATES: Final = ("used", "available")
PAGING_STATE: Final = "system.paging.state"
PAGING_DIRECTION: Final = "system.paging.direction"
FAULT_TYPE: Final = "system.paging.fault.type"
DEVICE: Final = "system.device.name"
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
GPU_LINK: Final = "hw.gpu.link.type"
GPU_LINK_NUMBER: Final = "hw.gpu.link.number"
GPU_XID: Final = "hw.gpu.xid"
FAULT_REMEDY: Final = "hw.fault.remedy"
GPU_ECC_MODE: Final = "hw.gpu.ecc.mode"
GPU_PERSISTENCE_MODE: Final = "hw.gpu.persistence.mode"
GPU_CUDA_VERSION: Final = "hw.gpu.cuda.version"
THROTTLE_REASON: Final = "hw.gpu.throttle.reason"
GPU_BOTTLENECK: Final = "hw.gpu.bottleneck"
FREQUENCY_DOMAIN: Final = "hw.frequency.domain"
PCI_BDF: Final = "pci.bdf"
HOLDER_STATE: Final = "hw.holder.state"
K8S_NAMESPACE: Final = "k8s.namespace.name"
K8S_POD_NAME: Final = "k8s.pod.name"
K8S_POD_UID: Final = "k8s.pod.uid"
K8S_CONTAINER_NAME: Final = "k8s.container.name"
CONTAINER_ID: Final = "container.id"
SLURM_JOB_ID: Final = "slurm.job.id"
USER_ID: Final = "user.id"
USER_NAME: Final = "user.name"
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
TPU_STATISTIC: Final = "google.tpu.statistic"
SOURCE: Final = "otel_hardware.source"
OPENMETRICS_ENDPOINT: Final = "openmetrics.endpoint"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
SPAN_NAME: Final = "span.name"
SPAN_KIND: Final = "span.kind"
REQUEST_MODEL: Final = "gen_ai.request.model"

# Attribute sets that many metrics share.

# Identifies a device or a part of one; ``hw.parent`` is the ``hw.id`` of the whole device.
HW_DEVICE: Final = (HW_ID, HW_NAME, HW_PARENT)

# The same, for metrics of devices of several types.
HW_COMPONENT: Final = (HW_ID, HW_NAME, HW_TYPE, HW_PARENT)

# Attributes that describe a device. Only its ``info`` metric has them.
HW_INFO: Final = (*HW_DEVICE, HW_VENDOR, HW_MODEL, HW_SERIAL_NUMBER, HW_DRIVER_VERSION, HW_FIRMWARE_VERSION, PCI_BDF)

# A device and who uses it.
HW_HOLDER: Final = (
    *(*HW_COMPONENT, HOLDER_STATE, K8S_NAMESPACE, K8S_POD_NAME, K8S_POD_UID, K8S_CONTAINER_NAME, CONTAINER_ID),
    *(SLURM_JOB_ID, USER_ID, USER_NAME),
)

# Meaning and examples of the attributes that the semantic conventions do not define. Examples have the type of the
# values.
OWN_ATTRIBUTES: Final[Mapping[str, tuple[str, tuple[str, ...] | tuple[int, ...]]]] = {
    SPAN_NAME: ("Name of the span; other for those beyond the limit.", ("POST /generate",)),
    SPAN_KIND: ("Kind of the span.", ("server", "internal")),
    PRESSURE_RESOURCE: ("Resource that tasks waited for.", ("cpu", "memory", "io")),
    PRESSURE_KIND: ("Whether at least one task waited, or all of them.", ("some", "full")),
    GPU_INDEX: ("Index of the GPU in the order of its driver.", (0, 1)),
    GPU_TYPE: ("Kind of GPU; a partition is a part of one, such as a MIG instance.", ("discrete", "integrated")),
    GPU_LINK: ("Kind of link of the GPU to other devices.", ("pcie", "nvlink", "xgmi")),
    GPU_LINK_NUMBER: ("Number of one of several links of a kind.", (0, 17)),
    THROTTLE_REASON: ("Why the clocks were throttled.", ("power_cap", "thermal_hw")),
    GPU_BOTTLENECK: (
        "What holds the GPU back, as reported by otel-hardware why; none, waiting or unknown if no rule matches.",
        ("none", "storage", "throttled"),
    ),
    FREQUENCY_DOMAIN: ("Part of the GPU with a clock of its own.", ("graphics", "memory", "sm")),
    PCI_BDF: ("PCI address: domain, bus, device and function.", ("0000:2f:00.0",)),
    HOLDER_STATE: (
        "used: its processes use the device. allocated: a scheduler gave it the device. none: no process.",
        ("used", "allocated", "none"),
    ),
    SLURM_JOB_ID: ("Id of a SLURM job, or of the job that a job file names.", ("4711",)),
    GPU_ECC_MODE: ("Whether the memory of the GPU is protected by ECC.", ("enabled", "disabled")),
    GPU_PERSISTENCE_MODE: ("Whether the driver stays loaded while no program uses the GPU.", ("enabled", "disabled")),
    GPU_CUDA_VERSION: ("Newest version of CUDA that the driver supports.", ("12.8",)),
    GPU_XID: ("Number of an NVIDIA Xid event; other for an unknown number.", ("79", "48")),
    FAULT_REMEDY: ("What to do about a fault. Of events only.", ("move the work away and reset the GPU",)),
    NPU_TASK: ("What the accelerator was busy with, or one of its units.", ("general", "tensorcore")),
    NEURON_MEMORY_TYPE: ("Where the memory is.", ("host", "device")),
    NEURON_MEMORY_CATEGORY: ("Use of the memory, as neuron-monitor names it.", ("tensors", "constants")),
    NEURON_RESULT: ("Result of a model execution, as neuron-monitor names it.", ("completed", "timed_out")),
    NEURON_LATENCY: ("Whether the latency is of the device only.", ("total", "device")),
    NEURON_QUANTILE: ("Quantile of the latency.", ("p50", "p99")),
    NEURON_TAG: ("Tag of a Neuron runtime: NEURON_PROCESS_TAG of its program.", ("my_app",)),
    TPU_CORE_TYPE: ("Type of the cores of a TPU device.", ("tensorcore",)),
    TPU_TRANSFER_KIND: ("Source and destination of a transfer.", ("dcn", "host_to_device")),
    TPU_BUFFER_SIZE: ("Size of the smallest buffer of a group.", ("1MB+", "8MB+")),
    TPU_STATISTIC: ("Mean or quantile of a distribution.", ("mean", "p50", "p999")),
    TPU_LINK: ("Link between TPU chips, as libtpu names it.", ("tray1.chip0.ici0.int",)),
    SOURCE: ("Source of this package. A scraped endpoint has its name after a colon.", ("nvidia", "openmetrics:vllm")),
    OPENMETRICS_ENDPOINT: ("Name of a scraped endpoint in the setting OPENMETRICS.", ("vllm",)),
}

# Meaning and examples of the resource attributes that the semantic conventions do not define.
RESOURCE_ATTRIBUTES: Final[Mapping[str, tuple[str, tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]]]] = {
    "training_job.id": ("Id of the job of SLURM, Ray, MPI or torchrun.", ("4711",)),
    "training_job.system": ("What runs the job.", ("slurm", "ray", "mpi", "torchelastic", "torch")),
    "ray.job_id": ("Id of a Ray job.", ("02000000",)),
    "slurm.job.name": ("Name of a SLURM job.", ("pretrain",)),
    "slurm.partition": ("Partition of a SLURM job.", ("h100",)),
    "slurm.account": ("Account of a SLURM job.", ("nlp",)),
    "slurm.user": ("User of a SLURM job.", ("ada",)),
    "dl.rank": ("Number of the process in its job.", (0, 7)),
    "dl.local_rank": ("Number of the process on its node.", (0, 7)),
    "dl.world_size": ("Number of processes of the job.", (64,)),
    "dl.node_rank": ("Number of the node in the job.", (0, 7)),
    "otel_hardware.simulated": ("Whether the GPUs are simulated.", (True,)),
}
