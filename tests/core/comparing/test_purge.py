from __future__ import annotations

from dockbell.core.comparing.purge import purge
from dockbell.core.model import ChangeKind, DeletionReason, Feed, Key
from tests.fakes import NOON

FEED = Feed("main", "stock")


def test_the_next_change_of_a_purged_record_is_a_deletion_without_content() -> None:
    change = purge(FEED, Key("a,7", ["a", 7]), 6, NOON)
    assert (change.kind, change.reason, change.revision) == (ChangeKind.DELETED, DeletionReason.PURGED, 7)
    assert (change.feed, change.key.id, change.changed_between) == (FEED, ["a", 7], (None, NOON))
    assert (change.before, change.after, change.patch, change.changed, change.modified_at) == (None,) * 5
