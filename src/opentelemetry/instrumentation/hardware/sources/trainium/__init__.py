"""AWS Trainium and Inferentia: NeuronCores, and the Neuron runtimes of the observed program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.presence import exists
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.trainium.driver import Neuron
from opentelemetry.instrumentation.hardware.sources.trainium.sysfs import DEVICES, MODULE
from opentelemetry.instrumentation.hardware.sources.trainium.visible import visibility_rule
from opentelemetry.instrumentation.hardware.system.files import Files

_MAX_DEVICES = 128


class Trainium(AcceleratorSource):
    """The Neuron devices of an instance."""

    name = "trainium"
    rows = ("hw.", "aws.neuron.")
    signs = (DEVICES, MODULE, "/dev/neuron0")
    settings = ("neuron_monitor",)
    absent = "no Neuron driver is loaded: /sys/module/neuron and /dev/neuron0 are missing"
    process_metrics = "aws.neuron.runtime.*, aws.neuron.execution.*"
    usage_is_cheap = True

    @classmethod
    def is_expected(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        """Whether there is a sign of a device. The driver's files are also read without neuron-monitor."""
        return bool(setting_path(config.neuron_monitor)) or cls.has_sign(config, environ, files)

    def drivers(self) -> Iterator[DriverChoice]:
        """Yield one driver, which reads the driver's files and neuron-monitor."""
        yield DriverChoice("the Neuron driver", "", lambda: Neuron(self))

    def visibility(self) -> VisibilityRule:
        return visibility_rule(partial(exists, files=self.files))

    def compute_files(self) -> Sequence[str]:
        """Return the device files that programs open. neuron-monitor opens them in its own process."""
        return [f"/dev/neuron{number}" for number in range(_MAX_DEVICES)]

    def _usage(self, driver: AcceleratorDriver) -> Iterator[Point]:
        """Select what the observed program uses, and report its runtimes."""
        assert isinstance(driver, Neuron)
        used = {f"neuroncore{core}" for runtime in driver.runtimes.newest for core in runtime.used_cores}
        self.used = frozenset(used)
        for device in self.selection.devices:
            for id_ in sorted(device.selection_ids & {device.id, *used}) if device.selection_ids & used else ():
                self.selection.add_used(id_)
        yield from driver.runtimes.points(self.context.config)
