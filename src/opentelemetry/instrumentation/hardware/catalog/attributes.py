"""The attribute names of all metrics.

``OWN_ATTRIBUTES`` in ``tests/test_catalog.py`` lists those that the semantic conventions do not define.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.instrumentation.hardware.catalog.conventions import FOLLOWED

CPU_MODE: Final = "cpu.mode"
CPU_NUMBER: Final = "cpu.logical_number"
MEMORY_STATE: Final = "system.memory.state"
MEMORY_STATES: Final = FOLLOWED.memory_states
PAGING_STATE: Final = "system.paging.state"
PAGING_DIRECTION: Final = "system.paging.direction"
FAULT_TYPE: Final = "system.paging.fault.type"
DEVICE: Final = FOLLOWED.device
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
GPU_XID: Final = "hw.gpu.xid"
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

# Attribute sets that many metrics share.
HW_DEVICE: Final = (HW_ID, HW_NAME, HW_PARENT)
"""Identifies a device or a part of one; ``hw.parent`` is the ``hw.id`` of the whole device."""
HW_COMPONENT: Final = (HW_ID, HW_NAME, HW_TYPE, HW_PARENT)
"""The same, for metrics of devices of several types."""
HW_INFO: Final = (*HW_DEVICE, HW_VENDOR, HW_MODEL, HW_SERIAL_NUMBER, HW_DRIVER_VERSION, HW_FIRMWARE_VERSION, PCI_BDF)
"""Attributes that describe a device. Only its ``info`` metric has them."""
