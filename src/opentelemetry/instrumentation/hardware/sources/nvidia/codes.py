"""Codes of NVML's errors, ``nvmlReturn_t``."""

from __future__ import annotations

from typing import Final

UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
NO_LIBRARY: Final = 12
FUNCTION_NOT_FOUND: Final = 13
LOST: Final = 15
RESET_REQUIRED: Final = 16
VERSION_MISMATCH: Final = 18
NO_DATA: Final = 21
ARGUMENT_VERSION: Final = 25
DEPRECATED: Final = 26
UNKNOWN: Final = 999
