"""The targets: each runs one parser, and what uses its result, on bytes that anybody may have written.

A target returns if the input is valid or refused with the documented error. Everything else is a finding.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import re
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from tests.slow.fuzz import validity
from tests.slow.fuzz.machines import places
from tests.sources import cards, macs, npus, pages, radeons, tpus
from tests.sources.machines import STRANGER
from tests.sources.npus import HOST, npu_host, program, report, runtime
from tests.sources.nvidia.test_integrated import JETPACK_6
from tests.sources.tree import Fabricated, Speaking, Tree
from tests.tools import amdsysfs

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.facts import fact
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import MEMORY, UTILIZATION, Clients
from opentelemetry.instrumentation.hardware.accelerators.sleep import RuntimePower
from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers, http, rpc
from opentelemetry.instrumentation.hardware.drivers.child import Output
from opentelemetry.instrumentation.hardware.drivers.rpc import INTERNAL
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Point, Rate, Unavailable
from opentelemetry.instrumentation.hardware.settings import PREFIX, Config
from opentelemetry.instrumentation.hardware.settings.endpoints import Endpoint, EndpointConfigError, endpoints
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover
from opentelemetry.instrumentation.hardware.sources.amd import tool_output as amd
from opentelemetry.instrumentation.hardware.sources.amd.fields import GPU_METRICS
from opentelemetry.instrumentation.hardware.sources.amd.gpu_metrics import GpuMetrics
from opentelemetry.instrumentation.hardware.sources.amd.tool import ToolGpu
from opentelemetry.instrumentation.hardware.sources.apple import tool_output as apple
from opentelemetry.instrumentation.hardware.sources.apple.device import Part
from opentelemetry.instrumentation.hardware.sources.gaudi.device import Hpu
from opentelemetry.instrumentation.hardware.sources.gaudi.driver import Table
from opentelemetry.instrumentation.hardware.sources.holders import kubelet
from opentelemetry.instrumentation.hardware.sources.nvidia import tool_output as smi
from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host, Jetson
from opentelemetry.instrumentation.hardware.sources.nvidia.tool import SmiGpu
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.metrics import scraped_metric
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Parser
from opentelemetry.instrumentation.hardware.sources.tpu import addresses, messages, profiler
from opentelemetry.instrumentation.hardware.sources.tpu import fields as tpu_fields
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Holder
from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine

# Inputs that were findings, in a folder for each target. The suite replays them.
CORPUS: Final = Path(__file__).parent / "corpus"


class Target(NamedTuple):
    """A parser.

    Attributes:
        run: Parses an input. Returns if it is valid or refused; raises for a finding.
        seeds: Valid inputs, which are mutated.
        limit: Bytes of an input.
    """

    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    limit: int = 4096


def _of_devices(devices: Iterable[Device]) -> Iterator[Point]:
    for device in devices:
        with suppress(DeviceFailed):
            yield from device.read()
            yield from device.read_slow()
            yield from device.identity_points()
        validity.printable(device.id)


# -- command-line tools


_HOST: Final = Host(RuntimePower(None, ()), Jetson(None), lambda: 128 << 30)
_XML: Final = Path(__file__).parents[2] / "sources" / "nvidia" / "smi"


def nvidia_smi(data: bytes) -> None:
    """The XML of nvidia-smi."""
    try:
        document = smi.parse(data)
    except ValueError:
        return
    gpus = []
    for index, element in enumerate(document.gpus[:8]):
        uuid = fact(element.findtext("uuid") or "", "(GPU-)?[0-9a-fA-F-]{4,64}")
        gpu = SmiGpu(f"{index}-{uuid}", index, _HOST)
        gpu.update(element, document.driver, document.cuda)
        gpus += [gpu, *gpu.parts.values()]
    for each in gpus:
        validity.users(each.users)
    ids = {gpu.id: gpu for gpu in gpus}
    validity.points(_of_devices(ids.values()))


def _xml_seeds() -> Iterator[bytes]:
    for path in sorted(_XML.glob("*.xml")):
        whole = path.read_bytes()
        yield whole
        for part in re.findall(
            rb"<(fb_memory_usage|processes|mig_devices|clocks_event_reasons|ecc_errors)>(.*?)</\1>", whole, re.DOTALL
        ):
            yield b"<nvidia_smi_log><gpu id='0'><%b>%b</%b></gpu></nvidia_smi_log>" % (part[0], part[1], part[0])


def _amd(gpus: Iterable[amd.GpuOutput]) -> None:
    devices = [ToolGpu(index, f"gpu{index}", output, "amd-smi") for index, output in enumerate(gpus)]
    validity.points(_of_devices(devices[:8]))


def amd_smi(data: bytes) -> None:
    """The JSON of ``amd-smi metric`` and ``amd-smi static``."""
    with suppress(ValueError):
        parsed = amd.parse_amd_smi(data)
        _amd(amd.amd_smi_gpus(parsed, parsed))


def rocm_smi(data: bytes) -> None:
    """The JSON of rocm-smi."""
    with suppress(ValueError):
        _amd(amd.rocm_smi_gpus(amd.parse_rocm_smi(data)))


def _tool_seeds(*names: str) -> Iterator[bytes]:
    for story in radeons.RADEONS:
        drivers = story.at(1)
        for name, tool in drivers.tools.items():
            if name in names:
                yield from (output for output in tool.prints.values() if isinstance(output, bytes))


@cache
def _source(name: str, **settings: str) -> tuple[type[Source], Config]:
    return discover()[name](), Config.read(settings, {})


def _whole(drivers: Drivers, name: str, **settings: str) -> list[Point]:
    """One reading of a whole source."""
    make, config = _source(name, **settings)
    source = make(SourceContext(config, drivers, STRANGER))
    try:
        source.open()
        return [*source.read_all()]
    finally:
        source.close()


def neuron_monitor(data: bytes) -> None:
    """The lines of neuron-monitor, by the whole source."""
    files = HOST | {"/dev/neuron0": ""} | program()
    validity.points(_whole(npu_host(files, Speaking(data.split(b"\n"))), "trainium"))


def _neuron_seeds() -> Iterator[bytes]:
    both = [runtime(STRANGER, (0, 1), 1), runtime(8, (1, 2), 2, v3d=True)]
    for runtimes in (both[:1], both[1:], both):
        yield json.dumps(report(runtimes, len(runtimes), 1, npus.TRN2)).encode()


def _apple(parse: Callable[[bytes], apple.Output], data: bytes) -> None:
    try:
        output = parse(data)
    except (ValueError, Unavailable):
        return
    mean = apple.mean([output, output])
    for each in (output, mean):
        if not each.values:
            raise validity.InvalidError("an output without values is an error")
        parts = [Part(name, each.model) for name in each.values]
        for part in parts:
            part.values = each.values[part.id]
        validity.points(_of_devices(parts))


def _registry(**statistics: int) -> bytes:
    return macs.plist(macs.accelerator("AGXAcceleratorG13X", "Apple M1", statistics or macs.agx(1)))


def graphcore(data: bytes) -> None:
    """The lines of the child with Graphcore's library, by the whole source."""
    drivers = npu_host({**HOST, **npus.IPU_DEVICES, **program()}, Speaking([data]))
    with suppress(OSError):
        validity.points(_whole(drivers, "graphcore"))


def libtpu(data: bytes) -> None:
    """The lines of the child with libtpu's SDK, by the whole source."""
    drivers = tpus.tpu_host(tpus.bus("006f", 2), {}, data.split(b"\n"))
    validity.points(_whole(drivers, "tpu", libtpu="on", tpu_runtime="off"))


# -- binary


def tpu_metrics(data: bytes) -> None:
    """The protobuf messages of a TPU's runtime: the same answer to every call, by the whole source."""
    try:
        samples = messages.samples(data)
    except ValueError:
        return
    answers = dict.fromkeys((*tpu_fields.SAMPLED, *tpu_fields.SLOW), samples)
    drivers = tpus.tpu_host(tpus.bus("006f", 2), {tpus.HERE: answers})
    validity.points(_whole(drivers, "tpu", tpu_runtime=tpus.HERE))


def tpu_profile(data: bytes) -> None:
    """The page of a TPU's profiler."""
    try:
        model, values = profiler.parse(messages.page(data))
    except ValueError:
        return
    for each in values.values():
        validity.number(each)
    validity.printable(model)


def _tpu_seeds() -> Iterator[bytes]:
    from tests.tools.tpu import busy, pb

    for name, samples in busy().metrics.items():
        yield pb.MetricResponse(metric=pb.TPUMetric(name=name, metrics=samples)).SerializeToString()


def _profile_seeds() -> Iterator[bytes]:
    yield messages._CLASSES["MonitorResponse"](data=tpus.PAGE).SerializeToString()


def gpu_metrics(data: bytes) -> None:
    """The binary table of the amdgpu driver."""
    metrics = GpuMetrics()
    for table in (data, data[: len(data) // 2], data):
        try:
            values = metrics.decode(table)
        except ValueError:
            continue
        for name, value in values.items():
            with suppress(ValueError):
                number = GPU_METRICS[name].value(value)
                validity.number(number.per_second if isinstance(number, Rate) else number)


def _table_seeds() -> Iterator[bytes]:
    for revision in range(4, 9):
        with suppress(KeyError, ValueError):
            yield amdsysfs.table(revision, energy=1 << 40, residency=(1, 2, 3, 4, 5, 6), xgmi=[5] * 16)
    yield amdsysfs.attribute_table({0: ("H", [71]), 7: ("Q", [5 << 40]), 9: ("Q", [400]), 10: ("Q", [7])})


# -- network


@cache
def _parsers() -> Sequence[Parser]:
    return Parser(Filters("x", None)), Parser(Filters("x", {"": {"engine": "0"}})), Parser(Filters("x", ["total"]))


def openmetrics(data: bytes) -> None:
    """A page. The first byte selects the format and the filters."""
    kind = pages.OPENMETRICS if data[:1] < b"\x80" else pages.PROMETHEUS
    parser = _parsers()[(data or b"\0")[0] % 3]
    try:
        page = parser.parse(kind, data[1:], 1.8e9)
    except ValueError:
        return
    for sample in page.samples:
        metric = scraped_metric("x", sample)
        validity.text(metric.help)
        validity.printable(metric.unit)
        for name, value in sample.labels.items():
            validity.text(name)
            validity.text(value)
        validity.text(metric.name)
        validity.number(sample.value)


def _page_seeds() -> Iterator[bytes]:
    for text in (pages.ALL, pages.VLLM, pages.dcgm(0)):
        for first in (b"\x00", b"\x01", b"\x81", b"\x82"):
            yield first + text.encode()
            for family in re.findall(r"# HELP.*?(?=# HELP|\Z)", text, re.DOTALL)[:12]:
                yield first + family.encode() + (b"# EOF\n" if first < b"\x80" and "# EOF" not in family else b"")


_ENDPOINT: Final = Endpoint("x", "http://localhost:1/metrics", max_bytes=1 << 16, timeout=10.0)


@contextmanager
def _prepared(data: bytes) -> Iterator[socket.socket]:
    """A connection to a server that has sent this."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with suppress(BlockingIOError):
            theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        yield ours


def http_response(data: bytes) -> None:
    """An HTTP response. After byte 1, the rest is compressed; after byte 2, it is a body in chunks."""
    mode, rest = (data or b"\0")[0], data[1:]
    if mode == 1:
        body = b"".join(map(gzip.compress, rest.split(b"|")))
        rest = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + body
    elif mode == 2:
        rest = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + rest
    fetcher = http.Http(_ENDPOINT)
    before = http._connected
    with _prepared(rest) as connection:
        http._connected = lambda *_: connection  # unittest.mock takes longer than the parser
        try:
            page = fetcher.get()
        except (DriverError, OSError):
            return
        finally:
            http._connected = before
    if len(page["body"]) > _ENDPOINT.max_bytes + (1 << 16):
        raise validity.InvalidError("the body is longer than the limit")
    validity.text(page["type"])


_RESPONSES: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\na 1\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n0\r\n\r\n",
    b"HTTP/1.0 302 Found\r\nLocation: /other\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"a 1\n", mtime=0),
)


# -- files of the kernel


_READS: Final[tuple[tuple[str, Callable[[LinuxMachine], object]], ...]] = (
    ("/proc/stat", LinuxMachine.cpu_times),
    ("/proc/stat", LinuxMachine.cpu_times_by_cpu),
    ("/proc/loadavg", LinuxMachine.load_averages),
    ("/proc/meminfo", LinuxMachine.memory),
    ("/proc/vmstat", LinuxMachine.vmstat),
    ("/proc/diskstats", LinuxMachine.disks),
    ("/proc/net/dev", LinuxMachine.interfaces),
    ("/proc/net/route", LinuxMachine._default_interfaces),
    ("/proc/net/sockstat", LinuxMachine.connections),
    ("/proc/net/snmp", LinuxMachine.connections),
    ("/proc/net/snmp", LinuxMachine.tcp_retransmits),
    ("/proc/pressure/io", LinuxMachine.pressure),
    ("/proc/{pid}/mountinfo", LinuxMachine.mounts),
    ("/proc/{pid}/mountinfo", lambda machine: machine.mount("/data/x")),
    ("/proc/filesystems", LinuxMachine.mounts),
    ("/proc/{pid}/stat", lambda machine: machine.process(os.getpid())),
    ("/proc/{pid}/statm", lambda machine: machine.process(os.getpid())),
    ("/proc/{pid}/io", lambda machine: machine.process(os.getpid())),
    ("/proc/{pid}/cgroup", lambda machine: (machine.limits(os.getpid()), machine.cgroup(os.getpid()))),
    ("/proc/{pid}/mountinfo", lambda machine: (machine.limits(os.getpid()), machine.cgroup(os.getpid()))),
)


@cache
def _kernel() -> Tree:
    from tests.sources.machines import kubernetes, metal, mounts

    trees = [make(1).tree for make in (metal, mounts, kubernetes)]
    files = {name: content for tree in trees for name, content in tree.files.items()}
    files = {name: content for name, content in files.items() if "cpu1" not in name and not re.search("cpu[2-9]", name)}
    return Tree(files, cpus=1, usage=trees[0].spent)


def proc(data: bytes) -> None:
    """One file of ``/proc``, which the first byte selects."""
    path, read = _READS[(data or b"\0")[0] % len(_READS)]
    tree = _kernel()
    before = tree.files.get(path)
    tree.files[path] = data[1:]
    tree.asked.clear()
    try:
        read(LinuxMachine(tree))
    except (ValueError, IndexError, OverflowError, OSError, Unavailable):
        return
    finally:
        if before is not None:
            tree.files[path] = before


def _proc_seeds() -> Iterator[bytes]:
    files = _kernel().files
    for number, (path, _) in enumerate(_READS):
        content = files.get(path, b"")
        if not isinstance(content, OSError):
            text = content.encode() if isinstance(content, str) else content
            yield bytes((number,)) + text[-2000:]
            yield bytes((number,)) + text[:300]


def _machine(sources: Sequence[str], data: bytes) -> None:
    listed = places(*sources)
    machine, path = listed[(data or b"\0")[0] % len(listed)]
    machine.read(path, data[1:])


def _machine_seeds(sources: Sequence[str]) -> Iterator[bytes]:
    for number, (machine, path) in enumerate(places(*sources)[:256]):
        yield bytes((number,)) + machine.content(path)


def _of(*sources: str) -> Target:
    return Target(partial(_machine, sources), partial(_machine_seeds, sources), 1024)


def hl_smi(data: bytes) -> None:
    """Lines of hl-smi."""
    table, hpus = Table(), dict[int, Hpu]()
    for line in data.split(b"\n"):
        with suppress(ValueError):
            cells = table.parse(line)
            if cells:
                hpus[int(cells["index"])] = Hpu(int(cells["index"]), cells)
    ids = {hpu.id: hpu for hpu in hpus.values()}
    validity.points(_of_devices(ids.values()))


def open_device(data: bytes) -> None:
    """What the kernel writes about an open device file, twice."""
    tree = Tree({"/proc/7/fd/3": "/dev/dri/renderD128"})
    clients = Clients(tree, ("amdgpu", "i915", "xe", "panthor", "msm"))
    device = Device("0000:03:00.0", "GPU 0")
    for text in data.split(b"\0", 1):
        tree.files["/proc/7/fdinfo/3"] = text
        tree.up += 2
        for place, held in clients.read(["/proc/7"]).items():
            validity.printable(place)
            shares = clients.utilization().get(place, {})
            sizes = [each.client.memory for each in held.values() if each.client.memory is not None]
            values = {MEMORY["gpu"]: sum(sizes), **{UTILIZATION[task]: share for task, share in shares.items()}}
            validity.points(device.points(values))


def _fdinfo_seeds() -> Iterator[bytes]:
    for name, address in (("amdgpu", "0000:03:00.0"), ("i915", "0000:00:02.0"), ("xe", "0000:00:02.0"), ("msm", "")):
        texts = [cards.EXAMPLES[name](address, tick).encode() for tick in (0, 1)]
        yield b"\0".join(texts)


_JETSON: Final = sorted(path for path in JETPACK_6 if not path.startswith("/sys/module/"))


def jetson(data: bytes) -> None:
    """One file of a Jetson without NVML, which the first byte selects, by the whole source."""
    path = _JETSON[(data or b"\0")[0] % len(_JETSON)]
    with suppress(Unavailable):
        drivers = Fabricated(Tree({**JETPACK_6, path: data[1:]}))
        validity.points(_whole(drivers, "nvidia", nvml="off", nvidia_smi="off"))


def _jetson_seeds() -> Iterator[bytes]:
    for number, path in enumerate(_JETSON):
        content = JETPACK_6[path]
        yield bytes((number,)) + (content.encode() if isinstance(content, str) else b"1")


# -- schedulers


_HELD: Final = HeldDevice(
    "nvidia",
    {"gpu-1f", "0000:01:00.0"},
    1,
    {c.HW_ID: "GPU-1f", c.HW_NAME: "GPU 1", c.HW_TYPE: "gpu"},
    50 << 30,
    [Holder(7, 1 << 30, {c.K8S_POD_UID: "u-1"})],
)


def _holders(tree: Tree, **settings: str) -> None:
    make, config = _source("holders", **settings)
    context = SourceContext(config, Fabricated(tree), STRANGER, environ={}, held={"nvidia": [_HELD]}, labels={})
    source = make(context)
    source.open()
    validity.points(source.read_all())


def pod_resources(data: bytes) -> None:
    """An answer of the kubelet."""
    files: dict[str, str | bytes | OSError] = {"/kubelet.sock": "", "/var/log/pods/ml_train-0_u-1/0.log": ""}

    def call(*arguments: Any) -> object:
        try:
            return arguments[-1](data)
        except ValueError as error:
            raise DriverError(INTERNAL, str(error)) from None

    before = rpc.Channels.call
    rpc.Channels.call = call  # type: ignore[assignment, method-assign]
    try:
        _holders(Tree(files), pod_resources="/kubelet.sock", job_files="off")
    finally:
        rpc.Channels.call = before  # type: ignore[method-assign]


def _pod_seeds() -> Iterator[bytes]:
    for resource, device in (("nvidia.com/gpu", "GPU-1f"), ("nvidia.com/gpu", "1"), ("acme.com/x", "0000:01:00.0::2")):
        answer = kubelet._CLASSES["ListPodResourcesResponse"]()
        pod = answer.pod_resources.add(name="train-0", namespace="ml")
        pod.containers.add(name="main").devices.add(resource_name=resource, device_ids=[device, "other"])
        yield answer.SerializeToString()


def job_files(data: bytes) -> None:
    """The file of a device, with a job in each line."""
    _holders(Tree({"/jobs/GPU-1f": data}), pod_resources="off", job_files="/jobs")


class _Answering(Drivers):
    """Drivers whose commands print this."""

    def __init__(self, output: bytes) -> None:
        super().__init__()
        self._output = output

    def command(self, tool: Tool) -> Command:
        del tool
        return cast(Command, self)

    def run(self, *_: object) -> Output:
        return Output(0, self._output)


def cloud_tpu_client(data: bytes) -> None:
    """What Google's client says of the address of a TPU node."""
    with suppress(OSError):
        validity.printable(addresses.resolved(_Answering(data), "my-tpu", {}))


# -- settings


_ROWS: Final = fields(Config)


def environment(data: bytes) -> None:
    """Values of environment variables, one after the other: a byte for the name, and the value up to a zero byte."""
    environ = {}
    for part in data.split(b"\0"):
        row = _ROWS[(part or b"\0")[0] % len(_ROWS)]
        text = part[1:].decode(errors="surrogateescape")
        if row.name != "openmetrics" or "=" in text:  # without it, the value names a file
            environ[PREFIX + row.name.upper()] = text
    config = Config.read({}, environ)
    validity.number(config.interval)
    validity.number(config.exit_seconds)
    repr(config).encode()


def _setting_seeds() -> Iterator[bytes]:
    values = {
        "sources": b"host,-process",
        "sample_interval": b"0.5",
        "include_metrics": b"system.cpu.*",
        "devices": b"0,GPU-8f6a",
        "openmetrics": b"a=http://localhost:9400/metrics,b=https://[::1]:1/x?y",
        "openmetrics_filters": b'{"total": {"engine": "^0$"}}',
        "spans_filter": b"kind:server,-name:GET /health",
        "tpu_runtime": b"localhost:8431,[::1]:1,unix:/a",
    }
    for number, row in enumerate(_ROWS):
        yield bytes((number,)) + values.get(row.name, row.metadata["default"].encode()[:20])


@cache
def _file() -> str:
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.NamedTemporaryFile(suffix=".yaml", dir=folder) as file:
        return file.name


def endpoint_file(data: bytes) -> None:
    """A file of endpoints, JSON or YAML."""
    with open(_file(), "wb") as file:
        file.write(data)
    try:
        found = endpoints(_file())
    except EndpointConfigError as error:
        str(error).encode()
        return
    finally:
        os.unlink(_file())
    for each in found.each:
        validity.printable(each.name)
        validity.number(each.timeout)
        validity.number(each.max_series)


_FILES: Final = (
    b'{"dcgm": {"url": "http://localhost:9400/metrics", "filters": ["a", "b"], "headers": {"X": "y"}, "timeout": 2}}',
    b"vllm:\n  url: http://localhost:8000/metrics\n  filters:\n    total: {engine: '0'}\n  max_series: 10\nb: http://c/\n",
    b"a: &x {url: 'http://a/', max_bytes: 1024}\nb: *x\n",
)

TARGETS: Final[Mapping[str, Target]] = {
    "nvidia_smi": Target(nvidia_smi, _xml_seeds, 16384),
    "amd_smi": Target(amd_smi, lambda: _tool_seeds("amd-smi")),
    "rocm_smi": Target(rocm_smi, lambda: _tool_seeds("rocm-smi")),
    "neuron_monitor": Target(neuron_monitor, _neuron_seeds),
    "macmon": Target(
        partial(_apple, apple.parse_macmon), lambda: (json.dumps(make(1, 0)).encode() for make in macs.MACMONS.values())
    ),
    "apple_gpu_stats": Target(
        partial(_apple, apple.parse_stats),
        lambda: (json.dumps(make(1)).encode() for make in (macs.first_generation, macs.second_generation)),
    ),
    "ioreg": Target(partial(_apple, apple.parse_ioreg), lambda: [_registry(), _registry(a=1)]),
    "graphcore": Target(graphcore, lambda: [json.dumps([npus.c2(0, 1), npus.c600(1, 1)]).encode()]),
    "libtpu": Target(
        libtpu,
        lambda: [
            json.dumps(
                {
                    "tensorcore_util": ["12.5", "3"],
                    "ici_link_health": ["tray1.chip1.ici1.int: 5"],
                    "tpu_throttle_score": ["0-3"],
                }
            ).encode()
        ],
    ),
    "tpu_metrics": Target(tpu_metrics, _tpu_seeds),
    "tpu_profile": Target(tpu_profile, _profile_seeds),
    "hl_smi": Target(hl_smi, lambda: [f"{cards.HL_COLUMNS}\n{cards.gaudi3(0, 1)}".encode()]),
    "fdinfo": Target(open_device, _fdinfo_seeds),
    "gpu_metrics": Target(gpu_metrics, _table_seeds),
    "openmetrics": Target(openmetrics, _page_seeds, 8192),
    "http": Target(http_response, lambda: [b"\0" + each for each in _RESPONSES] + [b"\1a 1|b 2"]),
    "proc": Target(proc, _proc_seeds),
    "host": _of("host", "process", "filesystem"),
    "cgroup": _of("container"),
    "sysfs": _of("hwmon", "infiniband", "powercap"),
    "amdgpu": _of("amd"),
    "neuron": _of("trainium"),
    "jetson": Target(jetson, _jetson_seeds, 512),
    "pod_resources": Target(pod_resources, _pod_seeds),
    "job_files": Target(job_files, lambda: [b"77 4242\n78\n", b"[1]@x.y:z"]),
    "cloud_tpu_client": Target(
        cloud_tpu_client,
        lambda: [
            b'[{"ipAddress": "10.1.2.3", "port": "8470"}, {"ipAddress": "10.1.2.4"}]',
            b'[{"ipAddress": "fd00::3", "port": null}]',
        ],
    ),
    "cards": _of("drm", "intel", "tenstorrent"),
    "environment": Target(environment, _setting_seeds),
    "endpoint_file": Target(endpoint_file, lambda: _FILES),
}


def quiet() -> None:
    """Switch the log off, which would be written for every input."""
    logging.disable(logging.CRITICAL)
