from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dockbell.app import load_config
from dockbell.app.agents import assemble
from dockbell.core.document import encode
from dockbell.core.model import DELIVERED, ChangeKind, Delivery, Feed
from dockbell.stores.sqlite import SqliteReadStore
from dockbell.telemetry import DeliverySettled
from tests.core.publishing.test_event import make, write
from tests.fakes import Ear

LARGE = write(make(ChangeKind.UPDATED, encode({"id": 7, "n": 1}), encode({"id": 7, "n": 2, "big": "x" * 3000})))
SMALL_PATCH = write(
    make(ChangeKind.UPDATED, encode({"id": 7, "n": 1, "big": "x" * 3000}), encode({"id": 7, "n": 2, "big": "x" * 3000}))
)
CONFIG = """
[store]
url = "sqlite:///a.db"
[web]
listen = "127.0.0.1:0"
{web}
[sources.main]
base_url = "http://127.0.0.1:1"
api_key = "k"
[resources.shipments]
unordered = {unordered}
[sinks.out]
type = "stdout"
max_event_size = 2000
"""


async def shape(folder: Path, event: Any, *, web: str = "", unordered: str = "[]") -> Any:
    """Return an event as a sink gets it from a daemon with this configuration."""
    path = folder / "dockbell.toml"
    path.write_text(CONFIG.format(web=web, unordered=unordered))
    async with assemble(load_config(path), Ear().telemetry) as agents:
        return json.loads(agents.relays["out"]._rendering.event(event).body)


@pytest.mark.parametrize(
    ("web", "dataref"), [("", None), ('url = "https://bell.example.com"', "https://bell.example.com")]
)
async def test_receivers_are_told_where_to_read_only_if_they_can(tmp_path: Path, web: str, dataref: str | None) -> None:
    event = await shape(tmp_path, LARGE, web=web)
    assert event.get("dataref") == (dataref and f"{dataref}/state/main/shipments/7")


async def test_sinks_know_which_feeds_have_arrays_without_an_order(tmp_path: Path) -> None:
    assert "patch" in (await shape(tmp_path, SMALL_PATCH))["data"]
    assert "patch" not in (await shape(tmp_path, SMALL_PATCH, unordered='["/tags"]'))["data"]


async def test_what_was_measured_last_is_stored_at_the_end_beside_what_was_planned(tmp_path: Path) -> None:
    path, feed, ear = tmp_path / "dockbell.toml", Feed("main", "shipments"), Ear()
    path.write_text(CONFIG.format(web="", unordered="[]").replace("[sinks.out]", 'every = "10s"\n[sinks.out]'))
    event = dataclasses.replace(
        write(make(ChangeKind.UPDATED, encode({"id": 7}), encode({"id": 7, "n": 2}))), feed=feed
    )
    async with assemble(load_config(path), ear.telemetry) as agents:
        await agents.load()
        ear.telemetry.emit(DeliverySettled("out", Delivery(event), DELIVERED, None, timedelta(seconds=4)))
    read_store = await SqliteReadStore.open(tmp_path / "a.db")
    [measured] = await read_store.read_delays(datetime(2026, 1, 1, tzinfo=UTC))
    await read_store.aclose()
    assert (measured.feed, measured.sink, measured.count) == (feed, "out", 1)
    assert measured.predicted == timedelta(seconds=5)
