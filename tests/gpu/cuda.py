"""CUDA through the driver's library only: memory, copies, and two kernels in PTX, which the driver compiles.

Documentation of every call: https://docs.nvidia.com/cuda/cuda-driver-api/
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PTX = rb"""
.version 6.0
.target sm_50
.address_size 64

// One thread that runs for so many nanoseconds of the GPU's own clock.
.visible .entry spin(.param .u64 duration)
{
    .reg .u64 %now, %end;
    .reg .pred %more;
    ld.param.u64 %end, [duration];
    mov.u64 %now, %globaltimer;
    add.u64 %end, %end, %now;
again:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %more, %now, %end;
    @%more bra again;
    ret;
}

// Arithmetic without memory, so many rounds of it; the result is stored where it is what it cannot be.
.visible .entry burn(.param .u64 rounds, .param .u64 result)
{
    .reg .u64 %left, %where;
    .reg .f32 %a, %b, %c, %d;
    .reg .pred %more, %never;
    ld.param.u64 %left, [rounds];
    ld.param.u64 %where, [result];
    mov.f32 %a, 0f3F800000;
    mov.f32 %b, 0f3F000000;
    mov.f32 %c, 0f3E800000;
    mov.f32 %d, 0f3E000000;
again:
    fma.rn.f32 %a, %a, %b, %c;
    fma.rn.f32 %b, %b, %c, %d;
    fma.rn.f32 %c, %c, %d, %a;
    fma.rn.f32 %d, %d, %a, %b;
    sub.u64 %left, %left, 1;
    setp.gt.u64 %more, %left, 0;
    @%more bra again;
    setp.eq.f32 %never, %a, 0fBF800000;
    @%never st.global.f32 [%where], %d;
    ret;
}
"""

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class Failed(Exception):  # noqa: N818 - what a call says
    """A call failed."""


class Cuda:
    """One GPU with a context.

    Args:
        index: The index of the GPU in CUDA's order.

    Raises:
        Failed: A call failed.
        OSError: The library is not installed.
    """

    def __init__(self, index: int = 0) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        self._call("cuInit", 0)
        self._device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(self._device), index)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._call("cuCtxSetCurrent", self._context)
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), PTX)
        self._kernels = {name: ctypes.c_void_p() for name in (b"spin", b"burn")}
        for name, kernel in self._kernels.items():
            self._call("cuModuleGetFunction", ctypes.byref(kernel), module, name)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise Failed(f"{name}: {(text.value or b'').decode()} ({code})")

    @property
    def uuid(self) -> str:
        """As NVML writes it."""
        raw = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid", ctypes.byref(raw), self._device)
        digits = bytes(raw).hex()
        return "GPU-" + "-".join(digits[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))

    @contextmanager
    def memory(self, size: int) -> Iterator[ctypes.c_uint64]:
        """Allocate bytes of the GPU's memory."""
        where = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(where), ctypes.c_size_t(size))
        try:
            yield where
        finally:
            self._call("cuMemFree_v2", where)

    @contextmanager
    def pinned(self, size: int) -> Iterator[ctypes.c_void_p]:
        """Allocate bytes of the host's memory that the GPU copies without help of the CPU."""
        where = ctypes.c_void_p()
        self._call("cuMemAllocHost_v2", ctypes.byref(where), ctypes.c_size_t(size))
        try:
            yield where
        finally:
            self._call("cuMemFreeHost", where)

    def upload(self, to: ctypes.c_uint64, source: ctypes.c_void_p, size: int) -> None:
        """Copy from the host's memory. Returns at the end."""
        self._call("cuMemcpyHtoD_v2", to, source, ctypes.c_size_t(size))

    def copy(self, to: ctypes.c_uint64, source: ctypes.c_uint64, size: int) -> None:
        """Copy within the GPU's memory."""
        self._call("cuMemcpyDtoD_v2", to, source, ctypes.c_size_t(size))

    def spin(self, seconds: float) -> None:
        """Keep the GPU busy for some seconds of its clock. Returns at the end."""
        self._launch(b"spin", 1, 1, ctypes.c_uint64(int(seconds * 1e9)))
        self.wait()

    def burn(self, rounds: int, result: ctypes.c_uint64) -> None:
        """Keep all units of the GPU busy. Returns at the end."""
        self._launch(b"burn", 2048, 256, ctypes.c_uint64(rounds), result)
        self.wait()

    def _launch(self, name: bytes, blocks: int, threads: int, *parameters: Any) -> None:
        pointers = (ctypes.c_void_p * len(parameters))(
            *(ctypes.cast(ctypes.byref(each), ctypes.c_void_p) for each in parameters)
        )
        self._call("cuLaunchKernel", self._kernels[name], blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)

    def wait(self) -> None:
        """Wait until all work is done."""
        self._call("cuCtxSynchronize")

    def close(self) -> None:
        """Release the GPU."""
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)
