from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dockbell.ports import FeedState, Store
from tests.fakes import NOON
from tests.stores.pages import FEED
from tests.stores.places import Place, open_store


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    """Yield the store of a place, whose clock stands at noon."""
    store = await open_store(place, now=lambda: NOON)
    yield store
    await store.aclose()


@pytest.fixture
async def state(store: Store) -> FeedState:
    """Return the state of a feed that was never read."""
    return await store.feed(FEED).open()
