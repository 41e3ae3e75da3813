"""Filters and parsing of pages."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from tests.sources.pages import ALL, OPENMETRICS, VLLM

from opentelemetry.instrumentation.hardware.settings.endpoints import filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.filters import Filters
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Page, Parser

NOW = 1763700000.0
TEXT = "text/plain; version=0.0.4"


def parse(text: str, kind: str = TEXT, words: Any = None, endpoint: str = "end") -> Page:
    return Parser(Filters(endpoint, words)).parse(kind, text.encode(), NOW)


def names(parsed: Page) -> list[str]:
    return [sample.name for sample in parsed.samples]


# -- filters

FILTERS: list[tuple[Any, str, dict[str, str], bool]] = [
    (None, "anything", {}, True),
    (["util"], "gpu_util_total", {}, True),
    (["^util"], "util", {}, False),
    ([r"^end\.util"], "util_total", {}, True),
    ([r"^end\.util$"], "util_total", {}, False),
    (["end"], "anything", {}, True),
    (["a", "b"], "xbx", {}, True),
    (["a", "b"], "xcx", {}, False),
    (["Util"], "util", {}, False),
    (["(?i)Util"], "util", {}, True),
    ({"util": {}}, "util", {}, True),
    ({"util": {"gpu": "0"}}, "util", {"gpu": "0"}, True),
    ({"util": {"gpu": "0"}}, "util", {"gpu": "10"}, True),
    ({"util": {"gpu": "^0$"}}, "util", {"gpu": "10"}, False),
    ({"util": {"gpu": "0"}}, "util", {"gpu": "1"}, False),
    ({"util": {"gpu": ".*"}}, "util", {}, False),
    ({"util": {"gpu": "^$"}}, "util", {}, False),
    ({"util": {"gpu": "^$"}}, "util", {"gpu": ""}, True),
    ({"util": {"gpu": "0", "pod": "a"}}, "util", {"gpu": "0", "pod": "b"}, False),
    ({"util": {"gpu": "0", "pod": "a"}}, "util", {"gpu": "0", "pod": "a"}, True),
    ({"util": {"gpu": "0"}, "util_": {"gpu": "1"}}, "util_total", {"gpu": "1"}, True),
    ({"util": {"gpu": "0"}, "ut": {}}, "util", {"gpu": "7"}, True),
    ({"other": {"gpu": "0"}}, "util", {"gpu": "0"}, False),
    ({"util": {"path": r'a\\b"c'}}, "util", {"path": 'a\\b"c'}, True),
    ({"util": {"g.p u": "x"}}, "util", {"g.p u": "x"}, True),
]


@pytest.mark.parametrize(("words", "name", "labels", "wanted"), FILTERS)
def test_filter_selects_series_by_name_and_labels(
    words: Any, name: str, labels: Mapping[str, str], wanted: bool
) -> None:
    filters_ = Filters("end", None if words is None else filters(words))
    assert filters_.matches(name, labels) is wanted
    spelled = {label: text.replace("\\", "\\\\").replace('"', '\\"') for label, text in labels.items()}
    line_labels = ",".join(
        f'{label}="{text}"' if label.isidentifier() else f'"{label}"="{text}"' for label, text in spelled.items()
    )
    assert filters_.may_match(name, f"{name}{{{line_labels}}} 1") >= wanted, "the line was dropped before parsing"
    parsed = Parser(filters_).parse(TEXT, f"{name}{{{line_labels}}} 1\n".encode(), NOW)
    assert bool(parsed.samples) is wanted


def test_filter_rejects_a_line_before_parsing() -> None:
    filters_ = Filters("end", {"util": {"gpu": "^0$"}})
    assert filters_.may_match("util", 'util{gpu="0"} 1')
    assert not filters_.may_match("util", 'util{gpu="1"} 1')
    assert not filters_.may_match("util", 'util{other="gpu=\\"0\\""} 1')
    assert not filters_.may_match("use", 'use{gpu="0"} 1')


# -- pages


def test_counter_name_is_kept_as_on_the_page() -> None:
    text = "".join(f"# TYPE {name} counter\n{name} 5\n" for name in ("energy", "x_total", "y_total_total"))
    assert names(parse(text)) == ["energy", "x_total", "y_total_total"]
    assert {sample.type for sample in parse(text).samples} == {"counter"}


def test_nan_and_infinite_samples_are_absent() -> None:
    assert names(parse("a NaN\nb +Inf\nc -Inf\nd 1\n")) == ["d"]


def test_sample_with_an_old_timestamp_is_dropped() -> None:
    milliseconds = int(NOW * 1000)
    parsed = parse(f"a 1 {milliseconds - 10_000}\nb 1 {milliseconds - 400_000}\nc 1\n")
    assert names(parsed) == ["a", "c"]
    assert parsed.stale == 1
    parsed = parse(f"# TYPE a gauge\na 1 {NOW - 10}\n# TYPE b gauge\nb 1 {NOW - 400}\n# EOF\n", OPENMETRICS)
    assert names(parsed) == ["a"]
    assert parsed.stale == 1


@pytest.mark.parametrize("kind", [OPENMETRICS, "Application/OpenMetrics-Text"])
def test_openmetrics_page_without_eof_is_invalid(kind: str) -> None:
    assert names(parse("# TYPE a gauge\na 1\n# EOF\n", kind)) == ["a"]
    for cut in ("# TYPE a gauge\na 1\n", "# TYPE a gauge\na 1", "# HELP a Ends with # EOF", ""):
        with pytest.raises(ValueError, match="cut off: it does not end with # EOF"):
            parse(cut, kind)


@pytest.mark.parametrize("text", ["a 1\nb 12", "a 1\nb", "a 1\n# HELP b Some", "a"])
def test_text_page_without_a_final_line_feed_is_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="cut off: it does not end with a line feed"):
        parse(text)
    assert "a" in names(parse("a 1\nb 12\n"))
    assert "c" in names(Parser(Filters("end", None)).parse(TEXT, f"c 1\n{text}".encode(), NOW, complete=True))


def test_empty_text_page_has_no_samples() -> None:
    assert names(parse("")) == names(parse("\n")) == []


def test_invalid_line_drops_its_metric_family_only() -> None:
    parsed = parse("# TYPE a gauge\na 1\n# TYPE b gauge\nb one\n# TYPE c gauge\nc 3\n{} 4\n= 5\n")
    assert names(parsed) == ["a", "c"]
    assert len(parsed.invalid) == 3
    parsed = parse("# TYPE a gauge\na 1\n# TYPE b gauge\nb one\n# TYPE c gauge\nc 3\n# EOF\n", OPENMETRICS)
    assert names(parsed) == ["a", "c"]
    parsed = parse("a 1\nb one\nc 3\n")  # no types
    assert (names(parsed), len(parsed.invalid)) == (["a", "c"], 1)


def test_negative_sum_is_dropped_without_its_counts() -> None:
    """As in client_golang's example with a normal distribution. OpenMetrics does not allow such a sum."""
    kinds = {
        "histogram": 'b_bucket{le="0"} 3\nb_bucket{le="+Inf"} 4\nb_count 4\nb_sum -1.5\n',
        "summary": 'b{quantile="0.5"} -1\nb_count 4\nb_sum -1.5\n',
    }
    for kind, lines in kinds.items():
        text = f"# TYPE a gauge\na 1\n# TYPE b {kind}\n{lines}# EOF\n"
        assert names(parse(text, OPENMETRICS)) == ["a", "b_count"], kind


@pytest.mark.parametrize(("kind", "end"), [(TEXT, ""), (OPENMETRICS, "# EOF\n")])
def test_gaugehistogram_has_no_buckets_also_with_a_negative_sum(kind: str, end: str) -> None:
    text = f'# TYPE a gaugehistogram\na_bucket{{le="0"}} 3\na_bucket{{le="+Inf"}} 4\na_gcount 4\na_gsum -1.5\n{end}'
    found = [(sample.name, sample.type, sample.value) for sample in parse(text, kind).samples]
    assert found == [("a_gcount", "gaugehistogram", 4), ("a_gsum", "gaugehistogram", -1.5)]


@pytest.mark.parametrize(("kind", "end"), [(TEXT, ""), (OPENMETRICS, "# EOF\n")])
def test_timestamp_beyond_all_floats_drops_its_metric_family_only(kind: str, end: str) -> None:
    parsed = parse(f"a 1 {'9' * 400}\nb 1\n{end}", kind)
    assert (names(parsed), len(parsed.invalid)) == (["b"], 1)


@pytest.mark.parametrize("kind", ["text/html", "application/json; charset=utf-8", "text/html;\r\n\x1b[2J"])
def test_page_of_another_content_type_is_invalid(kind: str) -> None:
    with pytest.raises(ValueError, match="unsupported Content-Type") as raised:
        parse("<html>", kind)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json; charset=utf-8"])
def test_page_of_an_exporter_with_a_wrong_content_type_is_parsed(kind: str) -> None:
    """As that of Intel's XPU Manager, and of OpenVINO's model server."""
    assert names(parse("# HELP a Help.\n# TYPE a gauge\na 1\n", kind)) == ["a"]
    for other in ('{"a": 1}\n', "Not found\n", "\n<!DOCTYPE html>\n", "", "null\n"):
        with pytest.raises(ValueError, match="unsupported Content-Type"):
            parse(other, kind)


@pytest.mark.parametrize(("kind", "end"), [(TEXT, ""), (OPENMETRICS, "# EOF\r\n")])
def test_page_of_windows_keeps_its_types(kind: str, end: str) -> None:
    """It begins with a byte order mark, and its lines end with CR and LF."""
    parsed = parse(f"\ufeff# TYPE a counter\r\na_total 1\r\n{end}", kind)
    assert [(sample.name, sample.type) for sample in parsed.samples] == [("a_total", "counter")]
    assert parsed.invalid == []


@pytest.mark.parametrize("text", ['{"status": "ok"}\n', '"# TYPE a counter\\na 1\\n"\n', "<html>\n<p>Sign in</p>\n"])
def test_document_that_is_called_a_page_is_invalid(text: str) -> None:
    """As that of llama.cpp in November 2025, whose page was a JSON string."""
    for kind in (TEXT, ""):
        with pytest.raises(ValueError, match="the page has no metrics"):
            parse(text, kind)
    for page in ("# TYPE a counter\na one\n", "a 1\na[0] 1\n", "# No models are loaded\n"):
        assert names(parse(page, words=["other"])) == []
        assert set(names(parse(page))) <= {"a"}


@pytest.mark.parametrize("kind", [OPENMETRICS, TEXT])
def test_exemplars_are_dropped_where_the_parser_does_not_allow_them(kind: str) -> None:
    """A Go program has them at counters whose name does not end with _total, and calls these unknown.

    Others have them in the text format, where their value or time would be taken for the sample's time.
    """
    lines = (
        'a 1 # {trace_id="x"} 1 1763700000.5',
        'b{c="d # {",e="}\\" # {"} 2 # {f="g # {"} 1',
        f'c_total 3 # {{trace_id="{"x" * 200}"}} 1',
        '{"d.e",f="g # {"} 4 # {} 4',
        'e{f=" # {"} 5',
    )
    page = "\n".join(["# TYPE a unknown", "# TYPE b gauge", "# TYPE c counter", *lines, "# EOF", ""])
    parsed = parse(page, kind)
    assert [sample.value for sample in parsed.samples] == [1, 2, 3, 4, 5]
    assert parsed.samples[1].labels == {"c": "d # {", "e": '}" # {'}
    assert parsed.invalid == []


def test_gauge_and_counter_of_one_name_are_two_metrics() -> None:
    """Go's client prints the counter heap_bytes_total with the TYPE heap_bytes, beside the gauge heap_bytes."""
    page = (
        "# HELP heap_bytes In use.\n# TYPE heap_bytes gauge\nheap_bytes 5\n"
        "# HELP heap_bytes Ever allocated.\n# TYPE heap_bytes counter\nheap_bytes_total 9\n# EOF\n"
    )
    assert [(sample.name, sample.type, sample.help) for sample in parse(page, OPENMETRICS).samples] == [
        ("heap_bytes", "gauge", "In use."),
        ("heap_bytes_total", "counter", "Ever allocated."),
    ]


@pytest.mark.parametrize(
    ("family", "sample"),
    [
        ("# TYPE a gauge\n# UNIT a seconds\na 1\n", ("a", "gauge")),
        ("# TYPE a counter\na 1\n", ("a", "counter")),
        ('# TYPE a counter\na_total{b="c"} NaN\na_total 1\n', ("a_total", "counter")),
        ('# TYPE a summary\na_count 1\na_sum NaN\na_sum{b="c"} -1\n', ("a_count", "summary")),
        ("# TYPE a info\na 1\n", ("a", "info")),
        ("# TYPE a untyped\na 1\n", ("a", "unknown")),
    ],
)
def test_what_only_openmetrics_forbids_is_accepted(family: str, sample: tuple[str, str]) -> None:
    parsed = parse(f"{family}# EOF\n", OPENMETRICS)
    assert [(each.name, each.type, each.value) for each in parsed.samples] == [(*sample, 1)]
    assert parsed.invalid == []


@pytest.mark.parametrize(("kind", "end"), [(TEXT, ""), (OPENMETRICS, "# EOF\n")])
def test_unit_is_read_whatever_the_format_and_name(kind: str, end: str) -> None:
    """OpenTelemetry's exporter for JavaScript prints UNIT on a page in the text format."""
    parsed = parse(f"# HELP room x\n# UNIT room Cel\n# TYPE room gauge\nroom 20.5\n{end}", kind)
    assert [(sample.name, sample.unit) for sample in parsed.samples] == [("room", "Cel")]


def test_timestamps_are_in_seconds_also_where_openmetrics_is_violated() -> None:
    parsed = parse(f"# TYPE a counter\na 1 {NOW - 10}\n# TYPE b counter\nb 1 {NOW - 400}\n# EOF\n", OPENMETRICS)
    assert (names(parsed), parsed.stale) == (["a"], 1)


def test_counter_in_the_form_of_openmetrics_is_a_counter_in_a_text_page() -> None:
    parsed = parse('# TYPE a counter\na_total{b="c"} 5\n# EOF\n')
    assert [(sample.name, sample.type, sample.value) for sample in parsed.samples] == [("a_total", "counter", 5)]


def test_page_that_is_not_utf_8_is_invalid() -> None:
    with pytest.raises(UnicodeError):
        Parser(Filters("end", None)).parse(TEXT, b'a{b="\xff"} 1\n', NOW)


def test_histogram_lines_are_filtered_before_parsing() -> None:
    assert names(parse(VLLM, words=["e2e.*_count"])) == ["vllm:e2e_request_latency_seconds_count"]
    # The parser of OpenMetrics needs the whole family.
    parsed = parse(ALL, OPENMETRICS, ["job_seconds_sum"])
    assert names(parsed) == ["job_seconds_sum"]
    assert parsed.invalid == []


def test_page_beyond_the_line_limit_is_truncated() -> None:
    page = "".join(f'# HELP a\na{{n="{number}"}} 1\n\n' for number in range(5_100))
    for words in (None, ["a"]):
        parsed = parse(page, words=words)
        assert (len(parsed.samples), parsed.beyond) == (5_000, 100)
    parsed = parse('a{n="' + "x" * 4_090 + '"} 1\nb 1\n')
    assert (names(parsed), parsed.beyond) == (["b"], 1)


def test_buckets_do_not_count_towards_the_line_limit() -> None:
    histogram = "".join(
        f'job_bucket{{n="{number}",le="+Inf"}} 1\njob_count{{n="{number}"}} 1\njob_sum{{n="{number}"}} 2\n'
        for number in range(2_000)
    )
    page = f"# TYPE job histogram\n{histogram}# TYPE after gauge\nafter 5\n"
    for text, kind in ((page, TEXT), (f"{page}# EOF\n", OPENMETRICS)):
        parsed = parse(text, kind)
        assert (len(parsed.samples), parsed.beyond) == (4_001, 0)
        parsed = parse(text, kind, ["after", "job_sum"])
        assert (len(parsed.samples), parsed.beyond) == (2_001, 0)


def test_lines_of_a_family_need_not_be_together() -> None:
    head = "# TYPE done counter\n# TYPE temp gauge\n"
    page = "".join(f'done{{gpu="{number}"}} 1\ntemp{{gpu="{number}"}} 40\n' for number in range(3))
    every = [sample for sample in parse(head + page).samples if sample.name == "done"]
    assert [(sample.type, sample.labels["gpu"]) for sample in every] == [("counter", str(gpu)) for gpu in range(3)]
    page = page.replace("done{", "done_total{")
    assert {sample.type for sample in parse(f"{head}{page}# EOF\n", OPENMETRICS).samples} == {"counter", "gauge"}


def test_counters_with_and_without_total_are_two_metrics() -> None:
    page = "# TYPE done counter\ndone 5\n# TYPE done_total counter\ndone_total 7\n"
    assert {sample.name: sample.value for sample in parse(page).samples} == {"done": 5, "done_total": 7}


def test_page_with_too_many_families_is_truncated() -> None:
    page = "".join(f"# TYPE a{number} gauge\na{number} 1\n" for number in range(5_100))
    for words in (None, ["a"]):
        parsed = parse(page, words=words)
        assert (len(parsed.samples), parsed.beyond) == (5_000, 100)


def test_names_that_change_with_each_page_take_little_memory() -> None:
    parser = Parser(Filters("end", ["other"]))
    tracemalloc.start()
    try:
        for number in range(30):
            parser.parse(TEXT, f"a{number}{'x' * 1_000_000} 1\n".encode(), NOW)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5_000_000


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('a b{c="d"} 1', "'a'"),
        ('a[b]{c="d"} 1', "'a[b]'"),
        ("x" * 1001 + " 1", f"'{'x' * 60}'"),
        ("  a.b 1", "'a.b'"),
        ("\x1b[2J 1", r"'\x1b[2J'"),
    ],
)
def test_line_without_a_valid_name_is_dropped(line: str, shown: str) -> None:
    parsed = parse(f"{line}\ngood 1\n")
    assert names(parsed) == ["good"]
    assert parsed.invalid == [f"{shown} is not a valid line"]


def test_quoted_utf_8_metric_name_is_parsed() -> None:
    parsed = parse('# HELP "a.b c" Help.\n# TYPE "a.b c" gauge\n{"a.b c",l="x"} 5\n', words=[r"a\.b c$"])
    assert [(sample.name, dict(sample.labels), sample.help) for sample in parsed.samples] == [
        ("a.b c", {"l": "x"}, "Help.")
    ]
