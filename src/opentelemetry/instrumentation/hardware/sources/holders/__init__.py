"""Holders: who uses each accelerator, and whom a scheduler gave it to.

The sources of the vendors list the processes (:attr:`.SourceContext.held`). This one has a thread of its own, because
name services, the kubelet and folders may block, and no device may be missing meanwhile.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Attributes, Point, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.system import identity
from opentelemetry.instrumentation.hardware.system.files import names_or_empty, read_text
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Holder

_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
_JOB_FILES_VARIABLE: Final = "DCGM_HPC_JOB_MAPPING_DIR"

# A folder of the kubelet, with a folder for each pod: its namespace, name and uid with ``_`` between them.
_POD_LOGS: Final = "/var/log/pods"

# A line of a job file: the id of a job, and in those of jobstats the user id.
_JOB: Final = re.compile(r"([\w.@:\[\]-]{1,64})(?:\s+([0-9]{1,10}))?", re.ASCII)

# A device by its index, as some device plugins name it.
_NUMBER: Final = re.compile(r"(?:nvidia)?([0-9]{1,4})")

# Prefixes of the names of resources with devices that may be named by index, and the source of their vendor.
_RESOURCES: Final = {"nvidia.com/": "nvidia", "amd.com/": "amd", "google.com/tpu": "tpu"}

# Holders of a device in one state that are reported by name. All series of the agent are in one process's memory.
_MOST: Final = 64


class _Allocation(NamedTuple):
    """Whom a scheduler gave a device.

    Attributes:
        vendors: The sources that the device may be one of, if it is named by its index.
        device: Its index, UUID or PCI address, in lower case.
        holder: The attributes of the holder.
    """

    vendors: tuple[str, ...]
    device: str
    holder: Mapping[str, str]

    def is_of(self, device: HeldDevice) -> bool:
        number = _NUMBER.fullmatch(self.device)
        is_index = number is not None and device.vendor in self.vendors and int(number[1]) == device.number
        return is_index or self.device in device.names


class Holders(Source):
    """The holders of all devices."""

    name = "holders"
    rows = ("hw.holder.",)
    of_all_processes = True

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what reads names and the kubelet, if it is here."""
        kubelet = [f"{__name__}.kubelet"] if os.path.exists(_socket(config)) else []
        for module in ("pwd", *kubelet):
            with suppress(ImportError):
                importlib.import_module(module)
        return True

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._kubelet: Any = None
        self._allocations: list[_Allocation] = []
        self._pods: dict[str, tuple[str, str]] = {}
        self._users: dict[str, str] = {}

    def open(self) -> None:
        if self.context.held is None:
            raise Unavailable("only 'otel-hardware run' without a program reports who uses devices")
        self._files = self.context.drivers.files()
        # In a container, the names of users are those of its image.
        self._names_users = not identity.container(self._files)
        config = self.context.config
        self._socket = _socket(config)
        is_off = config.job_files == "off"
        self._folder = setting_path(config.job_files) or (
            "" if is_off else self.context.environ.get(_JOB_FILES_VARIABLE, "")
        )
        self.read_slow()

    def read_slow(self) -> tuple[()]:
        """Ask the kubelet, and read the job files."""
        self.errors, self.unsupported = [], []
        self._users = {number: name for number, name in self._users.items() if name}
        folders = [name.split("_") for name in names_or_empty(self._files, _POD_LOGS)]
        self._pods = {words[2]: (words[0], words[1]) for words in folders if len(words) == 3}
        self._allocations = [*self._of_pods(), *self._of_jobs()]
        return ()

    def _of_pods(self) -> Iterator[_Allocation]:
        if not self._socket or not self._files.exists(self._socket):
            if setting_path(self.context.config.pod_resources):
                self.errors.append(f"{self._socket} does not exist, or this user cannot see it")
            return
        try:
            if self._kubelet is None:
                from opentelemetry.instrumentation.hardware.sources.holders.kubelet import Kubelet

                self._kubelet = self.context.drivers.custom("kubelet", lambda: Kubelet(self._socket))
            rows = self._kubelet.devices()
        except Unavailable as error:
            self.unsupported.append(f"hw.holder.info{{allocated}}: {error.reason}; {error.fix}")
            return
        except DriverError as error:
            self.errors.append(f"the kubelet's PodResources at {self._socket}: {error.text}")
            return
        uids: dict[tuple[str, str], set[str]] = {}
        for uid, pod in self._pods.items():
            uids.setdefault(pod, set()).add(uid)
        for namespace, pod, container, resource, device in rows:
            vendors = tuple(source for start, source in _RESOURCES.items() if resource.startswith(start))
            known = uids.get((namespace, pod), set())
            holder = {
                c.K8S_NAMESPACE: namespace,
                c.K8S_POD_NAME: pod,
                c.K8S_POD_UID: next(iter(known)) if len(known) == 1 else "",
                c.K8S_CONTAINER_NAME: container,
            }
            yield _Allocation(vendors, device.partition("::")[0].lower(), holder)  # ::0 and ::1 share a device

    def _of_jobs(self) -> Iterator[_Allocation]:
        for name in names_or_empty(self._files, self._folder) if self._folder else ():
            for line in read_text(self._files, os.path.join(self._folder, name)).splitlines():
                job = _JOB.fullmatch(line.strip())
                if job:
                    holder = {c.SLURM_JOB_ID: job[1], c.USER_ID: job[2] or ""}
                    yield _Allocation(("nvidia", "amd"), name.lower(), holder)

    def read(self) -> Iterator[Point]:
        """Yield the holders of each device, with their memory. With ``DETAIL=holders``, label the devices."""
        labels: dict[str, Attributes] = {}
        for devices in [*(self.context.held or {}).values()]:
            for device in devices:
                if device.users is not None:
                    yield from self._used(device, device.users)
                allocated = {self._key(each.holder) for each in self._allocations if each.is_of(device)}
                for key in sorted(allocated)[:_MOST]:
                    yield c.HW_HOLDER_INFO(1, {**device.attributes, **dict(key), c.HOLDER_STATE: "allocated"})
                used = {self._key(user.owner or {}) for user in device.users or ()}
                if len(allocated or used) == 1:
                    labels[str(device.attributes[c.HW_ID])] = dict(next(iter(allocated or used)))
        known = self.context.labels
        if known is not None and "holders" in (self.context.config.detail or ()):
            known.update(labels)
            for ended in known.keys() - labels.keys():
                del known[ended]

    def _used(self, device: HeldDevice, users: Sequence[Holder]) -> Iterator[Point]:
        sizes: dict[tuple[tuple[str, str], ...], list[int | None]] = {}
        times: dict[tuple[tuple[str, str], ...], float] = {}
        for user in users:
            key = self._key(user.owner or {})
            key = key if key in sizes or len(sizes) < _MOST else ()
            sizes.setdefault(key, []).append(user.memory)
            if user.share is not None:
                times[key] = times.get(key, 0.0) + user.share
        free = device.memory
        for key, listed in sizes.items():
            attributes = {**device.attributes, **dict(key), c.HOLDER_STATE: "used"}
            yield c.HW_HOLDER_INFO(1, attributes)
            if key in times:
                yield c.HW_HOLDER_UTILIZATION(min(1.0, times[key]), attributes)
            known = [size for size in listed if size is not None]
            if len(known) == len(listed):
                yield c.HW_HOLDER_MEMORY(sum(known), attributes)
                free = None if free is None else free - sum(known)
            else:
                free = None
        if free is not None:
            yield c.HW_HOLDER_MEMORY(max(0, free), {**device.attributes, c.HOLDER_STATE: "none"})

    def _key(self, holder: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Return the attributes of a holder, with the names that are known."""
        namespace, pod = self._pods.get(holder.get(c.K8S_POD_UID, ""), ("", ""))
        names = {c.K8S_NAMESPACE: namespace, c.K8S_POD_NAME: pod, c.USER_NAME: self._user(holder.get(c.USER_ID, ""))}
        return tuple(sorted((name, value) for name, value in {**names, **holder}.items() if value))

    def _user(self, number: str) -> str:
        """Return the name of a user; "" if unknown. A name service may block."""
        if not number or not self._names_users:
            return ""
        if number not in self._users:
            self._users[number] = ""
            with suppress(ImportError, KeyError, OverflowError, OSError):
                import pwd

                self._users[number] = pwd.getpwuid(int(number)).pw_name
        return self._users[number]


def _socket(config: Config) -> str:
    """Return the path of the kubelet's socket; "" if it is off."""
    return setting_path(config.pod_resources) or ("" if config.pod_resources == "off" else _SOCKET)
