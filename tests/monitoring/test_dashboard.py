"""The dashboard that the documentation offers for Grafana."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import pytest

from tests.monitoring.conftest import Scraped
from tests.monitoring.promtool import run_promtool

_FILE: Final = Path(__file__).parents[2] / "docs" / "operations" / "grafana-dashboard.json"
_METRIC: Final = re.compile(r"\b(?:dockbell|process)_[a-z_]+\b")
_SOURCE: Final = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
_WIDTH: Final = 24


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads(_FILE.read_text())


@pytest.fixture(scope="module")
def panels(dashboard: Any) -> Any:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def _ask(panels: Any) -> list[str]:
    return [target["expr"] for panel in panels for target in panel["targets"]]


# https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
def test_it_has_the_shape_that_grafana_imports(dashboard: Any) -> None:
    assert dashboard["id"] is None  # else it would replace another one
    assert {"title", "uid", "schemaVersion", "time", "templating", "annotations"} <= dashboard.keys()
    [given] = dashboard["__inputs"]
    assert (given["name"], given["type"], given["pluginId"]) == ("DS_PROMETHEUS", "datasource", "prometheus")
    needed = {each["id"] for each in dashboard["__requires"]}
    assert needed == {"grafana", "prometheus"} | {panel["type"] for panel in dashboard["panels"]} - {"row"}


def test_each_panel_asks_the_source_that_was_chosen(dashboard: Any, panels: Any) -> None:
    for panel in panels:
        assert panel["datasource"] == _SOURCE
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert all(target["datasource"] == _SOURCE for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references))
    assert all(each["datasource"] == _SOURCE for each in dashboard["templating"]["list"])


def test_no_panel_covers_another(dashboard: Any) -> None:
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= _WIDTH for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_prometheus_understands_what_it_asks(panels: Any, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(_ask(panels))
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run_promtool("check", "rules", file)


@pytest.mark.acceptance
def test_every_metric_that_it_asks_for_is_there(dashboard: Any, panels: Any, scraped: Scraped) -> None:
    asked = set(_METRIC.findall(" ".join(_ask(panels)) + json.dumps(dashboard["templating"])))
    assert len(asked) > 30
    assert asked <= scraped.names
