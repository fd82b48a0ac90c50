from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.fakes import NOON
from tests.stores.pages import FEED, commit
from tests.stores.places import Place, open_store


async def test_whoever_waits_for_events_is_woken_even_if_who_committed_them_is_cancelled(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(place, now=lambda: NOON)
    state = await store.feed(FEED).open()
    rings, write = store.outbox.rings, store.engine.write

    async def write_and_cancel(*given: Any, **named: Any) -> Any:
        written = await write(*given, **named)
        scope.cancel()
        return written

    monkeypatch.setattr(store.engine, "write", write_and_cancel)
    with anyio.CancelScope() as scope:
        await commit(store, state, {"id": "a"})
    assert store.outbox.rings == rings + 1
    await store.aclose()
