"""Metrics of GPUs."""

from __future__ import annotations

from opentelemetry.instrumentation.hardware.catalog import attributes as a
from opentelemetry.instrumentation.hardware.catalog.events import RECOVERY_ACTIONS
from opentelemetry.instrumentation.hardware.model import Window, counter, gauge, updown

# A table: the lines of a row are its name, help text, source and options.
# fmt: off

HW_GPU_INFO = gauge(
    "hw.gpu.info", "{info}",
    (*a.HW_INFO, a.GPU_INDEX, a.GPU_TYPE, a.GPU_ECC_MODE, a.GPU_PERSISTENCE_MODE, a.GPU_CUDA_VERSION),
    "Constant 1. The attributes describe the GPU; join them to other metrics by host and hw.id.",
    source="nvmlDeviceGetName, nvmlDeviceGetUUID, nvmlDeviceGetSerial, nvmlDeviceGetPciInfo_v3, "
    "nvmlDeviceGetVbiosVersion, nvmlDeviceGetEccMode, nvmlDeviceGetPersistenceMode, nvmlSystemGetDriverVersion, "
    "nvmlSystemGetCudaDriverVersion; amdgpu: unique_id, product_name or libdrm's "
    "amdgpu.ids, serial_number, vbios_version; other drivers of the Direct "
    "Rendering Manager: /sys/class/drm/card*/device",
    standard=False,
)
HW_GPU_UTILIZATION = gauge(
    "hw.gpu.utilization", "1", (*a.HW_DEVICE, a.GPU_TASK),
    "Share of time during which the GPU was busy with a task. For sm, tensor, dram and fp* it is the share of the "
    "unit's peak rate, also for integer and tensor_*; for scaled, of the GPU's capacity at its highest frequency.",
    source="general: nvmlDeviceGetSamples, else nvmlDeviceGetUtilizationRates, also for memory, "
    "else nvmlGpmMetricsGet, as for a MIG instance; encoder, decoder, "
    "jpeg, ofa: nvmlDeviceGetEncoderUtilization and similar; sm, tensor, dram, fp64, fp32, fp16: "
    "nvmlGpmMetricsGet; Jetson: load (general); amdgpu: gpu_busy_percent, mem_busy_percent (memory), gpu_metrics "
    "(video, jpeg); Apple: Device, Renderer and Tiler Utilization % of the I/O registry, macmon gpu_active_ratio "
    "(general), gpu_scaled_ratio (scaled); i915, xe: time out of RC6 (general), of a media GT (video), "
    "which includes the moments before the GPU is put into this state; v3d: gpu_stats (general); other drivers of the "
    "Direct Rendering Manager: sum of all processes",
    window=Window.MEAN, opt_in_extras="with DETAIL=gpu integer, tensor_dfma, tensor_hmma, tensor_dmma and tensor_imma",
)
HW_GPU_UTILIZATION_PEAK = gauge(
    "hw.gpu.utilization.peak", "1", a.HW_DEVICE,
    "Highest sample of the general utilization since the previous collection.",
    source="as hw.gpu.utilization",
    window=Window.PEAK, standard=False,
)
HW_GPU_TIME = counter(
    "hw.gpu.time", "s", (*a.HW_DEVICE, a.GPU_TASK),
    "Time during which the GPU was busy with a task, since instrumentation started.",
    source="integral of hw.gpu.utilization",
    standard=False,
)
HW_GPU_SM_OCCUPANCY = gauge(
    "hw.gpu.sm.occupancy", "1", a.HW_DEVICE,
    "Warps resident on the streaming multiprocessors, as a share of the maximum.",
    source="nvmlGpmMetricsGet: NVML_GPM_METRIC_SM_OCCUPANCY",
    window=Window.MEAN, standard=False,
)
HW_GPU_MEMORY_USAGE = updown(
    "hw.gpu.memory.usage", "By", a.HW_DEVICE,
    "GPU memory in use, without memory reserved by the driver where the driver reports it separately.",
    source="nvmlDeviceGetMemoryInfo_v2: used; older drivers nvmlDeviceGetMemoryInfo; NVIDIA GPUs that use the host's "
    "memory: sum of their processes; amdgpu: mem_info_vram_used, of a GPU that is part of a CPU with "
    "mem_info_gtt_used; Apple: In use system memory of the I/O registry; xe, where the kernel has it: vram*/used_bytes",
)
HW_GPU_MEMORY_LIMIT = updown(
    "hw.gpu.memory.limit", "By", a.HW_DEVICE,
    "Total memory of the GPU.",
    source="nvmlDeviceGetMemoryInfo_v2: total; NVIDIA GPUs that use the host's memory: its size; amdgpu: "
    "mem_info_vram_total, of a GPU that is part of a CPU with mem_info_gtt_total; xe, where the kernel has it: "
    "vram*/total_bytes",
)
HW_GPU_MEMORY_UTILIZATION = gauge(
    "hw.gpu.memory.utilization", "1", a.HW_DEVICE,
    "Share of the GPU memory in use.",
    source="hw.gpu.memory.usage over hw.gpu.memory.limit",
    window=Window.MEAN,
)
HW_GPU_MEMORY_ALLOCATED = updown(
    "hw.gpu.memory.allocated", "By", a.HW_DEVICE,
    "System memory that programs have allocated for the GPU; hw.gpu.memory.usage is the part in use.",
    source="Apple: Alloc system memory of the I/O registry",
    opt_in="gpu", standard=False,
)
HW_GPU_MEMORY_OVERDRIVE_RATIO = gauge(
    "hw.gpu.memory.overdrive_ratio", "1", a.HW_DEVICE,
    "How far the memory clock may exceed its default, as a share of it.",
    source="amdgpu: pp_mclk_od; rocm-smi: GPU Memory OverDrive value",
    opt_in="gpu", standard=False,
)
HW_GPU_MEMORY_ERRORS = counter(
    "hw.gpu.memory.errors", "{error}", (*a.HW_DEVICE, a.ERROR_TYPE),
    "ECC errors of the GPU's memory since its driver was loaded; hw.errors counts over the lifetime of the GPU.",
    source="nvmlDeviceGetMemoryErrorCounter: NVML_VOLATILE_ECC, NVML_MEMORY_LOCATION_DEVICE_MEMORY",
    opt_in="request", standard=False,
)
HW_GPU_MEMORY_PEAK = gauge(
    "hw.gpu.memory.peak", "By", a.HW_DEVICE,
    "Highest sample of the GPU memory in use since the previous collection.",
    source="as hw.gpu.memory.usage",
    window=Window.PEAK, standard=False,
)
HW_GPU_BAR1_USAGE = updown(
    "hw.gpu.bar1.usage", "By", a.HW_DEVICE,
    "Used part of the GPU memory that is mapped over PCIe (BAR1).",
    source="nvmlDeviceGetBAR1MemoryInfo",
    opt_in="gpu", standard=False,
)
HW_GPU_BAR1_LIMIT = updown(
    "hw.gpu.bar1.limit", "By", a.HW_DEVICE,
    "GPU memory that can be mapped over PCIe (BAR1).",
    source="nvmlDeviceGetBAR1MemoryInfo",
    opt_in="gpu", standard=False,
)
HW_GPU_PCIE_GENERATION = gauge(
    "hw.gpu.pcie.generation", "{generation}", a.HW_DEVICE,
    "PCIe generation of the link to the GPU. An idle link may use a lower one to save power.",
    source="nvmlDeviceGetCurrPcieLinkGeneration, once a minute; amdgpu: gpu_metrics; i915, xe: current_link_speed",
    standard=False,
)
HW_GPU_PCIE_GENERATION_LIMIT = gauge(
    "hw.gpu.pcie.generation.limit", "{generation}", a.HW_DEVICE,
    "Highest PCIe generation that both the GPU and its slot support.",
    source="nvmlDeviceGetMaxPcieLinkGeneration",
    standard=False,
)
HW_GPU_PCIE_WIDTH = gauge(
    "hw.gpu.pcie.width", "{lane}", a.HW_DEVICE,
    "PCIe lanes of the link to the GPU.",
    source="nvmlDeviceGetCurrPcieLinkWidth, once a minute; amdgpu: gpu_metrics; i915, xe: current_link_width",
    standard=False,
)
HW_GPU_PCIE_WIDTH_LIMIT = gauge(
    "hw.gpu.pcie.width.limit", "{lane}", a.HW_DEVICE,
    "Highest number of PCIe lanes that both the GPU and its slot support.",
    source="nvmlDeviceGetMaxPcieLinkWidth",
    standard=False,
)
HW_GPU_IO = counter(
    "hw.gpu.io", "By", (*a.HW_DEVICE, a.NETWORK_DIRECTION, a.GPU_LINK),
    "Bytes sent and received by the GPU over a link.",
    source="PCIe: integral of NVML's GPM metrics PCIE_TX_PER_SEC, PCIE_RX_PER_SEC (Hopper and newer); NVLink: NVML "
    "fields NVLINK_THROUGHPUT_DATA_TX, _RX (sum of all links); amdgpu: gpu_metrics (xgmi; its PCIe "
    "bandwidth is left out, because it has no direction and no defined unit)",
)
HW_GPU_NVLINK_UP = updown(
    "hw.gpu.nvlink.up", "{link}", (*a.HW_DEVICE, a.GPU_LINK_NUMBER),
    "Active NVLinks of the GPU.",
    source="NVML field NVLINK_GET_STATE, once a minute",
    opt_in_extras="with DETAIL=gpu one series per NVLink instead of their sum", standard=False,
)
HW_GPU_NVLINK_IO = counter(
    "hw.gpu.nvlink.io", "By", (*a.HW_DEVICE, a.NETWORK_DIRECTION, a.GPU_LINK_NUMBER),
    "Bytes sent and received by the GPU over each NVLink. hw.gpu.io has their sum.",
    source="NVML fields NVLINK_THROUGHPUT_DATA_TX, _RX",
    opt_in="gpu", standard=False,
)
HW_GPU_FREQUENCY = gauge(
    "hw.gpu.frequency", "Hz", (*a.HW_DEVICE, a.FREQUENCY_DOMAIN),
    "Clock frequency of a domain of the GPU.",
    source="nvmlDeviceGetClockInfo; Jetson: devfreq cur_freq; amdgpu: hwmon freq*_input, by label, and "
    "gpu_metrics (video); Apple: macmon gpu_freq_mhz; panfrost, panthor, lima: devfreq cur_freq; "
    "i915: rps_act_freq_mhz; xe: act_freq",
    window=Window.MEAN, standard=False,
)
HW_GPU_FREQUENCY_LIMIT = gauge(
    "hw.gpu.frequency.limit", "Hz", (*a.HW_DEVICE, a.FREQUENCY_DOMAIN),
    "Maximum clock frequency of a domain of the GPU.",
    source="nvmlDeviceGetMaxClockInfo; Jetson, panfrost, panthor, lima: devfreq max_freq; amdgpu: pp_dpm_sclk, "
    "pp_dpm_mclk; i915: rps_RP0_freq_mhz; xe: rp0_freq",
    standard=False,
)
HW_GPU_THROTTLE_TIME = counter(
    "hw.gpu.throttle.time", "s", (*a.HW_DEVICE, a.THROTTLE_REASON),
    "Time during which the GPU's clocks were throttled, by reason. Several reasons may apply at the same time.",
    source="integral of nvmlDeviceGetCurrentClocksEventReasons over its samples; amdgpu: gpu_metrics; "
    "i915, xe: integral of throttle reasons",
    standard=False,
)
HW_GPU_BOTTLENECK_TIME = counter(
    "hw.gpu.bottleneck.time", "s", (*a.HW_DEVICE, a.GPU_BOTTLENECK),
    "Time by what held the GPU back, judged over a minute. The states add up to the observed time. Experimental.",
    source="this package, from the other metrics of GPU, host and process; see docs/why.md",
    opt_in="bottlenecks", standard=False,
)
HW_GPU_PERFORMANCE_STATE = gauge(
    "hw.gpu.performance_state", "{state}", a.HW_DEVICE,
    "Performance state of the GPU, from 0 (P0, the fastest) to 15.",
    source="nvmlDeviceGetPerformanceState",
    standard=False,
)
HW_GPU_RECOVERY_ACTION = gauge(
    "hw.gpu.recovery_action", "{action}", a.HW_DEVICE,
    "What the driver requires to use the GPU again: "
    f"{', '.join(f'{number} {action}' for number, action in RECOVERY_ACTIONS.items())}.",
    source="NVML field GET_GPU_RECOVERY_ACTION",
    standard=False,
)
