"""Which of a machine's GPUs are meant: by ``DEVICES``, by the variables that restrict a program, or by its use of them.

Plain data and the environment go in, the ids of devices come out. Nothing is guessed: where the environment does not
tell which device it means, all of them are chosen, and :attr:`Chosen.doubt` says why.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.config import PREFIX

CUDA: Final = "CUDA_VISIBLE_DEVICES"
CONTAINER: Final = "NVIDIA_VISIBLE_DEVICES"

JOBS: Final = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "SGE_TASK_ID",
    "FLUX_JOB_ID",
    "_CONDOR_SCRATCH_DIR",
    "KUBERNETES_SERVICE_HOST",
)
"""One of them is set in what a scheduler started: Slurm, PBS, LSF, Grid Engine, Flux, HTCondor, Kubernetes."""

_EVERYTHING: Mapping[str, str] = MappingProxyType({})

_SILENT: Final = ("", "void")
"""What the variable of containers is where it does not say what there is: others put the devices there."""

_LOG = logging.getLogger(__name__)


class Part(NamedTuple):
    """A MIG instance.

    Attributes:
        id: its ``hw.id``.
        slot: its place among those of the GPU.
        instance: what the driver calls it, the GPU instance and the compute instance.
    """

    id: str
    slot: int
    instance: tuple[int | None, int | None] = (None, None)


class Found(NamedTuple):
    """A GPU that there is, as far as it says what it is.

    Attributes:
        number: NVML's index, which is the order of the bus.
        id: its ``hw.id``: its UUID, or another word as long as it does not answer.
        model: its name.
        address: on the bus, ``0000:1a:00.0``.
        divided: whether it is used by its parts only.
        parts: its MIG instances.
    """

    number: int
    id: str
    model: str = ""
    address: str = ""
    divided: bool = False
    parts: tuple[Part, ...] = ()

    @property
    def unknown(self) -> bool:
        """Whether it might be any of those that are called by a UUID."""
        return not self.id.startswith("GPU-")

    @property
    def ids(self) -> frozenset[str]:
        """It and all of its parts."""
        return frozenset({self.id, *(part.id for part in self.parts)})


class Chosen(NamedTuple):
    """What was chosen.

    Attributes:
        ids: the devices and MIG instances.
        doubt: why it could not be known what is meant, in a sentence that begins with the variable.
        strange: words that mean none of the devices.
    """

    ids: frozenset[str]
    doubt: str = ""
    strange: tuple[str, ...] = ()


def rule(words: Sequence[str] | None, environ: Mapping[str, str]) -> Sequence[str]:
    """What ``DEVICES`` says; by default what is visible in a scheduler's job, and everything elsewhere."""
    if words is not None:
        return words
    return ["visible"] if any(environ.get(name, "").strip() for name in JOBS) else ["all"]


def choose(
    words: Sequence[str], environ: Mapping[str, str], found: Sequence[Found], used: Collection[str] = ()
) -> Chosen:
    """The devices that are meant.

    Args:
        words: ``all``, ``visible``, ``process``, or the names of devices.
        environ: the variables that restrict a program.
        found: all devices.
        used: the ids of those that the observed program uses.
    """
    if words == ["process"]:
        return Chosen(_all(found) & frozenset(used))
    if words == ["visible"]:
        seen = _by_cuda(environ, found)
        return seen._replace(ids=seen.ids & _by_container(environ, found))
    return Chosen(_all(found)) if words == ["all"] else _by_name(words, found)


def _all(found: Sequence[Found]) -> frozenset[str]:
    return frozenset[str]().union(*(gpu.ids for gpu in found))


def _unknown(found: Sequence[Found]) -> frozenset[str]:
    return frozenset(gpu.id for gpu in found if gpu.unknown)


# -- the words that devices are called by


def _by_name(words: Sequence[str], found: Sequence[Found]) -> Chosen:
    """Those that are called by name. One that does not answer is meant by a word that means no other."""
    ids, strange = set[str](), []
    for word in words:
        meant = frozenset[str]().union(*_named(word, found)) or (_unknown(found) if _is_lasting(word) else frozenset())
        ids |= meant
        if not meant:
            strange.append(word)
    return Chosen(frozenset(ids), strange=tuple(strange))


def _is_uuid(word: str) -> bool:
    return word[:4].casefold() in ("gpu-", "mig-")


def _is_lasting(word: str) -> bool:
    """Whether it may be the name of a device that does not say its name."""
    return _is_uuid(word) or _address(word.casefold()) is not None


def _named(word: str, found: Sequence[Found]) -> Iterator[frozenset[str]]:
    """Those that a word means, each with its parts: an index, ``index:slot``, the beginning of a UUID, an address."""
    plain = word.casefold()
    instance = re.fullmatch(r"mig-(gpu-[^/]+)/([0-9]{1,9})/([0-9]{1,9})", plain)
    address = _address(plain)
    for gpu in found:
        own = (str(gpu.number), "" if gpu.unknown else gpu.id.casefold())
        if (
            plain == own[0]
            or (plain.startswith("gpu-") and own[1].startswith(plain))
            or (address and address == _address(gpu.address.casefold()))
        ):
            yield gpu.ids
        for part in gpu.parts:
            if (
                plain == f"{gpu.number}:{part.slot}"
                or (plain.startswith("mig-") and part.id.casefold().startswith(plain))
                or (
                    instance
                    and own[1].startswith(instance[1])
                    and part.instance == (int(instance[2]), int(instance[3]))
                )
            ):
                yield frozenset({part.id})


def _address(text: str) -> tuple[int, str] | None:
    """Domain and place of an address on the bus: the domain is left out at times, and has four digits or eight."""
    form = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text)
    return (int(form[1] or "0", 16), form[2]) if form else None


# -- what restricts a program


def _by_cuda(environ: Mapping[str, str], found: Sequence[Found]) -> Chosen:
    """Those that CUDA shows to a program: up to the first word that means none, and none if one comes twice."""
    said = environ.get(CUDA)
    if said is None:
        return Chosen(_all(found))
    shown: list[frozenset[str]] = []
    for word in (each.strip() for each in said.split(",")):
        number = re.match(r"\+?([0-9]{1,9})", word)  # CUDA takes the number that a word begins with
        if number is None:
            meant = _by_uuid(word, found)
        elif int(number[1]) >= len(found):
            break
        elif doubt := _doubt(environ, found):
            return Chosen(_all(found), f"{CUDA}={_printable(said)}: {doubt}")
        else:
            meant = found[int(number[1])].ids
        if not meant:
            break
        if meant in shown:
            return Chosen(frozenset())
        shown.append(meant)
    return Chosen(frozenset[str]().union(*shown))


def _by_uuid(word: str, found: Sequence[Found]) -> frozenset[str]:
    """The one whose UUID begins so; of several that begin alike CUDA takes none.

    Where it is none of those that answer, it is one of the others.
    """
    if not _is_uuid(word):
        return frozenset()
    meant = list(_named(word, found)) or [_unknown(found)]
    return meant[0] if len(meant) == 1 else frozenset()


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:80])


def _doubt(environ: Mapping[str, str], found: Sequence[Found]) -> str:
    """Why a number of CUDA's is not known to be the same GPU as NVML's."""
    if any(gpu.unknown or not gpu.model for gpu in found):
        return "a GPU does not answer, so it is not known how CUDA counts the others; UUIDs would tell"
    if any(gpu.divided for gpu in found):
        return "a GPU is divided, so that numbers do not tell which MIG instance is meant; UUIDs would tell"
    if len({gpu.model for gpu in found}) > 1 and environ.get("CUDA_DEVICE_ORDER", "").strip() != "PCI_BUS_ID":
        return (
            "the GPUs are of different models, and which of them CUDA takes for the fastest is not known; "
            "UUIDs would tell, or CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return ""


def _by_container(environ: Mapping[str, str], found: Sequence[Found]) -> frozenset[str]:
    """Those that were given to a container.

    Its runtime sees to it that there are no others, and then they are counted anew: the numbers in the variable are
    those of the host. A privileged container sees them all, by the host's numbers.
    """
    said = environ.get(CONTAINER, "").strip()
    if said in _SILENT or said.startswith("/"):
        return _all(found)
    if said == "none":
        return frozenset()
    words = {word.strip().rpartition("=")[2] for word in said.split(",")}  # or nvidia.com/gpu=0
    if "all" in words or _is_enforced(words, found):
        return _all(found)
    return _by_name(sorted(words), found).ids or _all(found)  # no runtime obeyed words that mean no device


def _is_enforced(words: Collection[str], found: Sequence[Found]) -> bool:
    """Whether there are no more devices than were given, so that they are those."""
    gpus = {word.partition(":")[0] for word in words}
    if len(found) > len(gpus):
        return False
    return any(_is_whole(word) for word in words) or sum(len(gpu.parts) or 1 for gpu in found) <= len(words)


def _is_whole(word: str) -> bool:
    return ":" not in word and not word.casefold().startswith("mig-")


# -- the choice, again and again


class Choice:
    """The devices that are read; devices and uses come and go, so it is made again and again.

    Args:
        words: the setting ``DEVICES``.
        environ: the variables that restrict a program.

    Attributes:
        found: all devices that there are.
        by_use: whether it depends on what the observed program uses.
    """

    def __init__(self, words: Sequence[str] | None = None, environ: Mapping[str, str] = _EVERYTHING) -> None:
        self._words = list(rule(words, environ))
        self._environ = environ
        self._used: set[str] = set()
        self._told: set[str] = set()
        self._chosen = Chosen(frozenset())
        self.found: Sequence[Found] = ()
        self.by_use = self._words == ["process"]

    def look(self, found: Sequence[Found]) -> None:
        """Choose among these. A word that means none of them costs one warning."""
        self.found = found
        self._chosen = choose(self._words, self._environ, found, self._used)
        fresh = [word for word in self._chosen.strange if word not in self._told]
        if fresh:
            self._told.update(fresh)
            _LOG.warning(
                "%sDEVICES: there is no GPU %s, left out; there %s",
                PREFIX,
                ", ".join(fresh),
                f"are {', '.join(map(_called, found))}" if found else "is none",
            )

    def use(self, id: str) -> None:  # noqa: A002
        """The observed program uses a device: from now on it may be chosen for that."""
        if id not in self._used:
            self._used.add(id)
            self.look(self.found)

    def __contains__(self, device: object) -> bool:
        return self._words == ["all"] or device in self._chosen.ids

    def missing(self) -> list[str]:
        """Why there are more devices than were asked for, or none."""
        if self._chosen.doubt:
            return [f"{self._chosen.doubt}; all are reported"]
        if self._chosen.ids or not self.found:
            return []
        if self.by_use:
            return [f"hw.gpu.*: the program has not used a GPU so far ({PREFIX}DEVICES=process)"]
        if self._words == ["visible"]:
            said = [f"{name}={_printable(self._environ[name])}" for name in (CUDA, CONTAINER) if name in self._environ]
            return [f"hw.gpu.*: {' and '.join(said)} shows the program no GPU"]
        return [f"hw.gpu.*: there is none of those in {PREFIX}DEVICES"]


def _called(gpu: Found) -> str:
    """What one may be called."""
    more = [gpu.address] * bool(gpu.address) + [part.id for part in gpu.parts]
    return f"{gpu.number} ({', '.join([gpu.id, *more])})"
