"""The dashboards in VictoriaMetrics' own page, looked at in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from tests.alerts.stored import DASHBOARDS, MINUTES, stored
from tests.tools import Missing, program, victoria_metrics


def run(folder: Path, pictures: Path | None, say: Callable[[str], None]) -> bool:
    """Store simulated hosts, and let Chromium draw each dashboard. Returns whether all panels are drawn.

    Args:
        folder: Where files go.
        pictures: The folder for a picture of each dashboard.
        say: Called with what was seen.
    """
    victoria_metrics(), program("promtool"), program("prometheus")
    chromium = shutil.which("chromium")
    if chromium is None:
        raise Missing("chromium is not installed: apt-get install chromium")
    shown = folder / "shown"
    shown.mkdir()
    good = True
    with stored(folder, f"-vmui.customDashboardsPath={shown}") as stores:
        server = stores["victoriametrics"]
        end = datetime.fromtimestamp(server.last, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        url = f"{server.url}/vmui/#/dashboards?g0.range_input={MINUTES}m&g0.end_input={end}&g0.relative_time=none"
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]
        for path in sorted((DASHBOARDS / "vmui").glob("*.json")):
            if path.stem == "spans":
                continue  # the simulated hosts have none
            for other in shown.iterdir():
                other.unlink()
            shutil.copy(path, shown)  # vmui opens the first one
            panels = [panel for row in json.loads(path.read_text())["rows"] for panel in row["panels"]]
            look = [chromium, *flags, f"--user-data-dir={folder / 'chromium'}"]
            whole = f"--window-size=1600,{200 + 500 * len(panels)}"  # what is out of sight is not drawn
            page = subprocess.run(
                [*look, whole, "--dump-dom", url], capture_output=True, text=True, timeout=300, check=True
            )
            drawn, failed = page.stdout.count("<canvas"), page.stdout.count("vm-alert_error")
            say(f"{path.stem}: {drawn} of {len(panels)} panels drawn, {failed} errors")
            good &= drawn == len(panels) and not failed
            if pictures is not None:
                small = ["--window-size=1600,1700", "--force-device-scale-factor=0.6"]
                picture = f"--screenshot={pictures.resolve() / f'vmui-{path.stem}.png'}"
                subprocess.run([*look, *small, picture, url], capture_output=True, timeout=300, check=True)
    return good
