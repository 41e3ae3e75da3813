"""A short run of what `python -m tests.fleet losses` does for minutes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from tests.fleet import losses
from tests.fleet.hosts import real_export

# Retries come sooner than in the files, where they are made for outages of hours.
SOON = {"initial_interval": "200ms", "max_interval": "1s"}


@pytest.mark.parametrize("kind", get_args(losses.Kind))
def test_nothing_that_was_accepted_is_lost(kind: losses.Kind, tmp_path: Path) -> None:
    outcome = losses.run(
        tmp_path,
        kind,
        real_export("1xH100"),
        hosts=2,
        every=0.5,
        pause=2.0,
        outage=4.0,
        agent_more={"exporters": {"otlp_grpc/gateway": {"timeout": "1s", "retry_on_failure": SOON}}},
        gateway_more={"exporters": {f"otlp_http/{kind}": {"timeout": "2s", "retry_on_failure": SOON}}},
        patience=120.0,
    )
    assert outcome.accepted > 1000
    assert (outcome.missing, outcome.dropped) == (0, 0), outcome
