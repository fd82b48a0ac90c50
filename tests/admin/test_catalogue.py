from __future__ import annotations

from typing import Any

import pytest

from dockbell.admin import catalogue as operation
from dockbell.admin.catalogue import find_catalogue
from dockbell.config import Config
from dockbell.core.model import Feed
from tests.admin.test_events import Recorder, recorder

__all__ = ["recorder"]  # the fixture

SOURCE = {"base_url": "http://127.0.0.1:9", "api_key": "key"}
CONFIG = Config.model_validate({"name": "acme", "sources": {"main": SOURCE}, "sinks": {"out": {"type": "stdout"}}})
FEED = Feed("main", "items")


async def find_record_schema(read_store: Any, resource: str) -> Any:
    document = (await find_catalogue(CONFIG, read_store)).write_document()
    return document["components"]["schemas"][f"{resource}.record"]


async def test_records_are_learned_from_what_is_stored(recorder: Recorder) -> None:
    await recorder.record(FEED, "a", "b", "c")
    schema = await find_record_schema(recorder.read_store, "item")
    assert schema["properties"] == {"id": {"type": "string"}, "version": {"type": "integer"}}
    assert schema["required"] == ["id", "version"]
    assert schema["description"] == "A record of items, as 6 readings have shown it."  # three, each with its event
    assert "properties" not in await find_record_schema(recorder.read_store, "stock")


async def test_records_are_learned_from_what_the_last_events_show_too(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_EVENTS_MOST", 2)
    await recorder.record(FEED, "a")
    await recorder.record(FEED, "a")
    await recorder.record(FEED, "a")
    schema = await find_record_schema(recorder.read_store, "item")
    assert "as 5 readings" in schema["description"]  # one record, and before and after of two events


async def test_records_are_read_in_portions_and_not_without_end(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_AT_ONCE", 2)
    monkeypatch.setattr(operation, "_EVENTS_MOST", 0)
    await recorder.record(FEED, *"abcde")
    assert "as 5 readings" in (await find_record_schema(recorder.read_store, "item"))["description"]
    monkeypatch.setattr(operation, "_RECORDS_MOST", 3)
    assert "as 4 readings" in (await find_record_schema(recorder.read_store, "item"))["description"]


async def test_without_a_store_records_may_be_anything() -> None:
    assert await find_record_schema(None, "item") == {
        "title": "ItemRecord",
        "type": "object",
        "description": "A record of items, as 0 readings have shown it.",
    }
