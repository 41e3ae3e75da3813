"""Whether an agent, a gateway and a database lose anything that was accepted, whatever of them fails.

Hosts send real exports to an agent's Collector with `agent.yaml`, which sends them over TLS to a gateway with
`gateway.yaml`, which sends them to a database. Meanwhile, these are killed, stopped and cut off. An export counts once
the agent has accepted it; then every point of it must be in the database, with its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.fleet.cable import Cable
from tests.fleet.hosts import Hosts
from tests.tools.collector import LOCAL, TOKEN, Collector, Config, secure_gateway
from tests.tools.stores import PrometheusStore, Store, VictoriaMetrics
from tests.tools.tls import certificate

FOLDER = LOCAL.parent
Kind = Literal["victoriametrics", "prometheus"]


@dataclass(frozen=True)
class Outcome:
    """What a run has found, in samples: one for each point of each accepted export.

    Attributes:
        dropped: How often a Collector has logged that it dropped data, also if that had arrived before.
    """

    accepted: int
    missing: int
    dropped: int
    refused: int
    seconds_to_drain: float

    def __str__(self) -> str:
        stored = self.accepted - self.missing
        return (
            f"{stored:,} of {self.accepted:,} samples stored, {self.missing:,} lost; {self.refused} exports refused, "
            f"data dropped {self.dropped} times, complete {self.seconds_to_drain:.0f} s after the last one"
        )


def run(
    folder: Path,
    kind: Kind,
    export: bytes,
    *,
    hosts: int,
    every: float,
    pause: float,
    outage: float,
    agent_more: Config = "{}",
    gateway_more: Config = "{}",
    patience: float = 300.0,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Send while everything fails in turn.

    Args:
        folder: Where files go.
        kind: The database.
        export: What each host sends.
        hosts: How many hosts.
        every: Seconds between the exports of a host.
        pause: Seconds between two failures.
        outage: Seconds for which the database is away, for which it hangs, and for which the host is cut off.
        agent_more: Further settings of the agent's Collector.
        gateway_more: Further settings of the gateway.
        patience: Seconds in which everything must have arrived after the last failure.
        say: Called with what happens.
    """
    made = certificate(folder)
    began = time.monotonic()

    def step(text: str) -> None:
        say(f"{time.monotonic() - began:5.0f} s  {text}")

    with ExitStack() as stack:
        store: Store = VictoriaMetrics(folder) if kind == "victoriametrics" else PrometheusStore(folder)
        stack.enter_context(store)
        urls = {"VICTORIAMETRICS_URL": store.url, "PROMETHEUS_URL": store.url}
        far = stack.enter_context(secure_gateway(folder, made, FOLDER / f"{kind}.yaml", gateway_more, **urls))
        cable = stack.enter_context(Cable(far.grpc.removeprefix("http://")))
        keys = {"GATEWAY_ENDPOINT": f"localhost:{cable.port}", "GATEWAY_CA_FILE": str(made.file)}
        keys |= {"GATEWAY_TOKEN": TOKEN}
        agent = stack.enter_context(Collector(folder, FOLDER / "agent.yaml", agent_more, environment=keys))
        with Hosts(export, agent.http, hosts, every) as sent:
            step(f"{hosts} hosts send {sent.points} points every {every:g} s to an agent, a gateway and {kind}")
            time.sleep(pause)
            step(f"the gateway is killed, for {pause / 2:g} s")
            far.kill()
            time.sleep(pause / 2)
            far.__enter__()
            time.sleep(pause)
            step(f"the database is stopped for {outage:g} s; meanwhile, the gateway is killed for the second time")
            store.stop()
            time.sleep(outage / 2)
            far.kill()
            far.__enter__()
            time.sleep(outage / 2)
            store.__enter__()
            time.sleep(pause)
            step(f"the database hangs for {outage:g} s")
            store.hang()
            time.sleep(outage)
            store.hang(False)
            time.sleep(pause)
            step(f"the host is cut off for {outage:g} s; meanwhile, the agent's Collector is killed")
            cable.pull()
            time.sleep(outage / 2)
            agent.kill()
            agent.__enter__()
            time.sleep(outage / 2)
            cable.plug()
            time.sleep(pause)
        step("the last export was sent")
        ended = time.monotonic()
        while (lost := missing(store, sent)) and time.monotonic() - ended < patience:
            time.sleep(1)
        drained = time.monotonic() - ended
        accepted = sent.points * sum(map(len, sent.accepted.values()))
        dropped = sum(each.log.read_text().count("Dropping data") for each in (agent, far))
        outcome = Outcome(accepted, lost, dropped, sent.refused, drained)
        step(str(outcome))
        return outcome


def missing(store: Store, sent: Hosts) -> int:
    """Return the number of samples that were accepted and are not in the database."""
    lost = 0
    for host in sent.names:
        accepted = set(sent.accepted[host])
        # Prometheus' exporter adds `target_info`.
        stored = store.samples(f'{{host_name="{host}", __name__!="target_info"}}')
        found = sum(len(accepted & {round(1000 * at) for at, _ in each}) for each in stored.values())
        lost += sent.points * len(accepted) - found
    return lost
