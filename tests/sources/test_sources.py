"""Discovery of sources, our own and those of third parties."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from tests.support.stage import warnings
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import sources
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Scope
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import JOB, SOURCE_GROUP, Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover

OWN = [
    "amd",
    "apple",
    "container",
    "drm",
    "filesystem",
    "gaudi",
    "graphcore",
    "holders",
    "host",
    "hwmon",
    "infiniband",
    "intel",
    "nvidia",
    "openmetrics",
    "powercap",
    "process",
    "tenstorrent",
    "tpu",
    "trainium",
]

OF_PROGRAM = [name for name in OWN if name != "holders"]  # those of a session that observes a program

VENDORS = ["amd", "apple", "drm", "gaudi", "graphcore", "intel", "nvidia", "tenstorrent", "tpu", "trainium"]

# The sources of process scope.
EVERYBODYS = ["amd", "drm", "gaudi", "graphcore", "intel", "nvidia", "process", "tenstorrent", "trainium"]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path that third-party packages are installed into."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    sources._of_other_packages.cache_clear()
    for name in set(sys.modules) - known:
        if name.startswith("acme"):
            del sys.modules[name]


def install(folder: Path, distribution: str, entries: dict[str, str], modules: dict[str, str]) -> None:
    """Write the modules and metadata of an installed distribution."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{SOURCE_GROUP}]\n{lines}")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    sources._of_other_packages.cache_clear()


WIDGETS = """
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Scope
from opentelemetry.instrumentation.hardware.sources import Source

ROW = Metric(Kind.UPDOWN, "acme.widgets", "{widget}", (), "Widgets.", standard=False)


class Widgets(Source):
    name = "widgets"
    scope = Scope.PROCESS

    def open(self):
        pass

    def read(self):
        yield ROW(self.context.pid)
"""


def test_every_module_of_sources_package_is_discovered() -> None:
    folder = Path(sys.modules[Source.__module__].__file__ or "").parent
    files = sorted(
        path.stem
        for path in folder.iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.stem.startswith("__")
    )
    found = discover()
    assert [name for name in found if name in files] == files
    assert set(OWN) <= set(files)


@pytest.mark.parametrize("name", OWN)
def test_source_name_class_and_module_agree(name: str) -> None:
    source = discover()[name]()
    assert issubclass(source, Source)
    assert source.name == name
    assert source.__name__.lower() == name
    assert source.__module__.endswith(f".sources.{name}")
    assert source.__doc__
    made = source(SourceContext(Config(), Drivers(), 1))
    made.close()  # also one that was never opened


@pytest.mark.parametrize("name", VENDORS)
def test_vendor_has_the_common_base_and_declares_its_settings(name: str) -> None:
    source = discover()[name]()
    assert issubclass(source, AcceleratorSource)
    assert set(source.settings) <= {row.name for row in fields(Config)}


def test_source_defaults() -> None:
    class Bare(Source):
        name = "bare"

        def open(self) -> None: ...

        def read(self) -> list[object]:  # type: ignore[override]
            return []

    bare = Bare(SourceContext(Config(), Drivers(), 1))
    assert list(bare.read_all()) == []
    assert bare.unsupported == bare.errors == []
    assert (bare.scope, bare.rows) == (Scope.HOST, ("",))
    assert [reading[1:4] for reading in bare.readings()] == [(2.0, True, 0.0), (10.0, False, 0.0)]
    assert (bare.instances(Config()), bare.prepare(Config())) == (("",), True)


def test_third_party_source_is_discovered_by_entry_point(elsewhere: Path) -> None:
    before = discover()
    install(elsewhere, "acme-widgets", {"widgets": "acme_widgets:Widgets"}, {"acme_widgets": WIDGETS})
    found = discover()
    assert set(found) == {*before, "widgets"}
    assert "acme_widgets" not in sys.modules, "discovery imported it"
    assert found["widgets"]().name == "widgets"


def test_third_party_source_is_collected(elsewhere: Path) -> None:
    install(elsewhere, "acme-widgets", {"widgets": "acme_widgets:Widgets"}, {"acme_widgets": WIDGETS})
    session = Session(Config(sources=["widgets"]), pid=4711)
    session.start()
    try:
        (runner,) = session.runners
        assert runner.name == "widgets"
        wait_for(lambda: runner.points(session.clock()), 20, "reading of the foreign source")
        found = {row.name: values for row, values in session.collector.collect({}).values.items()}
        assert found["acme.widgets"] == [(4711, {})]
    finally:
        session.close()


def test_third_party_source_with_name_of_builtin_is_refused(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(elsewhere, "acme-widgets", {"host": "acme_widgets:Widgets"}, {"acme_widgets": WIDGETS})
    assert discover()["host"]().__module__.endswith(".sources.host")
    (warning,) = warnings(caplog)
    assert "host" in warning
    assert "acme_widgets:Widgets" in warning


def test_duplicate_third_party_source_logs_one_warning(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in "12":
        install(elsewhere, f"acme{number}", {"widgets": f"acme{number}:Widgets"}, {f"acme{number}": WIDGETS})
    assert discover()["widgets"]().__module__ in ("acme1", "acme2")
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import a_module_that_there_is_not", "a_module_that_there_is_not"),
        ("x = 1", "Widgets"),
        ("syntax error", "SyntaxError"),
    ],
    ids=["raises", "needs another module", "lacks the class", "is no Python"],
)
def test_third_party_source_that_fails_to_load_logs_one_warning(
    elsewhere: Path, caplog: pytest.LogCaptureFixture, text: str, why: str
) -> None:
    install(elsewhere, "acme-widgets", {"widgets": "acme_widgets:Widgets"}, {"acme_widgets": text})
    session = Session(Config())
    assert sorted(runner.name for runner in session.runners) == OF_PROGRAM
    (warning,) = warnings(caplog)
    assert "widgets" in warning
    assert why in warning


@pytest.mark.parametrize("text", ["Widgets = 5", "class Widgets:\n    name = 'widgets'"], ids=["number", "class"])
@pytest.mark.parametrize("member", [False, True], ids=["reporter", "member"])
def test_entry_point_that_is_no_source_logs_one_warning(
    elsewhere: Path, caplog: pytest.LogCaptureFixture, text: str, member: bool
) -> None:
    install(elsewhere, "acme-widgets", {"widgets": "acme_widgets:Widgets"}, {"acme_widgets": text})
    session = Session(Config(), reporter=member_of_job() if member else None)
    assert sorted(runner.name for runner in session.runners) == (EVERYBODYS if member else OF_PROGRAM)
    (warning,) = warnings(caplog)
    assert "widgets" in warning


def test_only_a_session_of_all_processes_reads_holders() -> None:
    session = Session(Config(), all_processes=True)
    assert sorted(runner.name for runner in session.runners) == OWN
    session.close()


def member_of_job() -> Reporter:
    """The lock of a job that this process has not tried to get."""
    return Reporter({JOB: "0/test"})


def test_member_of_job_reads_only_process_scope_sources(elsewhere: Path) -> None:
    install(elsewhere, "acme-widgets", {"widgets": "acme_widgets:Widgets"}, {"acme_widgets": WIDGETS})
    session = Session(Config(), reporter=member_of_job())
    assert not session.is_reporter
    assert sorted(runner.name for runner in session.runners) == [*EVERYBODYS, "widgets"]
    session.close()


def test_unselected_third_party_source_is_not_loaded(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(elsewhere, "acme-widgets", {"widgets": "acme_widgets:Widgets"}, {"acme_widgets": "raise RuntimeError"})
    assert [runner.name for runner in Session(Config(sources=["host"])).runners] == ["host"]
    assert warnings(caplog) == []
