"""What hosts cost a gateway and the databases: CPU time, memory, disk and network, for hosts that are known and new.

Simulated hosts with eight GPUs export some rounds over OTLP. Their exports are sent again, as those of any number of
hosts with names and devices of their own, through a gateway with `gateway.yaml` to a database. In the first round all
hosts are new to the database, then they are known, and then as many others are new. Each round takes as long as the
interval of export, or longer if the machine is too slow for that.

CPU times are those that the kernel counts for the processes. They depend little on what else the machine does.
"""

from __future__ import annotations

import gzip
import http.client
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

import psutil
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.fleet.hosts import points_of
from tests.support.sink import Sink
from tests.tools.collector import LOCAL, TOKEN, Collector, secure_gateway
from tests.tools.daemon import UNVERIFIED, Daemon, get, wait
from tests.tools.stores import PrometheusStore, VictoriaMetrics
from tests.tools.tls import certificate

INTERVAL = 15.0  # seconds between the exports of a host, the default of `otel-hardware run`
MODELS = 5  # simulated hosts; the others are copies of these
SENDERS = 8

# What is replaced in an export, each by as many bytes: the time of all points, the host, and the GPUs' UUIDs.
TIME = (0x5CA1E5CA1E5CA1E5).to_bytes(8, "little")
HOST, CARD = b"@host-number@", b"@card-no"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Template:
    """An export without its time, its host and its devices."""

    body: bytes
    points: int

    def of(self, host: int, nanoseconds: int) -> bytes:
        body = self.body.replace(TIME, nanoseconds.to_bytes(8, "little"))
        return body.replace(HOST, b"host-%08d" % host).replace(CARD, b"%08x" % host)


def templates(rounds: int) -> list[list[Template]]:
    """Return the exports of each simulated host, of consecutive rounds."""
    flags = f"--simulate 8xH100 --hosts {MODELS} --backfill {int((rounds + 2) * INTERVAL)}s --duration 0"
    with Sink() as sink:
        command = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "run", *flags.split()]
        rest = ["--interval", str(int(INTERVAL)), "--sample-interval", str(int(INTERVAL))]
        subprocess.run([*command, *rest], env=os.environ | sink.environment(), check=True, capture_output=True)
    found: dict[str, list[Template]] = defaultdict(list)
    for body in sink.bodies:
        request = ExportMetricsServiceRequest.FromString(body)
        host = ""
        for resource in request.resource_metrics:
            for attribute in resource.resource.attributes:
                if attribute.key in ("host.name", "host.id", "service.instance.id"):
                    host = attribute.value.string_value if attribute.key == "host.name" else host
                    attribute.value.string_value = HOST.decode()
        points = points_of(request)
        for point in points:
            point.time_unix_nano = int.from_bytes(TIME, "little")
        text = request.SerializeToString()
        cards = {match[1] for match in re.finditer(rb"GPU-([0-9a-f]{8})-", text)}
        for card in cards:
            text = text.replace(card, CARD)
        found[host].append(Template(text, len(points)))
    return [exports[-rounds:] for exports in found.values()]  # the first ones have no rates yet


@dataclass(frozen=True)
class Usage:
    """What was used, in all: seconds of CPU, and bytes."""

    gateway: float
    store: float
    gateway_memory: int
    store_memory: int

    def since(self, before: Usage) -> Usage:
        return replace(self, gateway=self.gateway - before.gateway, store=self.store - before.store)


def usage(gateway: Daemon, store: Daemon) -> Usage:
    processes = [psutil.Process(each.pid) for each in (gateway, store)]
    seconds = [each.cpu_times().user + each.cpu_times().system for each in processes]
    memory = [each.memory_info().rss for each in processes]
    return Usage(seconds[0], seconds[1], memory[0], memory[1])


class Senders:
    """Sends exports over some connections that stay open.

    Attributes:
        refused: The number of exports that were not accepted.
    """

    def __init__(self, url: str, secure: bool) -> None:
        address = url.removeprefix("http://")
        self.refused = 0
        self._free: SimpleQueue[http.client.HTTPConnection] = SimpleQueue()
        for _ in range(SENDERS):
            self._free.put(
                http.client.HTTPSConnection(address, context=UNVERIFIED, timeout=120)
                if secure
                else http.client.HTTPConnection(address, timeout=120)
            )

    def round(self, exports: Iterator[bytes], count: int, seconds: float = INTERVAL) -> float:
        """Send exports evenly in a time. Returns the seconds that it took."""
        began = time.monotonic()
        with ThreadPoolExecutor(SENDERS) as pool:
            for number, export in enumerate(exports):
                time.sleep(max(0.0, began + seconds * number / count - time.monotonic()))
                pool.submit(self._post, gzip.compress(export, 1))
        return time.monotonic() - began

    def _post(self, body: bytes) -> None:
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "Authorization": f"Bearer {TOKEN}",
        }
        connection = self._free.get()
        try:
            connection.request("POST", "/v1/metrics", body, headers)
            answer = connection.getresponse()
            answer.read()
            self.refused += answer.status != 200
        except (OSError, http.client.HTTPException):
            self.refused += 1
            connection.close()
        finally:
            self._free.put(connection)


def size(folder: Path) -> int:
    """The bytes of all files below a folder; some may vanish meanwhile."""
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*") if file.exists())


def samples(store: Daemon, url: str) -> int:
    """The number of samples that a database has taken."""
    name = (
        "vm_rows_inserted_total"
        if isinstance(store, VictoriaMetrics)
        else "prometheus_tsdb_head_samples_appended_total"
    )
    page = get(f"{url}/metrics", 120)
    return int(sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith((name + "{", name + " "))))


def run(folder: Path, hosts: int, rounds: int, say: Say) -> bool:
    """Print what hosts cost. Returns whether everything was accepted and stored.

    Args:
        folder: Where files go.
        hosts: How many hosts; for Prometheus, a fifth of it, because of its memory.
        rounds: Exports of each known host.
        say: Called with each line.
    """
    models = templates(rounds + 1)
    every = [template for exports in models for template in exports]
    points = sum(each.points for each in every) / len(every)
    raw = sum(len(each.body) for each in every) / len(every)
    packed = sum(len(gzip.compress(each.body, 1)) for each in every) / len(every)
    say(f"an export of a host with 8 GPUs: {points:.0f} points, {raw / 1e3:.1f} KB, {packed / 1e3:.1f} KB compressed")
    agent(folder, models[0], say)
    say(f"{'':52}  CPU per export, ms      memory, MB")
    say(f"{'database, hosts, and what is sent':<52}  gateway  database  gateway  database  stored after")
    good = chain(folder, "victoriametrics", hosts, models, say)
    return chain(folder, "prometheus", hosts // 5, models, say) and good


def agent(folder: Path, exports: list[Template], say: Say) -> None:
    """Measure the Collector of one host: without work, and with an export each second."""
    idle, busy = 20.0, 40
    with Collector(folder) as far:
        environment = {"GATEWAY_ENDPOINT": far.grpc.removeprefix("http://"), "GATEWAY_INSECURE": "true"}
        with Collector(folder, LOCAL.with_name("agent.yaml"), environment=environment) as near:
            process = psutil.Process(near.pid)

            def seconds() -> float:
                return process.cpu_times().user + process.cpu_times().system

            before = seconds()
            time.sleep(idle)
            rest = (seconds() - before) / idle
            before = seconds()
            bodies = (exports[number % len(exports)].of(0, time.time_ns()) for number in range(busy))
            Senders(near.http, secure=False).round(bodies, busy, busy)
            each = (seconds() - before) / busy - rest
            say(
                f"the Collector of a host: {1e3 * each:.1f} ms of CPU per export, and {1e3 * rest:.1f} ms per second "
                f"without work; {process.memory_info().rss / 1e6:.0f} MB of memory"
            )


def chain(folder: Path, kind: str, hosts: int, models: list[list[Template]], say: Say) -> bool:
    """Measure a gateway with one database."""
    made = certificate(folder)
    with ExitStack() as stack:
        store: VictoriaMetrics | PrometheusStore = (
            VictoriaMetrics(folder, "-memory.allowedBytes=4GB")
            if kind == "victoriametrics"
            else PrometheusStore(folder)
        )
        stack.enter_context(store)
        urls = {"VICTORIAMETRICS_URL": store.url, "PROMETHEUS_URL": store.url}
        far = stack.enter_context(secure_gateway(folder, made, LOCAL.with_name(f"{kind}.yaml"), **urls))
        senders = Senders(far.http, secure=True)

        def phase(name: str, first: int, numbers: range) -> None:
            """Send rounds of hosts from a first one on,, and wait until all is stored."""
            before, had = usage(far, store), samples(store, store.url)
            sent, took, queue = 0, [], 0
            for number in numbers:
                chosen = [models[host % len(models)][number] for host in range(hosts)]
                sent += sum(each.points for each in chosen)
                now = time.time_ns()
                exports = (each.of(first + host, now) for host, each in enumerate(chosen))
                took.append(senders.round(exports, hosts))
                queue = max(queue, size(far.log.parent / "queue"))
            began = time.monotonic()
            # Prometheus' exporter adds `target_info`, one for each export.
            wait(lambda: samples(store, store.url) - had >= sent, 600, "everything is stored")
            drained, used = time.monotonic() - began, usage(far, store).since(before)
            if isinstance(store, VictoriaMetrics):
                get(f"{store.url}/internal/force_flush", 120)
            count = hosts * len(numbers)
            title = f"{kind}, {hosts}: {name}, {count} exports"
            say(
                f"{title:<52}{1e3 * used.gateway / count:9.2f}{1e3 * used.store / count:10.2f}"
                f"{used.gateway_memory / 1e6:9.0f}{used.store_memory / 1e6:10.0f}{drained:10.1f} s"
            )
            say(
                f"    rounds of {', '.join(f'{each:.0f}' for each in took)} s; "
                f"queue on disk at most {queue / 1e6:.0f} MB; {senders.refused} refused; "
                f"the database has {size(store.log.parent / 'data') / 1e6:.0f} MB on disk"
            )

        phase("all new", 0, range(1))
        phase("known", 0, range(1, len(models[0])))
        phase("others, new", hosts, range(1))
        return not senders.refused
