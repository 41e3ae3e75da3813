"""Which of a machine's accelerators are meant: by ``DEVICES``, by what restricts a program, or by its use of them.

Plain data and the environment go in, the ids of devices come out. What variables restrict a program, and how, each
vendor says in a :class:`VisibilityRule`. Nothing is guessed: where the environment does not tell which device it
means, all of them are chosen, and :attr:`Chosen.doubt` says why.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.system.files import Files

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

_BUS: Final = "/proc/bus/pci/devices"
_GPUS: Final = ("nvidia", "amdgpu")
"""Where the kernel lists what is on the bus, each with its driver; and the drivers of GPUs that are called alike."""

_LOG = logging.getLogger(__name__)


class Part(NamedTuple):
    """A part of a device that programs see as a device: a MIG instance, a NeuronCore.

    Attributes:
        id: its ``hw.id``.
        slot: its place among those of the device.
        names: what else it is called.
    """

    id: str
    slot: int
    names: tuple[str, ...] = ()


class FoundDevice(NamedTuple):
    """A device that there is, as far as it says what it is.

    Attributes:
        number: its index.
        id: what its source knows it by.
        model: its name.
        address: on the bus, ``0000:1a:00.0``.
        divided: whether it is used by its parts only.
        parts: its parts.
        names: what else it is called.
        unknown: whether it does not say its names, and might be any of those that are called by one.
    """

    number: int
    id: str
    model: str = ""
    address: str = ""
    divided: bool = False
    parts: tuple[Part, ...] = ()
    names: tuple[str, ...] = ()
    unknown: bool = False

    @property
    def ids(self) -> frozenset[str]:
        """It and all of its parts."""
        return frozenset({self.id, *(part.id for part in self.parts)})


class Chosen(NamedTuple):
    """What was chosen.

    Attributes:
        ids: the devices and their parts.
        doubt: why it could not be known what is meant, in a sentence that begins with the variable.
        strange: words that mean none of the devices.
    """

    ids: frozenset[str]
    doubt: str = ""
    strange: tuple[str, ...] = ()


def everything(found: Sequence[FoundDevice]) -> frozenset[str]:
    """All devices with all of their parts."""
    return frozenset[str]().union(*(device.ids for device in found))


class VisibilityRule(NamedTuple):
    """How a vendor's programs are shown some of its devices only.

    Attributes:
        noun: what its devices are called.
        rows: what is missing where none is chosen.
        variables: the variables that restrict a program.
        visible: which devices they leave.
        driver: who drives the devices, as the bus has it; "" for those that no other vendor's are mistaken for.
    """

    noun: str = "device"
    rows: str = "hw.*"
    variables: tuple[str, ...] = ()
    visible: Callable[[Mapping[str, str], Sequence[FoundDevice]], Chosen] = lambda _, found: Chosen(everything(found))
    driver: str = ""


def rule(words: Sequence[str] | None, environ: Mapping[str, str]) -> Sequence[str]:
    """What ``DEVICES`` says; by default what is visible in a scheduler's job, and everything elsewhere."""
    if words is not None:
        return words
    return ["visible"] if any(environ.get(name, "").strip() for name in JOBS) else ["all"]


def choose(
    words: Sequence[str],
    environ: Mapping[str, str],
    found: Sequence[FoundDevice],
    way: VisibilityRule,
    used: Collection[str] = (),
) -> Chosen:
    """The devices that are meant.

    Args:
        words: ``all``, ``visible``, ``process``, or the names of devices.
        environ: the variables that restrict a program.
        found: all devices.
        way: what those variables mean.
        used: the ids of those that the observed program uses.
    """
    if words == ["process"]:
        return Chosen(everything(found) & frozenset(used))
    if words == ["visible"]:
        return way.visible(environ, found)
    return Chosen(everything(found)) if words == ["all"] else by_name(words, found)


# -- the words that devices are called by


def by_name(words: Sequence[str], found: Sequence[FoundDevice]) -> Chosen:
    """Those that are called by name. One that does not say its name is meant by a word that means no other."""
    ids, strange = set[str](), []
    for word in words:
        meant = frozenset[str]().union(*named(word, found)) or _unnamed(word, found)
        ids |= meant
        if not meant:
            strange.append(word)
    return Chosen(frozenset(ids), strange=tuple(strange))


def unknown(found: Sequence[FoundDevice]) -> frozenset[str]:
    """Those that do not say their names."""
    return frozenset(device.id for device in found if device.unknown)


def _unnamed(word: str, found: Sequence[FoundDevice]) -> frozenset[str]:
    """Those that a word may mean because they do not say its like."""
    if is_uuid(word) or re.fullmatch("[0-9a-fA-F]{16}", word):
        return unknown(found)
    return unknown([device for device in found if not device.address]) if _address(word) else frozenset()


def is_uuid(word: str) -> bool:
    """Whether it looks like a UUID, or the beginning of one."""
    return word[:4].casefold() in ("gpu-", "mig-")


def named(word: str, found: Sequence[FoundDevice]) -> Iterator[frozenset[str]]:
    """Those that a word means, each with its parts: an index, ``index:slot``, a name, an address.

    Of a UUID the beginning is enough.
    """
    plain = word.casefold()
    address = _address(word)
    for device in found:
        if (
            plain == str(device.number)
            or _is_called(plain, (device.id, *device.names))
            or (address and address == _address(device.address))
        ):
            yield device.ids
        for part in device.parts:
            if plain == f"{device.number}:{part.slot}" or _is_called(plain, (part.id, *part.names)):
                yield frozenset({part.id})


def _is_called(plain: str, names: Sequence[str]) -> bool:
    """Whether one of the names is this word; or is a UUID that begins so, with the same instances behind it."""
    begin, *rest = plain.split("/")
    for name in names:
        known = name.casefold()
        if known == plain:
            return True
        uuid, *instances = known.split("/")
        if is_uuid(plain) and uuid.startswith(begin) and instances == rest:
            return True
    return False


def _address(text: str) -> tuple[int, str] | None:
    """Domain and place of an address on the bus: the domain is left out at times, and has four digits or eight."""
    form = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.casefold())
    return (int(form[1] or "0", 16), form[2]) if form else None


def printable(text: str) -> str:
    """The value of a variable as it can stand in a sentence."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])


# -- the choice, again and again


class DeviceFilter:
    """The devices that are read; devices and uses come and go, so it is made again and again.

    Args:
        words: the setting ``DEVICES``.
        environ: the variables that restrict a program.
        way: what those variables mean.
        kernel: tells of other vendors' devices, which a word may mean as well.

    Attributes:
        found: all devices that there are.
        by_use: whether it depends on what the observed program uses.
    """

    def __init__(
        self,
        words: Sequence[str] | None = None,
        environ: Mapping[str, str] = _EVERYTHING,
        way: VisibilityRule = VisibilityRule(),  # noqa: B008 - it does not change
        kernel: Files | None = None,
    ) -> None:
        self._words = list(rule(words, environ))
        self._environ = environ
        self._way = way
        self._kernel = kernel
        self._used: set[str] = set()
        self._told: set[str] = set()
        self._chosen = Chosen(frozenset())
        self.found: Sequence[FoundDevice] = ()
        self.by_use = self._words == ["process"]

    def look(self, found: Sequence[FoundDevice]) -> None:
        """Choose among these. A word that means none of them costs one warning."""
        self.found = found
        self._chosen = choose(self._words, self._environ, found, self._way, self._used)
        fresh = [word for word in self._chosen.strange if word not in self._told]
        if fresh:
            self._told.update(fresh)
            fresh = [word for word in fresh if not self._is_elsewhere(word)]
        if fresh:
            _LOG.warning(
                "%sDEVICES: there is no %s %s, left out; there %s",
                PREFIX,
                self._way.noun,
                ", ".join(fresh),
                f"are {', '.join(map(_called, found))}" if found else "is none",
            )

    def _is_elsewhere(self, word: str) -> bool:
        """Whether it may mean a GPU of another vendor: every vendor's are counted from 0, and named alike."""
        if not self._way.driver or self._kernel is None:
            return False
        try:
            lines = self._kernel.read(_BUS).decode("ascii", "replace").splitlines()
        except OSError:
            return False
        drivers = [line.split()[-1] for line in lines if line.strip()]
        others = max(drivers.count(driver) for driver in _GPUS if driver != self._way.driver)
        return bool(others) and (not word.isdecimal() or int(word) < others)

    def use(self, id: str) -> None:  # noqa: A002
        """The observed program uses a device: from now on it may be chosen for that."""
        if id not in self._used:
            self._used.add(id)
            self.look(self.found)

    def __contains__(self, device: object) -> bool:
        return self._words == ["all"] or device in self._chosen.ids

    def unsupported(self) -> list[str]:
        """Why there are more devices than were asked for, or none."""
        way = self._way
        if self._chosen.doubt:
            return [f"{self._chosen.doubt}; all are reported"]
        if self._chosen.ids or not self.found:
            return []
        if self.by_use:
            return [f"{way.rows}: the program has used no {way.noun} so far ({PREFIX}DEVICES=process)"]
        if self._words == ["visible"]:
            said = [f"{name}={printable(self._environ[name])}" for name in way.variables if name in self._environ]
            who = f"{' and '.join(said)} {'show' if len(said) > 1 else 'shows'}" if said else "this container shows"
            return [f"{way.rows}: {who} the program no {way.noun}"]
        return [f"{way.rows}: no {way.noun} is one of those in {PREFIX}DEVICES"]


def _called(device: FoundDevice) -> str:
    """What one may be called."""
    names = [device.id, *device.names[:1], device.address, *(part.id for part in device.parts)]
    return f"{device.number} ({', '.join(dict.fromkeys(filter(None, names)))})"
