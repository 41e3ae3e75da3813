"""The manifests, the chart and the gateway with a real API server of Kubernetes, and the steps of the Operator.

The API server and etcd run on the loopback interface. There are no nodes and no containers: pods are entries only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import yaml
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from tests.support.children import PATIENCE, ROOT, started
from tests.support.sink import Sink
from tests.tools import Missing, helm, kube_apiserver, otelcol, program
from tests.tools.collector import LOCAL, TOKEN, secure_gateway
from tests.tools.daemon import UNVERIFIED, Daemon, free_addresses, own, wait
from tests.tools.tls import certificate

DEPLOY = ROOT / "examples" / "deploy"
FOLDER = LOCAL.parent
GATEWAY = "system:serviceaccount:monitoring:gateway"
Say = Callable[[str], None]


class Etcd(Daemon):
    """The database of Kubernetes, from Debian."""

    def __init__(self, directory: Path) -> None:
        client, peer = free_addresses(2)
        self.url = f"http://{client}"
        directory = own(directory, "etcd")
        options = [
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls=http://{peer}",
        ]
        super().__init__(["etcd", *options], f"{self.url}/health", directory)


class ApiServer(Daemon):
    """Kubernetes' API server with its rules of access, and two users: an administrator and the gateway's account."""

    def __init__(self, directory: Path, etcd: Etcd) -> None:
        (address,) = free_addresses(1)
        self.url = f"https://{address}"
        directory = own(directory, "kubernetes")
        key, public = directory / "account.key", directory / "account.pub"
        openssl = str(program("openssl"))
        subprocess.run([openssl, "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        subprocess.run(
            [openssl, "rsa", "-in", str(key), "-pubout", "-out", str(public)], check=True, capture_output=True
        )
        tokens = directory / "tokens.csv"
        tokens.write_text(f'admin,admin,1,"system:masters"\ngateway,{GATEWAY},2\n')
        options = [
            f"--etcd-servers={etcd.url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={address.rpartition(':')[2]}",
            "--advertise-address=192.0.2.1",  # loopback addresses are refused
            "--endpoint-reconciler-type=none",
            f"--cert-dir={directory / 'certificates'}",
            "--service-account-issuer=https://localhost",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            f"--token-auth-file={tokens}",
            "--disable-admission-plugins=ServiceAccount",  # its accounts are made by a controller, which is not here
        ]
        # /readyz is open to everybody.
        super().__init__([kube_apiserver(), *options], f"{self.url}/readyz", directory, seconds=PATIENCE)

    def call(self, method: str, path: str, body: object = None, token: str = "admin") -> tuple[int, Any]:
        """Return the status and the answer of a request."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=UNVERIFIED) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def create(self, document: Mapping[str, Any], dry: bool = False) -> tuple[int, Any]:
        """Create what a document describes; `dry` only lets the server check it, as `kubectl --dry-run=server` does."""
        group, kind = str(document["apiVersion"]), str(document["kind"])
        namespace = document["metadata"].get("namespace")
        where = f"namespaces/{namespace}/" if namespace else ""
        base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        options = "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")
        return self.call("POST", f"{base}/{where}{kind.lower()}s{options}", document)


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def run(folder: Path, say: Say) -> bool:
    """Run all of it. Returns whether everything was as it should be."""
    otelcol(), helm(), kube_apiserver()
    if shutil.which("etcd") is None:
        raise Missing("etcd is not installed: apt-get install etcd-server")
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd(folder))
        server = stack.enter_context(ApiServer(folder, etcd))
        good = dry_run(server, say)
        good &= names_of_pods(folder, server, say)
    return injected(folder, say) and good


def dry_run(server: ApiServer, say: Say) -> bool:
    """Let the server check the manifests and the chart, and a misspelt one, which it must refuse."""
    for namespace in ("monitoring", "ml"):
        server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    template = [str(helm()), "template", "agent", str(DEPLOY / "helm"), "--namespace=monitoring"]
    texts = {name: (DEPLOY / f"{name}.yaml").read_text() for name in ("kubernetes", "gateway")}
    for option in ("podResources=false", "podResources=true"):
        done = subprocess.run([*template, f"--set={option}"], capture_output=True, text=True, check=True)
        texts[f"helm {option}"] = done.stdout
    good = True
    for name, text in texts.items():
        for document in documents(text):
            status, answer = server.create(document, dry=True)
            good &= status == 201
            what = f"{document['kind']} {document['metadata']['name']}"
            say(f"dry run: {name}: {what}: {status} {answer.get('message', '')}".rstrip())
    (wrong,) = documents(texts["kubernetes"].replace("hostPID", "hostPids"))
    status, answer = server.create(wrong, dry=True)
    say(f"dry run: a misspelt field: {status} {answer['message']}")
    return good and status == 400


def names_of_pods(folder: Path, server: ApiServer, say: Say) -> bool:
    """Send what an agent sends of a pod, and look at what the gateway, with the rights of its role, makes of it."""
    for document in documents((DEPLOY / "gateway.yaml").read_text()):
        if document["kind"].startswith("ClusterRole"):
            server.create(document)
    server.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "ml", "labels": {"team": "vision"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "train"}]},
    }
    status, answer = server.create(pod)
    if status != 201:
        raise AssertionError(answer)
    uid = answer["metadata"]["uid"]
    config = folder / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server.url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": "gateway"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    made = certificate(folder)
    files = {
        "exporters": {"file": {"path": "${env:TELEMETRY_DIRECTORY}/metrics.jsonl", "flush_interval": "50ms"}},
        "service": {"pipelines": {"metrics/files": {"receivers": ["forward"], "exporters": ["file"]}}},
    }
    access = {"KUBECONFIG": str(config), "KUBERNETES_AUTH": "kubeConfig"}
    with secure_gateway(folder, made, FOLDER / "kubernetes.yaml", files, **access) as far:
        import grpc

        exporter = OTLPMetricExporter(
            far.grpc.replace("http://127.0.0.1", "https://localhost"),
            credentials=grpc.ssl_channel_credentials(made.file.read_bytes()),
            headers={"authorization": f"Bearer {TOKEN}"},
        )
        reader = PeriodicExportingMetricReader(exporter, 3_600_000)
        provider = MeterProvider([reader], Resource({"host.name": "n1"}), shutdown_on_exit=False)
        meter = provider.get_meter("trial")
        meter.create_gauge("hw.holder.info").set(1, {"hw.id": "GPU-1", "k8s.pod.uid": uid})
        meter.create_gauge("hw.power").set(500, {"hw.id": "GPU-1"})
        named: dict[str, Mapping[str, object]] = {}

        def arrived() -> bool:
            provider.force_flush()  # the processor learns of pods after its start
            named.update({point.name: point.resource for point in far.metrics()})
            return "k8s.pod.name" in named.get("hw.holder.info", {})

        wait(arrived, 60.0, lambda: f"the pod's name: {named}; {far.log.read_text()[-3000:]}")
        provider.shutdown()
    for name, resource in sorted(named.items()):
        say(f"{name}: {dict(sorted(resource.items()))}")
    holder, power = named["hw.holder.info"], named["hw.power"]
    expected = {"k8s.pod.name": "train-0", "k8s.namespace.name": "ml", "k8s.node.name": "n1", "team": "vision"}
    return expected.items() <= holder.items() and not any(key.startswith("k8s.pod") for key in power)


def injected(folder: Path, say: Say) -> bool:
    """What the Operator does: a folder with packages, from the image, is put on the PYTHONPATH of a pod's program."""
    target = folder / "autoinstrumentation"
    text = (DEPLOY / "Dockerfile.instrumentation").read_text().partition("\n\n")[0]  # that for glibc
    (line,) = [each for each in text.splitlines() if "--target" in each]
    packages = line.partition("--target /autoinstrumentation ")[2].replace("/package", str(ROOT)).split()
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "install", "-q", "--target", str(target), *packages], check=True)
    for remove in [each.removeprefix("RUN ") for each in text.splitlines() if each.startswith("RUN rm ")]:
        subprocess.run(remove.replace("/autoinstrumentation", str(target)), shell=True, check=True)
    if PathFinder.find_spec("grpc", [str(target)]) is not None:
        say("Operator: grpcio of the image would replace that of the pod")
        return False
    with started_in_pod(folder, target) as (sink, took):
        say(f"Operator: the metrics of a program without OpenTelemetry arrived after {took:.1f} s")
        return {"process.cpu.time", "process.memory.usage"} <= sink.names


@contextmanager
def started_in_pod(folder: Path, target: Path) -> Iterator[tuple[Sink, float]]:
    """A program in an environment of its own, which has no packages, with the variables that the Operator sets."""
    venv = folder / "pod"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    instrumentation = yaml.safe_load((DEPLOY / "instrumentation.yaml").read_text())["spec"]["python"]["env"]
    variables = {each["name"]: each["value"] for each in instrumentation if "value" in each}
    with Sink() as sink:
        here = sink.environment(1.0)
        path = f"{target}/opentelemetry/instrumentation/auto_instrumentation{os.pathsep}{target}"
        environment = variables | {
            "PYTHONPATH": path,
            "OTEL_EXPORTER_OTLP_ENDPOINT": here["OTEL_EXPORTER_OTLP_ENDPOINT"],
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
        }
        begin = time.monotonic()
        with started([str(venv / "bin" / "python"), "-c", "import time; time.sleep(600)"], environment):
            wait(lambda: "process.cpu.time" in sink.names, PATIENCE, "metrics of the program")
            yield sink, time.monotonic() - begin
    shutil.rmtree(target, ignore_errors=True)
