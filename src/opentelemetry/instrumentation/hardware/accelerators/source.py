"""AcceleratorSource: the common part of the sources of all vendors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import ClassVar, Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, DriverChoice, open_first
from opentelemetry.instrumentation.hardware.accelerators.presence import DetectedSource, kernel_files
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter, VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.unsupported import ALL_SUSPENDED, HOST_PIDS, missing
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Point, Scope, Unavailable
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, SourceContext
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Holder, owner
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

# Times that spans look for the devices that the program uses. Later only slow readings do.
_LOOKS: Final = 60
# Seconds between the first two times; each of the next pauses is longer by as much, up to a second.
_FIRST_LOOK: Final = 0.25


class AcceleratorSource(DetectedSource):
    """The devices of one vendor, and their usage by the observed program.

    Attributes:
        process_metrics: The metrics of :meth:`~.driver.AcceleratorDriver.usage`, in messages.
        usage_is_cheap: Whether usage is read at every sampling interval.
        is_selectable: Whether ``DEVICES`` applies; otherwise all devices are reported.
    """

    scope = Scope.PROCESS
    process_metrics: ClassVar[str] = "process.gpu.*"
    usage_is_cheap: ClassVar[bool] = False
    is_selectable: ClassVar[bool] = True

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self.driver: AcceleratorDriver | None = None
        self.devices: Sequence[Device] = ()
        self._reports_devices = context.is_reporter
        self._reported_by_others: frozenset[str] = frozenset()
        self._instead = ""
        self._is_pid_hidden = False
        self._looks = 0
        self.updated: dict[str, float | None] = {}

    # -- what a vendor implements

    @abstractmethod
    def drivers(self) -> Iterator[DriverChoice]:
        """Yield the drivers in the order in which they are tried."""

    def visibility(self) -> VisibilityRule:
        """Return the rule that restricts the vendor's programs to some of the devices."""
        return VisibilityRule()

    def may_open(self) -> bool:
        """Whether a driver may be opened now. False if that would wake suspended devices."""
        return True

    def compute_files(self) -> Sequence[str]:
        """Return the device files that a program opens to compute, and that this package does not open."""
        return ()

    # -- opening

    def open(self) -> None:
        """Find the devices.

        Raises:
            Unavailable: There are no devices, or no driver can be used.
            OSError: A driver cannot be used now.
        """
        self.files = kernel_files(self.context.drivers)
        config, environ = self.context.config, self.context.environ
        self._has_sign = self.is_present()
        if not (self._has_sign or any(setting_path(getattr(config, setting)) for setting in self.settings)):
            raise Unavailable(self.absent)
        words = config.devices if self.is_selectable else ["all"]
        rule = self.visibility()
        self.selection = DeviceFilter(words, environ, rule, self.files, self.context.config.name_of("devices"))
        if self.context.claim and self.selection.by_environ and not environ.keys().isdisjoint(rule.variables):
            self.context = self.context._replace(is_reporter=True)  # of its own devices, which others may not see
        local = self.context.drivers.machine(self.context.walk)
        self.program = ProcessTree(local, self.files, self.context.pid, *self.compute_files())
        self.program.on_host |= config.simulates(self.name)  # the simulator names PIDs as this process sees them
        self._refresh_program()
        self._open_driver()

    def _refresh_program(self) -> None:
        if self.scope is Scope.PROCESS:
            self.program.refresh()

    def _open_driver(self) -> None:
        if self.driver is not None or not self.may_open():
            return
        settings = {name: getattr(self.context.config, name) for name in self.settings}
        self.driver, self._instead = open_first(self.drivers(), settings, self._has_sign, self.absent, self.fix)
        self._refresh(self.driver)

    def _refresh(self, driver: AcceleratorDriver) -> None:
        self.devices = driver.devices()
        if self.devices:  # else it is not known yet which there are
            self.selection.update([*self.devices])
        self._claim()

    def _claim(self) -> None:
        """Find out which of the selected devices other processes of the job report."""
        is_reporter, claim = self.context.is_reporter, self.context.claim
        if claim is not None and self.selection.by_environ:
            ids = frozenset(device.selection_id for device in self.selected() if is_reporter)
            self._reported_by_others = ids.difference(claim(ids))
            is_reporter = is_reporter and (not ids or ids != self._reported_by_others)
        self._reports_devices = is_reporter

    def _is_reported(self, device: Device) -> bool:
        id_ = device.selection_id
        return self._reports_devices and id_ not in self._reported_by_others and id_ in self.selection

    # -- reading

    def selected(self) -> Iterator[Device]:
        """The devices that are reported."""
        return (device for device in self.all_devices() if device.selection_id in self.selection)

    def all_devices(self) -> Iterator[Device]:
        """Return all devices, each followed by its parts."""
        for device in self.devices:
            yield device
            yield from device.parts.values()

    def readings(self) -> Sequence[Reading]:
        """Return the usual ones, and those for spans if the driver has some."""
        driver = self.driver
        sampled, *slow = super().readings()
        if driver is None:
            return sampled, *slow
        sampled = sampled._replace(apart=driver.min_interval)
        if not driver.reads_for_spans and self._reports_devices:
            return sampled, *slow
        looks = not (self.used_devices or self.usage_is_cheap) and self._looks < _LOOKS
        look = Reading(self._look_for_use, min(_FIRST_LOOK * self._looks, 1.0) if looks else inf, for_spans=True)
        if not driver.reads_for_spans:
            interval = max(self.context.config.interval, driver.min_interval, 1.0)
            return sampled, *slow, look, Reading(self._unreported, interval, for_spans=True)
        others = SLOW if self.used_devices else 1.0
        return (
            sampled,
            *slow,
            look,
            Reading(partial(self._energy, True), 0.1, for_spans=True),
            Reading(partial(self._memory, True), 1.0, for_spans=True),
            Reading(partial(self._energy, False), others, for_spans=True),
            Reading(partial(self._memory, False), others, for_spans=True),
        )

    def read(self) -> Iterator[Point]:
        """Read the sampled values of each device that is awake."""
        driver = self.driver
        self._claim()
        if driver is None or not (self._reports_devices or self.usage_is_cheap):
            return
        if driver.sample_if_stale():
            self._refresh(driver)
        self.errors = [*driver.errors]
        usage = [*self._usage(driver)] if self.usage_is_cheap else []  # first: DEVICES=process depends on it
        if self._reports_devices:
            yield from self._sampled()
        yield from usage

    def _sampled(self) -> Iterator[Point]:
        for device in self.all_devices():
            is_selected = self._is_reported(device)
            for event in device.events if is_selected else ():
                self.context.emit(event)
            device.events.clear()
            if not (is_selected or device.trouble):
                continue
            device.readings += 1
            if device.backoff.is_waiting(device.readings):
                continue
            device.is_suspended = device.check_suspended()
            if not device.is_suspended:
                yield from self._points(device, device.read if is_selected else tuple)

    def read_slow(self) -> Iterator[Point]:
        """Read the list of devices, their slow values, and usage by the observed program."""
        self._refresh_program()
        self._open_driver()
        driver = self.driver
        if driver is None:
            self.unsupported = [ALL_SUSPENDED]
            return
        if not self._reports_devices:
            driver.sample_if_stale()
            yield from self._sampled()  # of failed devices, to find out which they are
        driver.sample_slow()
        self._refresh(driver)
        usage = [] if self.usage_is_cheap else [*self._usage(driver)]
        for device in filter(self._is_reported, self.all_devices()):
            if not (device.is_suspended or device.trouble):
                yield from self._points(device, device.read_slow)
            yield from device.identity_points()
        yield from usage
        if self.context.held is not None:
            self.context.held[self.name] = [*self._held(driver)]
        self.errors = [*driver.errors]
        self.unsupported = [*self._unsupported(driver)]

    @staticmethod
    def _points(device: Device, read: Callable[[], Iterable[Point]]) -> list[Point]:
        try:
            if device.trouble:
                device.open()
            points = [*read()]
        except DeviceFailed as failed:
            device.fail(str(failed))
            return []
        device.recover()
        return points

    def _look_for_use(self) -> tuple[()]:
        """Find out which devices the program uses, before :meth:`read_slow` does."""
        assert self.driver is not None
        self._looks += 1
        self._refresh_program()
        self.driver.only_looks = True
        try:
            for _ in self._usage(self.driver):
                pass
        finally:
            self.driver.only_looks = False
        return ()

    def _unreported(self) -> Iterator[Point]:
        """Read what :meth:`read` leaves to the process that reports the devices."""
        assert self.driver is not None
        if self.driver.sample_if_stale():
            self._refresh(self.driver)
        for device in (*self._awake(True), *self._awake(False)):
            yield from self._points(device, device.read)

    def _energy(self, used: bool) -> Iterator[Point]:
        for device in self._awake(used):
            yield from self._points(device, device.read_energy)
            self.updated[device.id] = device.updated

    def _memory(self, used: bool) -> Iterator[Point]:
        for device in self._awake(used):
            yield from self._points(device, device.read_memory)

    def _awake(self, used: bool) -> Iterator[Device]:
        """Return the devices in use, or the others, unless one of these may suspend: a reading would keep it awake."""
        assert self.driver is not None
        for device in self.selected() if used or not self.driver.min_interval else ():
            if (device.id in self.used_devices) is used and not (device.trouble or device.check_suspended()):
                yield device

    def _usage(self, driver: AcceleratorDriver) -> Iterator[Point]:
        if self.scope is Scope.HOST:
            return
        used: set[str] = set()
        for device, values in driver.usage(self.program):
            used.add(device.id)
            self.selection.add_used(device.selection_id)
            self.used_devices = self.used_devices | {device.id} if self.is_use_known else frozenset({device.id})
            self.is_use_known = True
            if device.selection_id in self.selection:
                yield from device.points(values)
        self.used = frozenset(used)
        self._is_pid_hidden = not (used or self.program.on_host) and self.program.computing()
        if self._is_pid_hidden and not (self.used_devices and self.is_use_known):
            visible = self.visibility().select(self.context.environ, self.selection.devices).ids
            self.used_devices = frozenset(device.id for device in self.all_devices() if device.selection_id in visible)
            self.is_use_known = False

    def _held(self, driver: AcceleratorDriver) -> Iterator[HeldDevice]:
        """Yield the reported devices with the processes that use them, without those of which programs use parts."""
        listed = {device: sizes for device, sizes in driver.holders() if self._is_reported(device)}
        known = self.program.identifiable(pid for sizes in listed.values() for pid in sizes)
        owners = {pid: {} if self.files is None else owner(pid, self.files) for pid in known}
        for device in filter(self._is_reported, self.all_devices()):
            if device.is_divided:
                continue
            users = None
            sizes = listed.get(device)
            if sizes is not None:  # else the driver does not list them
                ran = driver.shares(device) if sizes else None
                shares = {} if ran is None else {pid: ran.get(pid, 0.0) for pid in sizes}
                users = [Holder(pid, size, owners.get(pid), shares.get(pid)) for pid, size in sizes.items()]
            yield device.held(self.name, users)

    # -- what is missing

    def _unsupported(self, driver: AcceleratorDriver) -> Iterator[str]:
        if self._instead:
            yield self._instead
        yield from self.selection.unsupported()
        yield from missing(self.selected())
        yield from driver.unsupported()
        if self._is_pid_hidden:
            yield f"{self.process_metrics}: {HOST_PIDS}"

    def close(self) -> None:
        if self.context.held is not None:
            self.context.held.pop(self.name, None)
        try:
            if self.driver is not None:
                self.driver.close()
        finally:
            super().close()
