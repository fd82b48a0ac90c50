"""The page of the documentation on watching over dockbell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dockbell.admin.status import Quiet
from dockbell.web.metrics import describe_metrics
from tests.monitoring.promtool import run_promtool

_FOLDER: Final = Path(__file__).parents[2] / "docs" / "operations"
_TEXT: Final = (_FOLDER / "monitoring.md").read_text()


def test_prometheus_loads_the_configuration_with_the_alerts(tmp_path: Path) -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", _TEXT, re.DOTALL)
    (tmp_path / "token").write_text("a token")
    (tmp_path / "alerts.yml").write_text((_FOLDER / "alerts.yml").read_text())
    config = tmp_path / "prometheus.yml"
    config.write_text(block.replace("/etc/prometheus/dockbell-token", str(tmp_path / "token")))
    assert "1 rule files found" in run_promtool("check", "config", config)


def test_it_names_metrics_that_there_are() -> None:
    named = set(re.findall(r"`(dockbell_\w+)`", _TEXT))
    assert len(named) > 5
    assert named <= {each.name for each in describe_metrics()}


def test_it_explains_every_kind_of_silence() -> None:
    assert re.findall(r"^\| `(\w+)` \|", _TEXT, re.MULTILINE)[1:] == [kind for kind in Quiet if kind]
