"""Errors, repairs and links of a GPU, most of which NVML reports as fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.nvidia import codes
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n
from opentelemetry.instrumentation.hardware.sources.nvidia.calls import FATAL, LOST, NEVER, NO_VALUE, NvmlDevice, Values
from opentelemetry.instrumentation.hardware.sources.nvidia.components import fabric_state

# Slow readings from one reading of what is expensive, such as each link by itself, to the next: a minute.
RARELY: Final = 6

_MOST_LINKS: Final = 128  # maximum links of a GPU

# The answer of a field of each link if the GPU has none, in the words of NVML.
_NO_LINK: Final = (codes.NOT_SUPPORTED, "Not Supported")


class Health:
    """The errors, repairs and links of a GPU.

    Args:
        gpu: The GPU. :meth:`read` sets its state.
        is_detailed: Whether to report the state of each NVLink, and more kinds of errors.
        has_link_bytes: Whether to report the bytes over each NVLink.

    Attributes:
        fields: What every GPU should have.
        fabric: The state of its NVLink fabric; "" if it has none.
    """

    def __init__(self, gpu: NvmlDevice, is_detailed: bool, has_link_bytes: bool) -> None:
        self._gpu = gpu
        self._is_detailed = is_detailed
        self._has_link_bytes = has_link_bytes
        self.fabric = ""
        kinds = {**f.ERRORS, **(f.MORE_ERRORS if is_detailed else {})}
        self._sums: dict[Field, tuple[f.Ids, ...]] = {**kinds, f.RECOVERY_ACTION: ((f.RECOVERY,),)}
        if not is_detailed:
            self._sums[f.NVLINK_UP] = (((f.NVLINK_STATE, f.EACH_NVLINK),),)
        self.fields = (*self._sums, *f.SRAM_ERRORS)
        self._degraded = f.degraded(n.driver_version(gpu.nvml))
        self._unsupported: set[str] = set()
        self._is_flagged: dict[str, bool] = {}
        self._often: f.Ids = ()
        self._rarely: f.Ids = ()
        self._turn = 0
        self._action = 0
        self._answers: dict[tuple[int, int], Sequence[Any]] = {}

    def read(self) -> Values:
        """Read all values, and set the state of the GPU.

        Raises:
            DriverError: The call failed.
        """
        if not self._often:
            self._prepare()
        is_full = self._turn % RARELY == 0
        ids = (*self._often, *self._rarely) if is_full else self._often
        self._answers.update(zip(ids, self._gpu.field_values(ids)))
        if is_full:
            for name, (version, flags) in f.REPAIRS.items():
                words = self._structure(name, version)
                if words:
                    self._is_flagged[name] = any(words[flag] for flag in flags)
            words = self._structure(*f.FABRIC)
            if words:
                *_cluster, status, _clique, state, health = words
                self.fabric = fabric_state(state & 0xFF, status, health)  # the state is a byte
        self._turn += 1
        code, action = self._answers.get(f.RECOVERY, (1, 0))
        if not code and action != self._action:
            if action:
                text = f"the driver requires a recovery action: {c.RECOVERY_ACTIONS.get(action, action)}"
                self._gpu.add_event(c.RECOVERY_EVENT, True, text, {})
            self._action = action
        is_pending = any(value for code, value in map(self._answers.__getitem__, self._degraded) if not code)
        self._gpu.state = "degraded" if is_pending or any(self._is_flagged.values()) else "ok"
        return self._values()

    def _prepare(self) -> None:
        """Count the links, and list the fields to read."""
        counts: dict[int, int] = {}
        for scope, (code, value) in zip(f.LINK_COUNTS, self._gpu.field_values(tuple(f.LINK_COUNTS.values()))):
            if code and code not in (*NEVER, *NO_VALUE):
                raise DriverError(code, value)
            counts[scope] = 0 if code else int(min(value, _MOST_LINKS))
        often, rarely = {*self._degraded, *chain.from_iterable(f.SRAM_ERRORS.values())}, set()
        for link in range(counts[f.EACH_NVLINK]):
            if self._is_detailed:
                self._sums[f.nvlink_up(link)] = (((f.NVLINK_STATE, link),),)
                rarely.add((f.NVLINK_STATE, link))
            for number, way in f.NVLINK_BYTES.items() if self._has_link_bytes else ():
                self._sums[f.nvlink_io(link, way)] = (((number, link),),)
        for field, alternatives in self._sums.items():
            for ids in alternatives:
                is_of_each_link = any(scope < 0 for _, scope in ids)
                (rarely if is_of_each_link else often).update(_expanded(ids, counts))
            self._sums[field] = tuple(_expanded(ids, counts) for ids in alternatives)
        self._often, self._rarely = tuple(sorted(often - rarely)), tuple(sorted(rarely))

    def _values(self) -> Values:
        found: dict[Field, object] = {}
        for field, alternatives in self._sums.items():
            code, value = self._sum(field, alternatives)
            if code:
                self._gpu.unsupported[field.series] = value
            else:
                found[field] = value
        for field, ids in f.SRAM_ERRORS.items():
            total, part = (self._answers[each] for each in ids)
            failed = [text for code, text in (total, part) if code]
            if failed:
                self._gpu.unsupported[field.series] = failed[0]
            else:
                found[field] = total[1] - part[1]
        return found

    def _sum(self, field: Field, alternatives: Sequence[f.Ids]) -> Sequence[Any]:
        """Return 0 and the sum of the first alternative that the GPU supports, or NVML's code and text.

        An alternative that has had a value is kept: the others may count from another time.
        """
        failed: Sequence[Any] = _NO_LINK
        for ids in alternatives:
            answers = [self._answers[each] for each in ids]
            failed = next((answer for answer in answers if answer[0]), () if answers else _NO_LINK)
            if not failed:
                self._sums[field] = (ids,)
                return 0, sum(value for _, value in answers)
            if failed[0] not in (*NEVER, *NO_VALUE):
                break
        return failed

    def _structure(self, name: str, version: int) -> list[int]:
        """Return a structure as words of 32 bits; empty if it has no value, and for good if it is not supported."""
        if name in self._unsupported:
            return []
        try:
            return self._gpu.nvml.structure(self._gpu.key, name, version)
        except DriverError as error:
            if error.code in (*LOST, *FATAL):
                raise
            if error.code in NEVER:
                self._unsupported.add(name)
            return []


def _expanded(ids: f.Ids, counts: Mapping[int, int]) -> f.Ids:
    """Return fields with each scope replaced by those of the links that it stands for."""
    return tuple((number, link) for number, scope in ids for link in (range(counts[scope]) if scope < 0 else (scope,)))
