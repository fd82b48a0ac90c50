"""How the records of a feed are told apart, dated and compared, by its configuration and by what was learned."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dockbell.config import ResourceSettings
from dockbell.config.values import find_taken
from dockbell.core.comparing.canon import Canon
from dockbell.core.comparing.change_detector import ChangeDetector
from dockbell.core.document import decode
from dockbell.core.model import JSON, RESOURCES, Feed
from dockbell.core.publishing.erasure import Erasure
from dockbell.core.reading.shape import Shape, ShapeUnknown, describe_read_settings, learn_shape
from dockbell.errors import SchemaMismatch


def decode_sound(records: Sequence[bytes]) -> list[JSON]:
    """Return the records that can be read; the comparison puts the others in quarantine."""
    documents = []
    for raw in records:
        with suppress(ValueError):
            documents.append(decode(raw))
    return documents


def learn_from(feed: Feed, settings: ResourceSettings, records: Sequence[bytes]) -> Shape:
    """Learn from the records of a page what identifies and dates them.

    Raises:
        SchemaMismatch: Nothing identifies them.
    """
    singular, known = RESOURCES[feed.resource].singular, decode_sound(records)
    try:
        return learn_shape(singular, known, key=settings.key, updated_at=settings.updated_at)
    except ShapeUnknown as error:
        raise _mismatch(feed, f"{error}; set key in") from error


def check_drop(feed: Feed, settings: ResourceSettings, shape: Shape) -> None:
    """Refuse to remove from records what was learned to tell them apart, or to date them.

    Raises:
        SchemaMismatch: ``drop`` would.
    """
    for place in (*(settings.key or shape.key), settings.updated_at or shape.updated_at, shape.created_at):
        if place is not None and (taken := find_taken(settings.drop, place)) is not None:
            raise _mismatch(feed, f'{place} identifies or dates the records, got drop = ["{taken}"]; remove it in')


def key_collides(feed: Feed, shape: Shape | None, collision: str, records: str) -> SchemaMismatch:
    """Return the error of a learned key that stands for different records."""
    key = "the learned key" if shape is None else " with ".join(shape.key)
    return _mismatch(feed, f"{collision}, so {key} does not tell {records} apart; set key in")


def describe(settings: ResourceSettings, base_url: str, shape: Shape | None) -> dict[str, object]:
    """Return how a feed is read; where this changes, what is stored is no base for comparisons."""
    return describe_read_settings(
        base_url=base_url,
        key=settings.key or (None if shape is None else shape.key),
        updated_at=settings.updated_at or (None if shape is None else shape.updated_at),
        query=settings.query,
        expand=settings.expand,
        detail=settings.detail,
        ignore=settings.ignore,
        unordered=settings.unordered,
        drop=settings.drop,
    )


def make_detector(feed: Feed, settings: ResourceSettings, shape: Shape, erasure: Erasure | None) -> ChangeDetector:
    """Return what compares records; what is dropped is ignored too, since stored records may still hold it."""
    updated_at = settings.updated_at or shape.updated_at
    return ChangeDetector(
        feed,
        key=settings.key or shape.key,
        updated_at=updated_at,
        created_at=shape.created_at,
        canon=Canon(ignore=(*settings.ignore, *settings.drop), unordered=settings.unordered, updated_at=updated_at),
        learned=settings.key is None,
        detail=settings.detail,
        touch=settings.touch,
        clean=None if erasure is None else erasure.record,
    )


def _mismatch(feed: Feed, words: str) -> SchemaMismatch:
    return SchemaMismatch(f'resource "{feed.resource}": {words} [resources.{feed.resource}]')
