"""How the records of one feed are told apart, compared and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.detail_members import DetailMembers
from dockbell.core.comparing.record_identity import RecordIdentity
from dockbell.core.diff import diff, touched
from dockbell.core.model import JSON, Feed


@dataclass(frozen=True, slots=True)
class RecordRules:
    """The settings of one feed's comparison.

    Attributes:
        feed: The feed.
        identity: Finds key and times.
        canon: Makes the canonical form.
        detail: The members that come with each record's detail.
        clean: Takes out of a raw record what is never stored.
        is_key_learned: The key was learned, not configured: two records with one key prove it wrong.
        publishes_touches: Changes of the timestamp alone are published.
    """

    feed: Feed
    identity: RecordIdentity
    canon: Canon
    detail: DetailMembers
    clean: Callable[[bytes], bytes]
    is_key_learned: bool
    publishes_touches: bool

    def name_changed(self, patch: list[dict[str, JSON]] | None, previous: JSON, document: JSON) -> list[str] | None:
        """Return the pointers at which the canonical form changed, those of the patch where it did not; None: none."""
        if patch is None:
            return None
        return touched(diff(self.canon.form(previous), self.canon.form(document))) or touched(patch)
