"""What operators decide and ask about single records, by the real program, with a daemon and without."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.programs import run, started

HOOK = '[sinks.out]\ntype = "stdout"\nresources = ["shipments"]\nchanges = ["deleted"]\n'


@dataclass
class Place:
    """A sandbox whose records move only when they are told to, and a configuration for it that was used once."""

    url: str
    folder: Path

    def tell(self, path: str) -> None:
        """Ask the sandbox for something."""
        headers = {"Authorization": "Bearer sandbox"}
        assert httpx.post(f"{self.url}/sandbox/{path}", headers=headers, trust_env=False).status_code == 200

    def run(self, *args: str, code: int = 0) -> str:
        """Run a command to its end, which must be with this exit code, and return what it prints."""
        result = run(*args, cwd=self.folder)
        assert result.returncode == code, result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout

    def ask(self, *args: str, code: int = 0) -> Any:
        """Run a command with ``--json``."""
        return json.loads(self.run(*args, "--json", code=code))


@pytest.fixture
def place(tmp_path: Path, configure: Callable[..., Path]) -> Iterator[Place]:
    options = ("--port", "0", "--stock", "40", "--shipments", "12", "--requests-per-minute", "0")
    with started(tmp_path, "sandbox", *options) as program:
        url = program.until("http://[0-9.:]+")[0]
        place = Place(url, configure(url, HOOK))
        place.run("reconcile")
        yield place


def test_without_a_daemon_feeds_are_read_here(place: Place) -> None:
    place.tell("edit/stock?n=3")
    result = run("reconcile", cwd=place.folder)
    assert (result.returncode, result.stderr) == (0, "no daemon is running: running the command here\n")
    assert result.stdout.splitlines() == [
        "feed            outcome   pages  records  created  updated  deleted  restored  detail",
        "main/shipments  complete      1       12        0        0        0         0  -",
        "main/stock      complete      1       40        0        3        0         0  -",
    ]


def test_a_feed_that_cannot_be_read_is_incomplete(place: Place) -> None:
    place.tell("options?refuse_with=401")
    found = place.ask("reconcile", "stock", code=1)
    (result,) = found["results"]
    assert (found["command"], result["feed"], result["outcome"], result["counts"]) == (
        "reconcile",
        "main/stock",
        "failed",
        {},
    )
    assert "401" in result["detail"]


@pytest.mark.parametrize("args", [("reconcile", "stok"), ("deletes", "list", "stok"), ("why", "stok", "a")])
def test_a_feed_that_does_not_exist_is_a_problem(configure: Callable[..., Path], args: tuple[str, ...]) -> None:
    result = run(*args, cwd=configure("http://127.0.0.1:9"))
    assert result.returncode == 1
    assert 'feed "stok" is not configured; did you mean "stock"?' in result.stderr


def test_a_daemon_reads_feeds_beside_its_polls_and_others_wait_for_it(place: Place) -> None:
    with started(place.folder, "run") as daemon:
        daemon.until("main/shipments: pass complete|dockbell dockbell runs")
        found = place.ask("reconcile", "shipments")
        assert [(each["feed"], each["outcome"]) for each in found["results"]] == [("main/shipments", "complete")]
        assert found["results"][0]["counts"]["records"] == 12
        daemon.until("main/shipments: reconcile: complete: 1 page, 12 records")
        waiting = place.run("reconcile", "stock", "--no-wait")
        assert re.search(r"^main/stock +waiting +the daemon has not run it yet$", waiting, re.MULTILINE)
        daemon.until("main/stock: reconcile: complete")


def test_a_mass_of_deletions_is_held_until_an_operator_approves_it(place: Place) -> None:
    assert place.run("deletes") == "no deletions held\n"
    assert place.run("deletes", "approve") == "no deletions held\n"
    assert place.ask("deletes", "approve") == {"command": "approve deletions", "results": [], "reasons": []}
    place.tell("delete/stock?n=30")
    reasons = place.ask("reconcile", "stock")["reasons"]
    assert reasons == [
        (
            "main/stock: 30 records are absent, too many to believe that they were deleted; check the API, then run"
            ' "dockbell deletes approve main/stock" or "dockbell deletes reject main/stock"'
        )
    ]
    assert f"! {reasons[0]}" in place.run("status", code=1).splitlines()
    listed = place.run("deletes")
    assert re.search(r"^main/stock +30 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$", listed, re.MULTILINE)
    assert re.search(r"^stk_1 +\S+ \S+Z +\S+ \S+Z$", listed, re.MULTILINE)
    assert "and 20 more" in listed
    (held,) = place.ask("deletes")
    assert (held["feed"], held["held"], len(held["sample"])) == ("main/stock", 30, 30)
    assert "why: it has been absent since" in place.run("why", "stock", "stk_1")
    approved = place.ask("deletes", "approve", "stock")
    assert approved["results"][0]["counts"]["deleted"] == 30
    assert approved["reasons"] == []
    assert place.ask("deletes") == []
    assert "main/stock stk_1: gone, since " in place.run("why", "stock", "stk_1")


def test_what_a_daemon_cannot_do_for_an_operator_is_a_problem(place: Place) -> None:
    place.tell("delete/stock?n=30")
    place.tell("deploy?field=carbon")
    place.run("reconcile")
    place.tell("options?refuse_with=401")
    with started(place.folder, "run") as daemon:
        daemon.until("dockbell dockbell runs")
        for command in (("reconcile", "stock"), ("deletes", "approve"), ("drift", "absorb")):
            found = place.ask(*command, code=1)
            assert {result["outcome"] for result in found["results"]} == {"failed"}
            assert any("30 records are absent" in reason for reason in found["reasons"])


def test_rejected_deletions_stay_until_the_records_are_seen_again(place: Place) -> None:
    place.tell("delete/stock?n=30")
    place.run("reconcile", "stock")
    rejected = place.ask("deletes", "reject")
    assert rejected["results"][0] | {"counts": {}} == {
        "feed": "main/stock",
        "outcome": "complete",
        "counts": {},
        "detail": "30 records will be kept until seen again",
    }
    assert place.run("reconcile", "stock").splitlines()[1].split() == [
        *("main/stock", "complete", "1", "10", "0", "0", "0", "0", "-")
    ]
    kept = place.ask("why", "stock", "stk_1")
    assert (kept["presence"], kept["record"]["dormant"]) == ("absent, kept until it is seen again", True)
    assert kept["why"].endswith("an operator rejected its deletion")


def test_a_new_field_on_every_record_is_held_until_it_is_absorbed_or_published(place: Place) -> None:
    assert place.run("drift") == "no drift held\n"
    assert place.run("drift", "publish") == "no drift held\n"
    place.tell("deploy?field=carbon")
    place.run("reconcile")
    listed = place.run("drift")
    assert re.search(r"^main/stock +/carbon +40 +\S+ \S+Z +hold$", listed, re.MULTILINE)
    assert [(each["feed"], each["readings"]) for each in place.ask("drift")] == [
        ("main/shipments", 12),
        ("main/stock", 40),
    ]
    assert '"dockbell drift absorb main/stock"' in place.ask("why", "stock", "stk_1")["why"]
    absorbed = place.ask("drift", "absorb", "stock")
    assert (absorbed["results"][0]["counts"]["updated"], absorbed["reasons"]) == (0, [])
    published = place.ask("drift", "publish")
    assert [(each["feed"], each["counts"]["updated"]) for each in published["results"]] == [("main/shipments", 12)]
    assert place.ask("drift") == []
    assert "an operator absorbed the drift" in place.run("why", "stock", "stk_1")


def test_why_tells_the_life_of_a_record(place: Place) -> None:
    place.tell("edit/shipments?id=shp_1")
    place.run("reconcile", "shipments")
    told = place.run("why", "shipments", "shp_1").splitlines()
    assert re.fullmatch(
        r"main/shipments shp_1: present, revision 1, modified \S+ \S+Z, fingerprint [0-9a-f]{8}", told[0]
    )
    text = "\n".join(told)
    assert re.search(r"^\S+ \S+Z to \S+ \S+Z +2 passes +complete, 2 pages, 1 event$", text, re.MULTILINE)
    assert re.search(r"^\S+ \S+Z +pass +updated +\S+ \S+Z +[0-9a-f]{8} +#2$", text, re.MULTILINE)
    assert re.search(
        r"^#2 +\S+ \S+Z +dockbell.shipment.updated +evt_\w+ +out filtered: changes does not include updated$",
        text,
        re.MULTILINE,
    )
    assert "why:" not in text
    account = place.ask("why", "shipments", "shp_1", "--source", "main")
    assert (account["feed"], account["key"], account["why"]) == ("main/shipments", "shp_1", None)
    filtered = {"stage": "filtered", "attempts": 0, "error": "changes does not include updated", "at": None}
    assert account["events"][0]["sinks"] == {"out": {**filtered, "attempt_log": []}}
    assert [finding["finding"] for finding in account["findings"]] == ["updated"]
    assert [run["kind"] for run in account["runs"]] == ["pass", "pass"]


def test_why_understands_a_key_as_the_api_writes_it(place: Place) -> None:
    told = place.run("why", "stock", "a/b+#%é", code=1).splitlines()
    assert told[0] == 'key "a/b+#%é" is read as a%2Fb%2B%23%25é'
    assert told[2] == "main/stock a%2Fb%2B%23%25é: unknown"
    assert told[-1].startswith("why: no complete run has ever seen it; the last pass started at ")


def test_a_feed_that_was_never_read_is_told_as_such(place: Place) -> None:
    config = place.folder / "dockbell.toml"
    config.write_text(config.read_text().replace(HOOK, "items = {}\n"))
    told = place.run("status", code=1)
    assert re.search(r"^main/items +- +- +- +- +- +- +-$", told, re.MULTILINE)
    assert "sink" not in told
    told = place.run("why", "items", "a", code=1)
    assert told.endswith('\nwhy: main/items was never read; "dockbell run" reads it\n')


def test_why_refuses_what_can_be_no_key(place: Place) -> None:
    result = run("why", "stock", "", cwd=place.folder)
    assert result.returncode == 2
    assert "a key must not be empty" in result.stderr


def test_status_names_what_is_in_quarantine_and_why_says_so(place: Place) -> None:
    config = place.folder / "dockbell.toml"
    config.write_text(config.read_text().replace('stock = { every = "1s" }', 'stock = { every = "1s", key = "/id" }'))
    place.tell("options?doubled=stock/stk_1")
    place.run("reconcile")
    told = place.run("status", "--verbose", code=1)
    quarantine = r"^main/stock: quarantine: key stk_1: appears twice .* \(last seen \d+s ago\)$"
    assert re.search(quarantine, told, re.MULTILINE)
    (stock,) = [feed for feed in place.ask("status", code=1)["feeds"] if feed["feed"] == "main/stock"]
    assert (stock["quarantined"], stock["quarantine"][0]["key"]) == (1, "stk_1")
    assert (stock["proven"], stock["lookback_seconds"], stock["drift"], stock["gap"]) == (True, None, None, None)
    account = place.ask("why", "stock", "stk_1")
    assert account["why"].startswith("it has been in quarantine since")
    assert "in quarantine" in place.run("why", "stock", "stk_1").splitlines()[0]
