"""Every code block of the README and of docs/ runs as it stands, or has a reason; every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.support import children
from tests.support.blocks import PAGES, WAITING, Block, bash, blocks, desk, substitute, the_block
from tests.support.children import PATIENCE, ROOT
from tests.support.commands import otel_hardware
from tests.support.sink import Sink
from tests.tools import program
from tests.tools.daemon import Prometheus, free_addresses, get, wait

from opentelemetry.instrumentation.hardware.cli.command_line import commands

BLOCKS = [block for page in PAGES for block in blocks(page)]
README = ROOT / "README.md"
TEXT = ("", "mermaid", "text")  # languages of blocks that are no code

SHORT = "print('done')\n"
EXPECTED = {"system.memory.usage", "process.cpu.time"}


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages and not block.reason]


def test_every_block_has_a_known_language_and_most_of_the_code_runs() -> None:
    known = {"sh", "python", "yaml", "ini", *TEXT}
    assert [str(block) for block in BLOCKS if block.language not in known] == []
    assert len(of("sh", "python")) >= 8


@pytest.mark.parametrize("block", of("sh"), ids=str)
def test_shell_block_runs(block: Block, tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    with Sink() as sink:
        # Other than on a reader's machine: the Collector's port, the exporter's port, and no traces and logs.
        here = sink.environment() | {"OTEL_EXPORTER_PROMETHEUS_PORT": address.partition(":")[2]}
        done = children.run(bash(block), here | desk(tmp_path, SHORT), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_block_runs(block: Block, tmp_path: Path) -> None:
    (tmp_path / "block.py").write_text(block.text)
    done = children.succeed(["python", "block.py"], cwd=tmp_path)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_block_is_valid(block: Block, tmp_path: Path) -> None:
    document = yaml.safe_load(block.text)
    assert isinstance(document, dict)
    if "scrape_configs" in document:
        file = tmp_path / "prometheus.yaml"
        file.write_text(block.text)
        subprocess.run([program("promtool"), "check", "config", file], check=True, capture_output=True)


def test_first_metrics_of_the_zero_code_command_arrive_while_the_program_runs(tmp_path: Path) -> None:
    block = the_block(README, "\nopentelemetry-instrument python train.py")
    interval = re.search(r"OTEL_METRIC_EXPORT_INTERVAL=(\d+)", block.text)
    assert interval is not None
    assert int(interval[1]) < 10_000
    with Sink() as sink:
        here = sink.environment() | desk(tmp_path, WAITING)
        with children.started(bash(block), here, cwd=tmp_path) as running:
            wait(lambda: sink.names >= EXPECTED or running.poll() is not None, PATIENCE, "metrics")
            assert running.poll() is None, running.communicate()
            (tmp_path / "stop").touch()
            running.communicate(timeout=PATIENCE)
    assert sink.resources[0]["service.name"] == "train"
    assert "host.name" in sink.resources[0]


def test_python_snippet_of_the_readme_prints_metrics(tmp_path: Path) -> None:
    block = the_block(README, "HardwareInstrumentor().instrument(")
    flushed = WAITING.replace("    time.sleep(0.05)", "    time.sleep(0.05)\n    provider.force_flush()")
    (tmp_path / "block.py").write_text(substitute(block.text, {"time.sleep(2)  # your program": flushed}))
    with children.started(["sh", "-c", "exec python block.py > printed"], cwd=tmp_path) as running:
        printed = tmp_path / "printed"
        wait(lambda: printed.exists() and words(printed.read_text()) >= EXPECTED, PATIENCE, "metrics")
        (tmp_path / "stop").touch()
        _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors


def words(text: str) -> set[str]:
    return {*re.findall(r"[\w.]+", text)}


AGENT = "OTEL_METRICS_EXPORTER=prometheus otel-hardware run"


@pytest.mark.parametrize("command", ["readme", "agent"])
def test_prometheus_scrapes_the_command_of_the_documentation(command: str, tmp_path: Path) -> None:
    program("prometheus")
    block = the_block(README, "OTEL_METRICS_EXPORTER=prometheus")
    if command == "agent":
        assert f"`{AGENT}`" in (ROOT / "docs" / "collector.md").read_text()
        block = block._replace(text=f"exec {AGENT.replace('OTEL', 'env OTEL', 1)}\n")
    (address,) = free_addresses(1)
    here = {"OTEL_EXPORTER_PROMETHEUS_PORT": address.partition(":")[2], "OTEL_LOGS_EXPORTER": "none"}
    folder = tmp_path / "desk"
    folder.mkdir()
    here |= {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS} | desk(folder, WAITING)
    target = address.replace("127.0.0.1", "localhost")
    with children.started(bash(block), here, cwd=folder) as running, Prometheus(tmp_path, {"t": target}) as server:
        limit = f"system_memory_limit_bytes{{instance='{target}'}}"
        seen = f"{limit} and on() process_cpu_time_seconds_total"
        (found,) = wait(lambda: server.query(seen), PATIENCE, lambda: get(f"{server.url}/api/v1/targets"))
        assert found[1] > 0
        (folder / "stop").touch()
        if command == "agent":
            running.terminate()
        running.communicate(timeout=PATIENCE)


# -- links


def written() -> list[Path]:
    """The Markdown files of the repository."""
    return [*PAGES, *sorted((ROOT / "examples").rglob("*.md"))]


def prose(page: Path) -> str:
    """The text of a page without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.M | re.S))


def links(page: Path) -> list[str]:
    text = prose(page)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", written(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"(https?|mailto):", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or not target.is_relative_to(ROOT) or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_readme_and_index_lead_to_every_page() -> None:
    index = {(ROOT / "docs" / link).name for link in links(ROOT / "docs" / "README.md")}
    assert {page.name for page in PAGES[1:]} - {"README.md"} <= index
    assert "docs/README.md" in links(README)


def test_page_of_simulated_gpus_names_each_command_with_the_flag() -> None:
    takers = {name for name in commands() if "there is no card" in otel_hardware(name, "--simulate", "V100").err}
    begin = (ROOT / "docs" / "simulator.md").read_text("utf-8").partition(" take the same flag")[0]
    assert takers == {word for word in re.findall(r"[a-z]+", begin) if word in commands()}


def test_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 150
