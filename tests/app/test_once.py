"""What one round reads: the caller says when, but for feeds that have an interval of their own."""

from __future__ import annotations

from pathlib import Path

from dockbell.app import load_config
from dockbell.app.once import run_once
from dockbell.core.model import Feed, RunKind
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.telemetry import Fact, RunEnded, Telemetry

CONFIG = """
[sources.main]
base_url = "{api}"
api_key = "sandbox"

[resources]
shipments = {{}}
stock = {{}}
warehouses = {{ every = "1h" }}
"""


async def test_each_round_reads_what_is_auto_and_the_rest_as_its_interval_says(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.toml"
    async with serve(Sandbox(SandboxOptions(records=20, activity=0))) as api:
        path.write_text(CONFIG.format(api=api))
        rounds = []
        for _ in range(3):
            facts: list[Fact] = []
            assert await run_once(load_config(path), Telemetry(facts.append))
            rounds.append({(fact.feed, fact.kind) for fact in facts if isinstance(fact, RunEnded)})
    shipments, stock, warehouses = (Feed("main", resource) for resource in ("shipments", "stock", "warehouses"))
    assert rounds[0] >= {(each, RunKind.PASS) for each in (shipments, stock, warehouses)}
    assert rounds[1:] == [{(shipments, RunKind.POLL), (stock, RunKind.PASS)}] * 2
