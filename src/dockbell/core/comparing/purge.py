"""The change by which others learn that a record's content is erased here, and is to be erased with them."""

from __future__ import annotations

from datetime import datetime

from dockbell.core.model import Change, ChangeKind, DeletionReason, Feed, Key, Via


def purge(feed: Feed, key: Key, revision: int, now: datetime) -> Change:
    """Return the ``deleted`` of a record that an operator purges; it holds no content.

    Args:
        feed: The record's.
        key: The record's.
        revision: Its change count before.
        now: Our time.
    """
    return Change(
        feed=feed,
        key=key,
        kind=ChangeKind.DELETED,
        revision=revision + 1,
        before=None,
        after=None,
        patch=None,
        changed=None,
        changed_between=(None, now),
        modified_at=None,
        detected_at=now,
        via=Via.OPERATOR,
        reason=DeletionReason.PURGED,
    )
