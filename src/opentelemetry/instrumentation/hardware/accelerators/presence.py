"""Whether there are devices of a vendor, from files that exist where they are, before anything of it is loaded."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import ClassVar

from opentelemetry.instrumentation.hardware.accelerators.sysfs import cards_of
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.files import Files


class DetectedSource(Source):
    """A source that is opened only if there is a sign of its devices.

    Attributes:
        signs: Paths of which one exists where the vendor's devices or its driver may be; a trailing ``*`` matches any
            rest of the last component. List also the signs of containers and virtual machines, where the usual ones are
            missing. Nothing of the vendor is loaded or started without a sign or a path in a setting.
        cards: Kernel drivers of which a card of the Direct Rendering Manager is also a sign.
        variables: Prefixes of environment variables that are also a sign.
        settings: The settings that have the path of a driver, or switch one off.
        modules: Modules to import if a sign is present; see :meth:`Source.prepare`.
        absent: The reason of Unavailable without a sign.
        fix: What to do if there are signs, but no driver can be used.
        files: The kernel's files; None if the system is not Linux.
    """

    signs: ClassVar[tuple[str, ...]] = ()
    cards: ClassVar[tuple[str, ...]] = ()
    variables: ClassVar[tuple[str, ...]] = ()
    settings: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[str]
    fix: ClassVar[str] = ""

    files: Files | None

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import the modules that read the devices, if there may be some."""
        expected = cls.is_expected(config, os.environ, kernel_files(Drivers()))
        for module in cls.modules if expected else ():
            with suppress(ImportError):  # the driver that needs it reports it
                importlib.import_module(module)
        return expected

    @classmethod
    def is_expected(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        """Whether there is a sign of a device and a driver that is not off, or a setting names a driver."""
        settings = [getattr(config, setting) for setting in cls.settings]
        if any(map(setting_path, settings)):
            return True
        is_off = bool(settings) and all(setting == "off" for setting in settings)
        return not is_off and cls.has_sign(config, environ, files)

    @classmethod
    def has_sign(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        """Whether one of the signs is present, or the devices are simulated."""
        is_named = config.simulates(cls.name) or any(name.startswith(cls.variables) for name in environ)
        has_card = files is not None and bool(cls.cards and cards_of(files, cls.cards))
        return is_named or has_card or any(exists(sign, files) for sign in cls.signs)

    def is_present(self) -> bool:
        """Whether one of the signs is present, read with the drivers of the source."""
        return self.has_sign(self.context.config, self.context.environ, self.files)

    def linux_files(self) -> Files:
        """Return the kernel's files.

        Raises:
            Unavailable: The system is not Linux.
        """
        if self.files is None:
            raise Unavailable("it is only supported on Linux")
        return self.files


def kernel_files(drivers: Drivers) -> Files | None:
    """Return the kernel's files; None if the system is not Linux."""
    with suppress(Unavailable):
        return drivers.files()
    return None


def exists(sign: str, files: Files | None) -> bool:
    """Whether there is a file with this path; with a trailing ``*``, one with this beginning."""
    if sign.endswith("*"):
        return bool(matches(sign, files))
    return files.exists(sign) if files else os.path.exists(sign)


def matches(sign: str, files: Files | None) -> list[str]:
    """Return the paths that match a sign with a trailing ``*``."""
    folder, _, start = sign.rstrip("*").rpartition("/")
    try:
        names = files.names(folder) if files else os.listdir(folder)
        return sorted(f"{folder}/{name}" for name in names if name.startswith(start))
    except OSError:
        return []
