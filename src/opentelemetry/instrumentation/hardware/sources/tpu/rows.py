"""The points of what is said of TPUs: which devices there are, and what each of them does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Number, Point, Series, SeriesCache
from opentelemetry.instrumentation.hardware.sources.tpu import runtime as r
from opentelemetry.instrumentation.hardware.sources.tpu.driver import Sample
from opentelemetry.instrumentation.hardware.sources.tpu.reading import Reader

_SIZE: Final = r"[0-9a-z.]{1,12}\+?"
"""How the sizes of buffers look: ``8mb+``."""

_TOLD_APART: Final = 64
"""Sizes of buffers that are told apart, at most."""


_Said: TypeAlias = "list[tuple[str, r.Answers]]"
"""What each program says, by its address."""


class _Core(NamedTuple):
    """A device as a program sees it: a chip, or a core of one.

    Attributes:
        id: ``hw.id``.
        name: ``hw.name``.
        parent: ``hw.id`` of the chip that it is a core of; "" where it is none, or it is not known of which.
    """

    id: str
    name: str
    parent: str = ""


class Rows:
    """Makes the points.

    Args:
        reader: asks the TPUs.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._of = SeriesCache()
        self._cores: dict[int, _Core] = {}
        self._chips: dict[int, _Core] = {}
        self._apart = False
        self._sizes: set[str] = set()
        self._last: dict[tuple[str | int, ...], r.Total] = {}
        self._grown: dict[tuple[str, int | str], r.Total] = {}
        self._doubts: dict[str, str] = {}
        self._model: str | None = None

    def read(self) -> Iterator[Point]:
        """Five calls of each program; or one look of the profiler's."""
        answers = r.merged(self._reader.ask(r.OFTEN))
        duty, used, total = (
            self._gauges(answers, name, most) for name, most in ((r.DUTY, 100), (r.USED, r.MOST), (r.TOTAL, r.MOST))
        )
        self._know(duty, used, total)
        for chip, percent in duty.items():
            core = self._chips.get(chip) or self._core(chip)
            yield self._task(core, "general")(percent / 100)
        for number, size in total.items():
            if size > 0 and size == int(size):
                yield from self._memory(self._core(number), used.get(number), int(size))
        for number, percent in self._gauges(answers, r.BANDWIDTH, 100).items():
            yield self._task(self._core(number), "hbm")(percent / 100)
        yield from self._queues(answers)
        yield from self._profiled()
        yield from self._driver()

    def _know(self, duty: Mapping[int, Number], used: Mapping[int, Number], total: Mapping[int, Number]) -> None:
        """Learn which devices there are, and whether those with memory are cores of those with a duty cycle.

        On v2 and v3 two cores have one duty cycle. The runtime does not say whose: both are listed in the same order.
        """
        memory = sorted({*used, *total})
        shared = self._shared(len(duty), len(memory))
        if shared and duty:
            self._chips = {number: _Core(f"tpu{number}", f"TPU {number}") for number in duty}
        if not memory:
            return
        if not shared:
            self._chips = {}
            self._cores = {number: _Core(f"tpu{number}", f"TPU {number}") for number in memory}
            return
        parents = [chip.id for chip in self._chips.values() for _ in range(2)]
        parents = parents if len(parents) == len(memory) else [""] * len(memory)
        self._cores = {
            number: _Core(f"tpucore{number}", f"TPU core {number}", parent) for number, parent in zip(memory, parents)
        }

    def _shared(self, duties: int, memories: int) -> bool:
        """Whether two cores have one duty cycle: the kind of chip says so, or else how many there are of each.

        Where each has had its own once, one that is missing now does not change what they are called.
        """
        found = self._reader.chips
        self._apart = self._apart or 0 < duties == memories
        return found[0].chip.shared if found else 0 < 2 * duties == memories and not self._apart

    def _core(self, number: int) -> _Core:
        """A device by its number; one without memory is known by that alone."""
        return self._cores.get(number) or _Core(f"tpu{number}", f"TPU {number}")

    def _series(self, row: Metric, core: _Core, *pairs: str) -> tuple[Metric | str, ...]:
        parent = (c.HW_PARENT, core.parent) if core.parent else ()
        return (row, c.HW_ID, core.id, c.HW_NAME, core.name, *parent, *pairs)

    def _task(self, core: _Core, task: str) -> Series:
        return self._of[self._series(c.HW_NPU_UTILIZATION, core, c.NPU_TASK, task)]

    def _memory(self, core: _Core, used: Number | None, total: int) -> Iterator[Point]:
        yield self._of[self._series(c.HW_NPU_MEMORY_LIMIT, core)](total)
        if used is not None and used > total:
            self._doubts[r.USED] = "it is more than there is"
        elif used is not None and used == int(used):
            yield self._of[self._series(c.HW_NPU_MEMORY_USAGE, core)](int(used))
            yield self._of[self._series(c.HW_NPU_MEMORY_UTILIZATION, core)](used / total)

    def _queues(self, answers: r.Answers) -> Iterator[Point]:
        sums: dict[tuple[int, str], Number] = {}
        for series in answers.get(r.QUEUE, ()):
            number, size = r.device(series), series.value
            if number is not None and size is not None and 0 <= size < 1 << 31:
                key = number, r.core_type(series)
                sums[key] = sums.get(key, 0) + size
        for (number, kind), size in sums.items():
            pairs = (c.TPU_CORE_TYPE, kind) if kind else ()
            yield self._of[self._series(c.GOOGLE_TPU_HLO_QUEUE_SIZE, self._core(number), *pairs)](size)

    def _profiled(self) -> Iterator[Point]:
        said = self._reader.look()
        self._model = said.model or self._model
        whole = _Core("tpu", "TPU")
        if said.matrix is not None:
            yield self._task(whole, "matrix")(said.matrix / 100)
        if said.idle is not None:
            yield self._task(whole, "general")((100 - said.idle) / 100)

    def _driver(self) -> Iterator[Point]:
        said = self._reader.driver()
        for number, percent in enumerate(said.tensorcore):
            if percent is not None:
                yield self._task(self._here(number, len(said.tensorcore)), "tensorcore")(percent / 100)
        for link, health in said.links.items():
            yield self._of[c.GOOGLE_TPU_LINK_HEALTH, c.TPU_LINK, link](health)
        for number, score in said.throttle.items():
            yield self._of[self._series(c.GOOGLE_TPU_THROTTLE_SCORE, self._here(number, len(said.throttle)))](score)

    def _here(self, number: int, many: int) -> _Core:
        """A device by its number among those of this host, which the driver counts from 0, if it knows them all."""
        known = [*self._cores.values()]
        return known[number] if number < many == len(known) else self._core(number)

    def read_slow(self) -> Iterator[Point]:
        """What the devices are, and what counts up: eight calls of each program."""
        said = self._reader.ask(r.SELDOM)
        answers = r.merged(said)
        yield from self._info()
        for number, seconds in self._gauges(answers, r.IDLE).items():
            yield self._of[self._series(c.GOOGLE_TPU_IDLE_DURATION, self._core(number))](seconds)
        yield from self._executions(said)
        for kind, name in r.TRANSFERS.items():
            yield from self._transfers(kind, name, said)

    def _info(self) -> Iterator[Point]:
        found = self._reader.chips
        facts: tuple[str, ...] = (c.HW_VENDOR, "Google")
        if found:
            facts = (*facts, c.HW_MODEL, found[0].chip.model)
        known = dict.fromkeys((*self._chips.values(), *self._cores.values()))
        for core in known:
            yield self._of[self._series(c.HW_NPU_INFO, core, *facts)](1)
        for number, (bdf, chip) in enumerate(found if not known else ()):
            core = _Core(bdf, f"TPU chip {number}")  # the runtime's numbers are not known yet
            facts = (c.HW_VENDOR, "Google", c.HW_MODEL, chip.model, c.PCI_BDF, bdf)
            yield self._of[self._series(c.HW_NPU_INFO, core, *facts)](1)
        if self._model:
            facts = (c.HW_VENDOR, "Google", c.HW_MODEL, self._model)
            yield self._of[self._series(c.HW_NPU_INFO, _Core("tpu", "TPU"), *facts)](1)

    def _executions(self, said: _Said) -> Iterator[Point]:
        found: dict[int, None] = {}
        for address, answers in said:
            by_core: dict[int, list[Sample]] = {}
            for series in answers.get(r.EXECUTION, ()):
                number = r.device(series)
                if number is not None:
                    by_core.setdefault(number, []).append(series)
            for number, listed in by_core.items():
                for total in r.totals(listed).values():
                    found[number] = None
                    self._grow(address, (r.EXECUTION, number), total)
        for number in sorted(found):
            events, seconds = self._grown[r.EXECUTION, number]
            core = self._core(number)
            yield self._of[self._series(c.GOOGLE_TPU_HLO_EXECUTION_COUNT, core)](events)
            yield self._of[self._series(c.GOOGLE_TPU_HLO_EXECUTION_TIME, core)](seconds)

    def _transfers(self, kind: str, name: str, said: _Said) -> Iterator[Point]:
        found: dict[str, None] = {}
        for address, answers in said:
            sizes: dict[str, r.Total] = {}
            for label, total in r.totals(answers.get(name, ()), "buffer-size").items():
                size = self._size(label)
                before = sizes.get(size, r.Total(0, 0.0))
                sizes[size] = r.Total(before.events + total.events, before.seconds + total.seconds)
            for size, total in sizes.items():
                found[size] = None
                self._grow(address, (name, size), total)
        for size in found:
            events, seconds = self._grown[name, size]
            pairs = (c.TPU_TRANSFER_KIND, kind, *((c.TPU_BUFFER_SIZE, size.upper()) if size else ()))
            yield self._of[(c.GOOGLE_TPU_TRANSFER_COUNT, *pairs)](events)
            yield self._of[(c.GOOGLE_TPU_TRANSFER_TIME, *pairs)](seconds)

    def _size(self, label: str | int) -> str:
        size = r.word(label, _SIZE)
        if size not in self._sizes and len(self._sizes) < _TOLD_APART:
            self._sizes.add(size)
        return size if size in self._sizes else ""

    def _grow(self, address: str, key: tuple[str, int | str], total: r.Total) -> None:
        """Add what one program has done since its answer before; programs end and begin at nothing again."""
        last = self._last.get((address, *key), r.Total(0, 0.0))
        if total.events < last.events:
            last = r.Total(0, 0.0)
        events, seconds = self._grown.get(key, r.Total(0, 0.0))
        # Seconds are a product of two numbers that were rounded: they must not seem to go back by that.
        more = max(0.0, total.seconds - last.seconds)
        self._grown[key] = r.Total(events + total.events - last.events, seconds + more)
        self._last[(address, *key)] = total

    def _gauges(self, answers: r.Answers, name: str, most: float = r.MOST) -> dict[int, Number]:
        """The numbers of a metric that can be true, by device."""
        series = answers.get(name, ())
        wrong = sum(r.believed(each, most) is None for each in series)
        self._doubts.pop(name, None)
        if wrong:
            self._doubts[name] = f"{wrong} of {len(series)} values cannot be true, or it is not said of what they are"
        return r.by_device(series, most)

    def unsupported(self) -> Iterator[str]:
        """What is said and not believed."""
        return (f"{r.ROWS[name]}: {doubt}" for name, doubt in self._doubts.items())
