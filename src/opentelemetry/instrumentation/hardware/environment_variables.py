"""The settings as environment variables, for the entry point group ``opentelemetry_environment_variables``.

``opentelemetry-instrument`` makes a flag of each name in this module that begins with ``OTEL_``.
"""

from dataclasses import fields

from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

globals().update({PREFIX + setting.name.upper(): PREFIX + setting.name.upper() for setting in fields(Config)})
