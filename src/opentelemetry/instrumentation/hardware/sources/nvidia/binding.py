"""NVML's Python binding: the library is loaded without risk for the program, and its errors are DriverError."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.shared_library import load
from opentelemetry.instrumentation.hardware.sources.nvidia import codes

_LIBRARY: Final = "libnvidia-ml.so.1"

# Folders that the system's loader may not search: of WSL and its containers (the driver store of Windows), of Google's
# GKE, and of NixOS.
_FOLDERS: Final = (
    "/usr/lib/wsl/lib",
    "/usr/lib/wsl/drivers/*",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
)


class Binding:
    """The binding with the library, which is initialized.

    Args:
        path: Of the library; "" to let the system's loader find it, or else look into the folders of containers.

    Raises:
        DriverError: The library cannot be loaded or initialized.
    """

    def __init__(self, path: str) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise DriverError(codes.NO_LIBRARY, f"its Python binding cannot be imported: {error}") from None
        self._binding = pynvml
        self._missing: set[tuple[object, ...]] = set()
        try:
            if path or (pynvml.nvmlLib is None and sys.platform.startswith("linux")):
                self._load(path or _LIBRARY)
            with self._errors():
                pynvml.nvmlInit()
        except DriverError as error:
            elsewhere = [each for folder in _FOLDERS for each in sorted(glob(f"{folder}/{_LIBRARY}"))]
            if path or error.code != codes.NO_LIBRARY or not elsewhere:
                raise
            self._load(elsewhere[0])
            with self._errors():
                pynvml.nvmlInit()

    def _load(self, path: str) -> None:
        """Load the library for the binding, which would hold the interpreter lock meanwhile."""
        try:
            library = load(path, "nvmlInitWithFlags", "nvmlShutdown")
            if self._binding.nvmlLib is None:
                self._binding.nvmlLib = library
        except TimeoutError as error:
            raise DriverError(codes.TIMEOUT, str(error)) from None
        except OSError as error:
            raise DriverError(codes.NO_LIBRARY, str(error)) from None

    def _check(self, code: int) -> None:
        if code:
            raise DriverError(code, self._text(code))

    def _text(self, code: int) -> str:
        """The text of an error code.

        For a code that is newer than the binding, ``str(error)`` would add the text to a table of the binding, and
        nvitop, imported later, would end the program because there is no class for that code.
        """
        error = self._binding.NVMLError(code)
        if type(error) is not self._binding.NVMLError:
            return str(error)
        try:
            text = self._binding.nvmlErrorString(code)
        except self._binding.NVMLError:
            return f"NVML reports error {code}"
        return text.decode(errors="replace") if isinstance(text, bytes) else str(text)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the binding as DriverError."""
        try:
            yield
        except self._binding.NVMLError as error:
            raise DriverError(error.value, self._text(error.value)) from None

    def _raw(self, name: str) -> Callable[..., int]:
        """Return a function of the library, for calls that the binding would make twice."""
        try:
            function: Callable[..., int] = getattr(self._binding.nvmlLib, name)
        except AttributeError:
            raise DriverError(codes.FUNCTION_NOT_FOUND, f"the driver has no {name}") from None
        return function

    def _call(self, name: str, *arguments: object) -> Any:
        function, form = getattr(self._binding, name, None), (name, *arguments[1:])
        if function is None or form in self._missing:
            raise DriverError(codes.FUNCTION_NOT_FOUND, self._text(codes.FUNCTION_NOT_FOUND))
        try:
            return function(*arguments)
        except self._binding.NVMLError as error:
            if error.value == codes.FUNCTION_NOT_FOUND:
                self._missing.add(form)  # the binding would search it again, under a lock that a fork copies
            raise DriverError(error.value, self._text(error.value)) from None
