"""Graphcore: IPUs, through the library gcipuinfo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.presence import matches
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.sources.graphcore.driver import NAME, Library


class Graphcore(AcceleratorSource):
    """IPUs of this host, or of a partition that is reached over the network."""

    name = "graphcore"
    rows = ("hw.", "process.npu.")
    signs = ("/dev/ipu*",)
    variables = ("IPUOF_",)
    settings = ("gcipuinfo",)
    absent = "there is no IPU: neither /dev/ipu* nor a variable of a partition (IPUOF_*) exists"
    process_metrics = "process.npu.utilization"
    usage_is_cheap = True

    def drivers(self) -> Iterator[DriverChoice]:
        """Yield the library. A process that does not report devices starts it only when it uses an IPU."""
        listen = self.context.is_reporter or not self.compute_files()
        yield DriverChoice(NAME, "gcipuinfo", lambda: Library(self, listen))

    def visibility(self) -> VisibilityRule:
        """Return a rule without variables: the library lists the IPUs of the program's partition."""
        return VisibilityRule("IPU", "hw.npu.*")

    def compute_files(self) -> Sequence[str]:
        return matches(self.signs[0], self.files)
