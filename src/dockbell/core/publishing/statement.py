"""Statements about a feed, each with its shape; ``event.schema.json`` describes the same from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from dockbell.core.counting import list_of
from dockbell.core.key import encode
from dockbell.core.model import JSON, ChangeKind, Feed, NoticeKind, Statement, StatementKind
from dockbell.core.moment import format_moment, write_moment

FOUND: Final = (ChangeKind.CREATED, ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.RESTORED)
"""The changes that a certificate counts."""


def notice_key(kind: NoticeKind, subject: str, name: str) -> str:
    """Return the key of the notices of one alert, and of its end.

    The end is delivered after the alert, and no other alert waits for them.
    """
    return encode([kind, subject, name])


class GapReason(StrEnum):
    """Why dockbell was blind."""

    DOWN = "down"  # it did not run
    REFUSED = "refused"  # the API did not accept the key
    UNAVAILABLE = "unavailable"  # the API gave no usable answer
    NO_BUDGET = "no_budget"  # others used the key's requests up
    STORE_UNAVAILABLE = "store_unavailable"  # the store could not be written: a full disk
    STORE_LOST = "store_lost"  # the store is lost, or was restored from a backup
    OVERRUN = "overrun"  # of one sink only: it took nothing for so long that its events were dropped


GAP_WORDS: Final[Mapping[str, str]] = {
    GapReason.DOWN: "dockbell did not run",
    GapReason.REFUSED: "the API refused the requests",
    GapReason.UNAVAILABLE: "the API did not answer",
    GapReason.NO_BUDGET: "the budget of the key was used up",
    GapReason.STORE_UNAVAILABLE: "the store could not be written",
    GapReason.STORE_LOST: "the store was lost, or restored from a backup",
    GapReason.OVERRUN: "the sink accepted nothing for too long",
}
"""What people read of the reasons."""


class HoldReason(StrEnum):
    """Why changes wait for an operator."""

    DELETIONS = "deletions"  # too many at once
    DRIFT = "drift"  # the same places changed in too many records at once


class PassVerdict(StrEnum):
    """The result of a complete pass for the stored snapshots."""

    EQUAL = "equal"  # they were as the API lists them
    REPAIRED = "repaired"  # they were not, and are now
    DOUBTFUL = "doubtful"  # some records could not be compared, or wait to be confirmed or approved


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a complete pass; its times are the API's: of its first request, and of its last answer."""

    began_at: datetime
    ended_at: datetime
    pages: int
    records: int
    found: Mapping[ChangeKind, int] = msgspec.field(default_factory=dict)  # how many changes it found, by kind
    missed: int  # how many of them the polls should have shown, and did not
    held: int = 0  # how many readings of the feed's records are held, as stale or as drift, whichever run held them
    quarantined: int = 0  # how many records it could not read or tell apart
    digest: str  # hash of all keys and fingerprints after it, in hexadecimal
    verdict: PassVerdict


def reconciled(feed: Feed, detected_at: datetime, certificate: Certificate) -> Statement:
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

    ``detected_at`` is our time when it could see again. It had seen everything until ``began_at``; None where that is
    unknown.
    """
    details = {"from": write_moment(began_at), "to": format_moment(ended_at), "reason": str(reason)}
    return Statement(feed, StatementKind.GAP, detected_at, details)


def describe_gap(*gaps: Mapping[str, JSON], feeds: Sequence[str] = ()) -> str:
    """Return from when until when one feed, or those that are named, was not read, and why, by details of gaps."""
    began = [details["from"] for details in gaps]
    since = "an unknown time" if None in began else _write_second(min(began))
    until = _write_second(max(details["to"] for details in gaps))
    reasons = list_of(dict.fromkeys(GAP_WORDS[details["reason"]] for details in gaps))
    which = f"{list_of(feeds)} {'were' if len(feeds) > 1 else 'was'}" if feeds else "was"
    return f"{which} not read from {since} to {until}: {reasons}"


def _write_second(moment: str) -> str:
    return f"{moment[:19].replace('T', ' ')}Z"


def rebaselined(feed: Feed, detected_at: datetime, parts: Sequence[str]) -> Statement:
    """Return the statement that a feed is read differently, without events; ``parts`` as configured."""
    return Statement(feed, StatementKind.REBASELINED, detected_at, {"parts": list(parts)})


def held(
    feed: Feed, detected_at: datetime, *, reason: HoldReason, count: int, since: datetime, paths: Sequence[str] = ()
) -> Statement:
    """Return the statement that records wait for an operator; ``paths`` changed, where that is the reason."""
    details: dict[str, object] = {"reason": str(reason), "count": count}
    if paths:
        details["paths"] = list(paths)
    details["since"] = format_moment(since)
    return Statement(feed, StatementKind.HELD, detected_at, details)
