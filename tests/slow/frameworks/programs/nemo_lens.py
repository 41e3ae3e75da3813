"""Spans of NeMo's `nemo.lens`: training steps, by its own setup of the SDK."""

import time

from nemo.lens import NemoLensConfig, SpanGroup, managed_span, setup_telemetry
from tests.slow.frameworks.programs.ours import instrument

if __name__ == "__main__":
    instrument()
    config = NemoLensConfig(enabled=True, metrics_enabled=False, span_groups="per_step")
    setup_telemetry(config, rank=0, world_size=1)
    for step in range(5):
        with managed_span(SpanGroup.STEP, "megatron.train.step", iteration=step):
            time.sleep(0.6)
