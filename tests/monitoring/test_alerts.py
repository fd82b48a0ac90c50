"""The alerting rules that the documentation offers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.monitoring.conftest import Scraped
from tests.monitoring.promtool import run_promtool

RULES: Final = Path(__file__).parents[2] / "docs" / "operations" / "alerts.yml"
_ALERT: Final = re.compile(r"^      - alert: (\w+)$", re.MULTILINE)
_METRIC: Final = re.compile(r"\b(?:dockbell|process)_[a-z_]+\b")


def test_prometheus_loads_them() -> None:
    assert "SUCCESS" in run_promtool("check", "rules", RULES)


def test_they_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("alerts_test.yml").read_text()
    (tmp_path / "cases.yml").write_text(cases.replace("RULES", str(RULES)))
    assert "SUCCESS" in run_promtool("test", "rules", tmp_path / "cases.yml")


def test_each_says_what_it_means_and_what_to_do() -> None:
    text = RULES.read_text()
    names, bodies = _ALERT.findall(text), _ALERT.split(text)[2::2]
    assert len(names) == len(set(names)) == len(bodies) > 20
    for name, body in zip(names, bodies, strict=True):
        for part in ("severity: ", "summary: ", "description: ", "action: "):
            assert body.count(f"        {part}") == 1, (name, part)


@pytest.mark.acceptance
def test_every_metric_that_they_ask_for_is_there(scraped: Scraped) -> None:
    asked = set(_METRIC.findall(RULES.read_text()))
    assert len(asked) > 20
    assert asked <= scraped.names
