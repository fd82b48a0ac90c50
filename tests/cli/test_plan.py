"""How often the budget lets feeds be read, as an operator asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dockbell.cli import main
from dockbell.core.delays import begin_of_quarter, find_bucket
from dockbell.core.moment import to_micros
from dockbell.core.planning.costs import Cost
from dockbell.core.planning.rates import Rate
from dockbell.core.planning.stored_plan import StoredPlan
from tests.cli.filled import Filled
from tests.fakes import NOON
from tests.stores.standings import write


def plan(folder: Path, *args: str) -> Result:
    """Run the command in this process."""
    return CliRunner(catch_exceptions=False).invoke(main, ["plan", *args, "--config", str(folder / "dockbell.toml")])


def rows(text: str) -> dict[str, list[str]]:
    """Return what the first line says that begins with a word, by the word."""
    return {line.split()[0]: line.split()[1:] for line in reversed(text.splitlines()) if line}


@pytest.fixture
def learned(filled: Filled) -> Filled:
    """Return a store whose daemon has learned what stock costs, and that it changes once a second."""
    plan = StoredPlan(Rate(60.0, 60.0, NOON), Cost((15,))).to_json()
    write(filled.store, "UPDATE feeds SET plan = ? WHERE resource = 'stock'", plan)
    return filled


@pytest.fixture
def unread(configure: Callable[..., Path]) -> Path:
    """Return a folder with a configuration that no daemon has used."""
    folder = configure("http://127.0.0.1:9")
    config = folder / "dockbell.toml"
    config.write_text(config.read_text().replace("6000", "300").replace('{ every = "500ms" }', "{}"))
    return folder


def test_what_was_learned_is_taken_from_the_store(learned: Filled) -> None:
    told = learned.run("plan")
    found = rows(told)
    assert found["stock"][:5] == ["15", "60", "auto", "≤", "15m"]
    assert found["shipments"][:2] == ["1*", "3*"]
    assert found["budget"] == ["266", "requests", "a", "minute", "(0.9", "of", "300)"]
    assert (found["spare"], found["delay"][0], found["floor"][0]) == (["0"], "mean", "mean")
    assert told.endswith("a second API key would halve its delay\n\n")


def test_json_has_the_same(learned: Filled) -> None:
    told = learned.ask("plan")
    assert (told["fits"], told["reasons"], told["what_if"]) == (True, [], None)
    (source,) = told["sources"]
    stock = source["feeds"][1]
    assert (stock["feed"], stock["cost"], stock["cost_from"]) == ("main/stock", 15, "learned")
    assert stock["changes_per_minute"] == 60
    assert stock["delay"]["mean_seconds"] == pytest.approx(stock["interval_seconds"] / 2, abs=0.01)


def test_measured_delays_are_shown_beside_the_predicted_ones(learned: Filled) -> None:
    assert "measured" not in learned.run("plan")
    add_delays(learned, "stock", 6.0)
    told = learned.run("plan")
    assert told.splitlines()[2].endswith("  measured mean  measured p99")
    assert rows(told)["stock"][-2:] == ["≈6.1s", "≈6.1s"]
    assert rows(told)["shipments"][-2:] == ["-", "-"]
    assert rows(told)["measured"] == ["mean", "6.1s,", "p99", "6.1s"]
    stock = learned.ask("plan")["sources"][0]["feeds"][1]
    assert (stock["measured"]["count"], stock["measured_estimated"]) == (20, True)


def add_delays(filled: Filled, resource: str, seconds: float) -> None:
    """Store that changes of a feed without timestamps reached the sink erp after so many seconds just now."""
    write(filled.store, "UPDATE feeds SET key = '[\"/id\"]' WHERE resource = ?", resource)
    quarter = to_micros(begin_of_quarter(datetime.now(UTC)))
    buckets = json.dumps({find_bucket(seconds): 20})
    write(
        filled.store,
        "INSERT INTO delays SELECT ?, id, 'erp', ?, 0, 40000000 FROM feeds WHERE resource = ?",
        quarter,
        buckets,
        resource,
    )


def test_status_shows_delays_by_feed_and_sink(learned: Filled) -> None:
    assert "delay of" not in learned.run("status", code=1)
    add_delays(learned, "stock", 6.0)
    told = learned.run("status", code=1)
    delays = told[told.index("delay of") :].splitlines()
    assert delays[1].split() == ["main/stock", "erp", "20", "≈6.1s", "≈6.1s", "≈6.1s", "2s"]
    status = learned.ask("status", code=1)
    stock, erp = status["feeds"][1]["delay"], status["sinks"][0]["delay"]
    assert (stock["sinks"]["erp"], stock["predicted_mean_seconds"], stock["estimated"]) == (erp, 2, True)
    assert (erp["count"], status["sinks"][1]["delay"], status["feeds"][0]["delay"]) == (20, None, None)


def test_other_settings_are_shown_beside_those_at_hand(learned: Filled) -> None:
    found = rows(learned.run("plan", "--what-if", "stock.every=30s", "--what-if", "share=1"))
    assert " ".join(found["stock"]).startswith("15 60 auto ≤ 15m → 30s 3.7s → 30s ")
    assert " ".join(found["budget"]) == "266 requests a minute (0.9 of 300) → 295 requests a minute (1 of 300)"
    told = learned.ask("plan", "--what-if", "stock.every=30s")
    before, after = (told[name][0]["feeds"][1] for name in ("sources", "what_if"))
    assert (before["every"], after["every"], after["interval_seconds"]) == ("auto", "30s", 30)


def test_what_cannot_be_met_exits_with_1_and_says_why_and_what_to_do(learned: Filled) -> None:
    reason = 'stock every 1s takes 900 (15 pages); set every = "auto"'
    result = plan(learned.folder, "--what-if", "stock.every=1s")
    assert result.exit_code == 1
    assert f"! main: needs 901 of 260 requests a minute: {reason}\n" in result.stdout
    assert "longer than configured: the budget does not allow more" in result.stdout
    told = learned.ask("plan", "--what-if", "stock.every=1s", code=1)
    assert (told["fits"], told["sources"][0]["fits"], told["what_if"][0]["fits"]) == (False, True, False)
    assert told["reasons"][0].endswith(reason)


def test_other_settings_that_fit_mend_what_does_not(learned: Filled) -> None:
    config = learned.folder / "dockbell.toml"
    config.write_text(config.read_text().replace("stock = {}", 'stock = { every = "1s" }'))
    assert plan(learned.folder).exit_code == 1
    assert plan(learned.folder, "--what-if", "stock.every=auto").exit_code == 0
    assert plan(learned.folder, "--what-if", "main.requests_per_minute=1200").exit_code == 0


def test_without_a_store_it_is_assumed_and_said(unread: Path) -> None:
    result = plan(unread)
    assert (result.exit_code, rows(result.stdout)["stock"][:2]) == (1, ["50*", "3*"])
    assert "\n* assumed, not learned yet" in result.stdout
    assert "stock every 1s takes 3000 (50 pages)" in result.stdout
    assert not (unread / "dockbell.db").exists()


def test_what_is_given_is_no_assumption(unread: Path) -> None:
    args = ("--records", "stock=400", "--changes", "stock=2/s", "--changes", "shipments=90/min")
    result = plan(unread, *args)
    found = rows(result.stdout)
    assert (result.exit_code, found["stock"][:2]) == (0, ["2", "120"])
    assert found["shipments"][1] == "90"
    assert "assumed" not in result.stdout


def test_what_a_crontab_line_reads_has_no_delay(unread: Path) -> None:
    config = unread / "dockbell.toml"
    config.write_text(config.read_text().replace('{ every = "1s" }', '{ cron = "0 6 * * *" }'))
    found = rows(plan(unread).stdout)
    assert found["stock"][2:] == ["cron", "0", "6", "*", "*", "*", "-", "0.035", "0.0%", "-", "-"]


def test_each_source_has_a_table(unread: Path) -> None:
    config = unread / "dockbell.toml"
    text = config.read_text()
    other = '[sources.other]\nbase_url = "http://127.0.0.1:9"\napi_key = "k"\nrequests_per_minute = 6000\n'
    config.write_text(other + text)
    result = plan(unread)
    assert [line for line in result.stdout.splitlines() if line.startswith("source ")] == [
        "source other",
        "source main",
    ]
    assert [line.split(":")[0] for line in result.stdout.splitlines() if line.startswith("!")] == ["! main"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--records", "stock=many"), "--records: must be a feed and how many records it has"),
        (("--changes", "stock=2"), "--changes: must be a feed and its changes a second, minute or hour"),
        (("--changes", "items=2/s"), '--changes: feed "items" is not configured; available: shipments, stock'),
        (("--what-if", "stock.evry=30s"), '--what-if: "evry" cannot be changed here; did you mean "every"?'),
        (("--what-if", "stock.every=30"), '--what-if: main/stock.every: must be "auto" or a duration'),
    ],
)
def test_an_option_that_cannot_be_read_is_wrong_usage(filled: Filled, args: tuple[str, ...], told: str) -> None:
    assert filled.misuse("plan", *args).startswith(f"Error: {told}")
    result = plan(filled.folder, *args, "--json")
    error: dict[str, Any] = json.loads(result.stdout)
    assert (error["exit_code"], error["error"].startswith(told)) == (2, True)
