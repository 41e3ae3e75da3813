"""The attributes that OpenTelemetry's tools read from an instrumentation package."""

_instruments: tuple[str, ...] = ()
_supports_metrics = True
_semconv_status = "development"
