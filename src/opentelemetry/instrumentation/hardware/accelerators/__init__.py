"""What the sources of all vendors of GPUs and NPUs share, and how to write one.

``docs/dev/development.md`` lists the files of a vendor. Its ``__init__.py`` has a subclass::

    class Acme(AcceleratorSource):
        name = "acme"
        signs = ("/sys/module/acme", "/dev/acme*")
        settings = ("acme_smi",)
        absent = "no Acme driver is loaded: /sys/module/acme is missing"
        process_metrics = "process.npu.*"

        def drivers(self) -> Iterator[DriverChoice]:
            yield DriverChoice("acme-smi", "acme_smi", lambda: AcmeSmi(self))

        def visibility(self) -> VisibilityRule:
            return VisibilityRule("Acme NPU", "hw.npu.*", ("ACME_VISIBLE_DEVICES",), visible)

Its settings are rows in ``settings/table.py``::

    acme_smi: str | None = setting(path("acme-smi"), "auto", "The tool of Acme.")

Errors:

* not on this machine: raise ``Unavailable(reason, fix)`` when a driver is opened. The next driver is tried;
* one device does not respond: raise :class:`~.device.DeviceFailed`. It is reported as failed and retried with backoff;
* one value is not supported: add an entry to :attr:`.device.Device.unsupported`;
* any other exception (OSError, DriverError ...) fails the reading. The source is closed, and opened again with backoff.
"""
