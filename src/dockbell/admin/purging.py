"""What is stored of one record is erased on an operator's word, for good."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dockbell.admin.why import read_key
from dockbell.core.comparing.deletion import purge
from dockbell.core.model import RESOURCES, Feed
from dockbell.core.publishing.event import Composer
from dockbell.ports import CommandOutcome, ReadStore, Store, StoredRecord


@dataclass(frozen=True, slots=True)
class Target:
    """A record whose content is to be erased.

    Attributes:
        feed: Its feed.
        key: Its key string.
        record: What is stored of it now; None where that are only events, findings, or readings in quarantine.
    """

    feed: Feed
    key: str
    record: StoredRecord | None

    @property
    def is_there(self) -> bool:
        """Whether the API showed it last time: it will show it again."""
        return self.record is not None and self.record.gone_at is None


async def find_target(read_store: ReadStore, feed: Feed, given: str) -> Target | None:
    """Return the record that is meant by a key, as events or the API write it; None where nothing is stored of it.

    Raises:
        ValueError: What is given can be no key.
    """
    state = next((state for state in await read_store.load_feeds() if state.feed == feed), None)
    for key in read_key(given) if state is not None else ():
        assert state is not None
        record = await read_store.find_record(state.id, key)
        if (
            record is not None
            or await read_store.read_events_of(state.id, key, 1)
            or await read_store.find_quarantined(state.id, 1, key=key)
        ):
            return Target(feed, key, record)
    return None


async def purge_record(
    store: Store, feed: Feed, key: str, *, name: str, rewrite_most: int | None = None
) -> CommandOutcome:
    """Erase what is stored of a record, tell subscribers, and clear the store's files of it; return what came of it.

    Args:
        store: Where it is; held.
        feed: Its feed, configured or not.
        key: Its key string.
        name: The name of this dockbell.
        rewrite_most: See :meth:`dockbell.ports.Privacy.wipe`.
    """
    compose = Composer(feed, name=name, singular=RESOURCES[feed.resource].singular, epoch=store.epoch)
    purged = await store.privacy.purge(feed, key, partial(purge, feed), compose)
    if not purged.is_known:
        return CommandOutcome("failed", detail="nothing is stored of it")
    done = CommandOutcome("complete", {"emptied": purged.events, "published": int(purged.change is not None)})
    problem = await store.privacy.wipe(rewrite_most=rewrite_most)
    if not problem:
        return done
    words = f"{purged.events} emptied, {int(purged.change is not None)} published, but {problem}; purge it again"
    return CommandOutcome("incomplete", detail=words)
