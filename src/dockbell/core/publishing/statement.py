"""Statements about a feed, each with its shape; ``event.schema.json`` describes the same from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from dockbell.core.model import ChangeKind, Feed, Statement, StatementKind
from dockbell.core.moment import format_moment

FOUND: Final = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.RESTORED)
"""The changes that a certificate counts."""


class GapReason(StrEnum):
    """Why dockbell was blind."""

    DOWN = "down"  # it did not run
    REFUSED = "refused"  # the API did not accept the key
    UNAVAILABLE = "unavailable"  # the API gave no usable answer
    NO_BUDGET = "no_budget"  # others used the key's requests up
    STORE_UNAVAILABLE = "store_unavailable"  # the store could not be written: a full disk
    STORE_LOST = "store_lost"  # the store is lost, or was restored from a backup
    OVERRUN = "overrun"  # of one sink only: it took nothing for so long that its events were dropped


class HoldReason(StrEnum):
    """Why changes wait for an operator."""

    DELETIONS = "deletions"  # too many at once
    DRIFT = "drift"  # the same places changed in too many records at once


class PassVerdict(StrEnum):
    """The result of a complete pass for the stored snapshots."""

    EQUAL = "equal"  # they were as the API lists them
    REPAIRED = "repaired"  # they were not, and are now
    DOUBTFUL = "doubtful"  # some records could not be compared, or wait to be confirmed or approved


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The figures of a complete pass.

    Attributes:
        began_at: The API's time of its first request.
        ended_at: The API's time of its last answer.
        pages: How many pages it read.
        records: How many records they held.
        found: How many changes it found, by kind.
        missed: How many of them the polls should have shown, and did not.
        held: How many readings of the feed's records are held, as stale or as drift, whichever run held them.
        quarantined: How many records it could not read or tell apart.
        digest: Hash of all keys and fingerprints after it, in hexadecimal.
        verdict: All of it in a word.
    """

    began_at: datetime
    ended_at: datetime
    pages: int
    records: int
    found: Mapping[ChangeKind, int] = field(default_factory=dict)
    missed: int
    held: int = 0
    quarantined: int = 0
    digest: str
    verdict: PassVerdict


def reconciled(feed: Feed, detected_at: datetime, certificate: Certificate) -> Statement:
    """Return the statement that a pass over a feed is complete."""
    details = {
        "from": format_moment(certificate.began_at),
        "to": format_moment(certificate.ended_at),
        "pages": certificate.pages,
        "records": certificate.records,
        **{str(kind): certificate.found.get(kind, 0) for kind in FOUND},
        "missed": certificate.missed,
        "held": certificate.held,
        "quarantined": certificate.quarantined,
        "digest": certificate.digest,
        "verdict": str(certificate.verdict),
    }
    return Statement(feed, StatementKind.RECONCILED, detected_at, details)


def gap(
    feed: Feed, detected_at: datetime, *, began_at: datetime | None, ended_at: datetime, reason: GapReason
) -> Statement:
    """Return the statement that dockbell was blind for a while; versions that came and went meanwhile have no event.

    Args:
        feed: Where.
        detected_at: Our time when it could see again.
        began_at: Until when it had seen everything; None where that is unknown.
        ended_at: From when on it sees again.
        reason: Why.
    """
    begin = None if began_at is None else format_moment(began_at)
    details = {"from": begin, "to": format_moment(ended_at), "reason": str(reason)}
    return Statement(feed, StatementKind.GAP, detected_at, details)


def rebaselined(feed: Feed, detected_at: datetime, parts: Sequence[str]) -> Statement:
    """Return the statement that a feed is read differently from now on, and that what this changed has no event.

    Args:
        feed: Which.
        detected_at: Our time when the new way began.
        parts: What differs, by its names in the configuration: ``query``, ``expand``, ``base_url`` …
    """
    return Statement(feed, StatementKind.REBASELINED, detected_at, {"parts": list(parts)})


def held(
    feed: Feed, detected_at: datetime, *, reason: HoldReason, count: int, since: datetime, paths: Sequence[str] = ()
) -> Statement:
    """Return the statement that changes wait for an operator.

    Args:
        feed: Where.
        detected_at: Our time now.
        reason: Why.
        count: How many records wait.
        since: Our time when the first of them began to.
        paths: The pointers that changed, where that is the reason.
    """
    details: dict[str, object] = {"reason": str(reason), "count": count}
    if paths:
        details["paths"] = list(paths)
    details["since"] = format_moment(since)
    return Statement(feed, StatementKind.HELD, detected_at, details)
