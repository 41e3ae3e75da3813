"""Nothing that this package prints, logs, exports or raises contains a secret."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields

import pytest
from tests.support.children import command, run

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.cli.reporting import Target, note
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.settings.redaction import redacted

MARK = "Zq7secret"
OTLP = "OTEL_EXPORTER_OTLP_"

# Every setting with a secret in a URL or an address.
SETTINGS = {
    PREFIX + row.name.upper(): form
    for number, row in enumerate(fields(Config))
    for form in [
        (f"http://user:{MARK}@host/x?key={MARK}", f"/x,http://h/?key={MARK}", f"user:{MARK}@host:1")[number % 3]
    ]
}

# The variables of the SDK, by where the secret is.
ENDPOINTS = {
    "url": {f"{OTLP}ENDPOINT": f"http://user:{MARK}@127.0.0.1:1/?key={MARK}"},
    "metrics-url": {
        f"{OTLP}METRICS_ENDPOINT": f"http://user:{MARK}@127.0.0.1:1/v1/metrics?key={MARK}",
        f"{OTLP}PROTOCOL": "http/protobuf",
    },
    "address": {f"{OTLP}ENDPOINT": f"user:{MARK}@127.0.0.1:4318"},
    "headers": {
        f"{OTLP}ENDPOINT": "http://127.0.0.1:1",
        f"{OTLP}HEADERS": f"x-key={MARK},authorization=Bearer%20{MARK}",
    },
    "wrong-headers": {f"{OTLP}METRICS_HEADERS": f"{MARK}, no header {MARK}", f"{OTLP}ENDPOINT": "http://127.0.0.1:1"},
    "wrong-interval": {"OTEL_METRIC_EXPORT_INTERVAL": "-5", f"{OTLP}HEADERS": f"x-key={MARK}", f"{OTLP}TOKEN": MARK},
    "file": {"OTEL_CONFIG_FILE": f"http://user:{MARK}@host/x.yaml?key={MARK}"},
}

OTEL_HARDWARE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware"]
ONLY = ["--sources", "process"]


def output(line: Sequence[str], env: dict[str, str] | None = None) -> str:
    """Everything that a program prints."""
    answer = run([*line], env)
    return answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://u:p@host:1/x", "http://host:1/x"),
        ("to http://u@host, not https://t:a@b@c/d", "to http://host, not https://c/d"),
        ("u:p@host:4317 (refused)", "host:4317 (refused)"),
        ("cannot connect to http://user: p q@host:1/x", "cannot connect to http://host:1/x"),
        (
            "http://host:4317 is refused, write to me@example.org",
            "http://host:4317 is refused, write to me@example.org",
        ),
        ("http://u:p,'p@host:1/x, not a=http://h/m,b=http://u:p@h/n", "http://host:1/x, not a=http://h/m,b=http://h/n"),
        ("u:p,p@host:4317", "host:4317"),
        ("{'a': {'url': \"http://h/m?k='v'&w=x\"}}", "{'a': {'url': \"http://h/m\"}}"),
        ("a=http://h/m?k=v&w=x b", "a=http://h/m b"),
        ("http://h/?v", "http://h/"),
        ("http://h/x#v", "http://h/x"),
        (
            "cannot connect to http://h/?k=v: refused; see http://h/?",
            "cannot connect to http://h/: refused; see http://h/",
        ),
        ("with url: /v1/metrics?key=v (caused by", "with url: /v1/metrics (caused by"),
        ("did you mean INTERFACES? It is eth0", "did you mean INTERFACES? It is eth0"),
        (
            "/dev/disk/by-path, user@host, 2 @ 3 GHz, 0000:01:00.0",
            "/dev/disk/by-path, user@host, 2 @ 3 GHz, 0000:01:00.0",
        ),
        (f"user:{MARK}@7@host:4317", "host:4317"),
        (f"user:{MARK}@10.0.0.1", "10.0.0.1"),
        (
            "'8xH100:hot@7' or T4:hot@7",
            "'8xH100:hot@7' or T4:hot@7",
        ),  # a number is the seed of a simulation, and no host
    ],
)
def test_user_info_and_query_are_removed(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_headers_of_the_exporters_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=Bearer%20t0ken,b=x")
    assert redacted("sent Bearer t0ken as Bearer%20t0ken, x") == "sent *** as ***, x"
    assert redacted("401: the token t0ken has expired") == "401: the token *** has expired"


def test_program_with_secrets_in_all_settings_says_none_of_them() -> None:
    env = {**SETTINGS, **ENDPOINTS["headers"], f"{PREFIX}REPORTER": "always"}
    text = output(command("applications/secrets", MARK), env)
    assert MARK not in text
    assert "done" in text, text[-2000:]
    for word in ("http://host/path", "own=http://host/path", "system.cpu.time"):
        assert word in text, "precondition: this is printed"


def test_long_word_with_colons_is_not_searched_again_and_again() -> None:
    """Where the time grows with the cube of the length, this takes an hour."""
    text = "a:" * 10_000
    assert redacted(f"{text} user:{MARK}@host") == f"{text} host"
    many = '{"a":"http://h/x"},' * 10_000
    assert redacted(f"{many} user:{MARK}@host") == f"{many} host"


@pytest.mark.parametrize("form", ["table", "json"])
def test_doctor_shows_no_secret_of_the_settings(form: str) -> None:
    text = output([*OTEL_HARDWARE, "doctor", "--format", form], {**SETTINGS, **ENDPOINTS["url"]})
    assert MARK not in text
    assert "http://127.0.0.1:1/" in text


@pytest.mark.parametrize("where", ENDPOINTS)
@pytest.mark.parametrize("words", [["doctor", *ONLY], ["run", *ONLY, "--duration", "0.2"]], ids=lambda words: words[0])
def test_command_shows_no_secret_of_the_endpoint(words: Sequence[str], where: str) -> None:
    text = output([*OTEL_HARDWARE, *words], ENDPOINTS[where])
    assert MARK not in text
    if where != "wrong-interval":  # an SDK before 1.43 does not read the file
        assert any(word in text for word in ("127.0.0.1", "host/x.yaml", "ignores OTEL_CONFIG_FILE"))


def test_live_view_shows_no_secret_of_the_endpoint() -> None:
    target = Target(f"every 15 s to http://user:{MARK}@host:1/?key={MARK} (grpc)")
    assert note(target, ()) == "exporting every 15 s to http://host:1/ (grpc)"


@pytest.mark.parametrize("form", ["table", "json", "csv", "otlp-json"])
def test_snapshot_shows_no_secret_of_the_settings(form: str) -> None:
    text = output([*OTEL_HARDWARE, "snapshot", "--window", "0.1", "--format", form], SETTINGS)
    assert MARK not in text
    assert text


def test_run_shows_no_argument_of_the_program() -> None:
    """Nothing is exported, so a table follows when the program ends."""
    for program in (["true", f"--password={MARK}"], ["/no/such/program", MARK]):
        text = output([*OTEL_HARDWARE, "run", *ONLY, "--", *program])
        assert MARK not in text
        assert "otel-hardware" in text


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", f"--password={MARK}"],
        ["doctor", "--password", MARK],
        ["doctor", "--openmetrics", f"http://u:{MARK}@h/x"],
        ["run", "--interval", f"http://u:{MARK}@h/x"],
        ["snapshot", "--include-metrics", f"http://u:{MARK}@h/x"],
        ["snapshot", "--sources", f"http://u:{MARK}@h/x"],
    ],
    ids=lambda words: words[1].partition("=")[0],
)
def test_wrong_argument_is_shown_without_its_secret(words: Sequence[str]) -> None:
    answer = run([*OTEL_HARDWARE, *words])
    assert answer.returncode == 2
    assert MARK not in answer.stdout + answer.stderr
    assert words[1].partition("=")[0] in answer.stderr
