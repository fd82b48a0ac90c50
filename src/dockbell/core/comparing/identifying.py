"""Identifies the records of a page by their keys, and takes out those whose keys are bad.

A record without a usable key, one that cannot be read, and two different records with one key go into quarantine
(:class:`~dockbell.core.comparing.page_diff.Bad`); the other records of the page are compared as always. A page on which
keys stand twice is refused first (:class:`~dockbell.core.comparing.page_diff.Collision`), because another request may
show it sound, or because it proves that the key was learned wrongly.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from dockbell.core.comparing.candidate import Sighting
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.page_diff import (
    DIGEST_SIZE,
    Bad,
    Collision,
    Snapshots,
)
from dockbell.core.comparing.read_context import ReadContext
from dockbell.core.comparing.record_identity import RecordIdentity
from dockbell.core.document import decode
from dockbell.core.key import key_of
from dockbell.core.model import Page

_DOUBLED: Final = "key {}: stands twice on one page with different content"
_DOUBLED_MOST: Final = 3
_DOUBLED_SHARE: Final = 0.25
"""So many doubled keys on a page, or this share of its records, prove that the key was learned wrongly."""


class Identified(NamedTuple):
    """The records of a page.

    Attributes:
        sightings: By key string; without text where the record cannot be read, or its key is doubled.
        bad: Those that go into quarantine.
    """

    sightings: dict[str, Sighting]
    bad: list[Bad]

    @property
    def doubled(self) -> dict[bytes, str]:
        """The problems of the doubled keys, by the digests of their quarantine."""
        return {bad.digest: bad.problem for bad in self.bad if bad.problem == _DOUBLED.format(bad.key)}


def identify_records(page: Page, identity: RecordIdentity, canon: Canon) -> Identified:
    """Return the records of a page by their keys."""
    sightings: dict[str, Sighting] = {}
    bads: list[Bad] = []
    for index, raw in enumerate(page.records):
        head, problem = identity.salvage_head(raw, page.unsound.get(index))
        try:
            key = key_of(head, identity.key)
        except ValueError as error:
            bads.append(_bad_without_key(raw, canon, f"record {index + 1} of the page: {problem or error}"))
            continue
        if problem:
            bad = bad_with_key(raw, key.text, problem)
            if bad in bads:
                continue
            bads.append(bad)
        first = sightings.get(key.text)
        if first is None:  # a record that cannot be read is seen all the same
            sightings[key.text] = Sighting(key, None if problem else raw, head)
        elif first.raw != raw and (first.raw is None or not _states_same(first.raw, raw, canon)):
            sightings[key.text] = Sighting(key, None, head)
            bads += [_bad_doubled(each, key.text) for each in (first.raw, raw) if each is not None]
    return Identified(sightings, bads)


def check_doubled(
    identified: Identified, page: Page, context: ReadContext, snapshots: Snapshots, *, is_key_learned: bool
) -> None:
    """Refuse a page with doubled keys, unless another request is of no use; then they stay in quarantine.

    Raises:
        Collision: Keys are doubled that were not before; or so many that a learned key is proven wrong.
    """
    doubled = identified.doubled
    if not doubled:
        return
    is_many = is_key_learned and len(doubled) > max(_DOUBLED_MOST, len(page.records) * _DOUBLED_SHARE)
    is_new = context.may_ask_again and not doubled.keys() <= set(snapshots.quarantined(list(doubled)))
    if is_many or is_new:
        raise Collision(next(iter(doubled.values())))


def bad_with_key(raw: bytes, key: str, problem: str) -> Bad:
    """Return a bad record that is known by its key, whatever its content."""
    return _bad(raw, key, f"key {key}: {problem}")


def _bad_doubled(raw: bytes, key: str) -> Bad:
    return _bad(raw, key, _DOUBLED.format(key))


def _bad(raw: bytes, key: str, problem: str) -> Bad:
    return Bad(blake2b(key.encode(), digest_size=DIGEST_SIZE).digest(), key, problem, raw)


def _bad_without_key(raw: bytes, canon: Canon, problem: str) -> Bad:
    """Return a bad record that is known by its content, however its text is written."""
    try:
        content = canon.fingerprint(decode(raw))
    except ValueError:
        content = raw
    return Bad(blake2b(content, digest_size=DIGEST_SIZE).digest(), "", problem, raw)


def _states_same(one: bytes, other: bytes, canon: Canon) -> bool:
    try:
        return canon.fingerprint(decode(one)) == canon.fingerprint(decode(other))
    except ValueError:
        return False
