"""What OpenTelemetry's own tools read about an instrumentation package."""

_instruments: tuple[str, ...] = ()
_supports_metrics = True
_semconv_status = "development"
