"""Whether the polls of one feed would show the changes of another: what can be told of that in one sitting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dockbell.core.model import JSON
from dockbell.core.reading.embedding import Pair
from dockbell.core.reading.movements import Movements
from dockbell.core.reading.signal_state import CHANGES_LEAST, Evidence, SignalState

_BEYOND = timedelta(minutes=1)


class SignalFound(msgspec.Struct, frozen=True):
    """What two readings of a feed, and one of what its carrier calls modified since the first, have shown."""

    pair: Pair
    evidence: Evidence
    equal: int = 0  # embedded records that are as in their own list
    differing: int = 0

    @property
    def is_usable(self) -> bool:
        return self.evidence.holds and self.equal > 0 and not self.differing

    @property
    def is_told(self) -> bool:
        return self.evidence.changes >= CHANGES_LEAST

    def describe(self) -> str:
        """Return what was found, in a sentence."""
        known, pair = self.evidence, self.pair
        words = f"updated_at of {pair.carrier} changed with {known.moved} of {known.changes} changes of {pair.target}"
        words += f", and with {known.moved_idle} of {known.idle} records that had not changed"
        if self.equal or self.differing:
            compared = self.equal + self.differing
            words += f"; {self.equal} of {compared} embedded records matched their own list"
        if not self.is_told:
            words += f"; {CHANGES_LEAST} changes are needed: probe with a longer --apart, or leave it to the daemon"
        return words


def find_signal(
    pair: Pair,
    readings: tuple[Mapping[str, JSON], Mapping[str, JSON]],
    carriers: Sequence[JSON],
    span: tuple[datetime, datetime],
    *,
    is_changed: Callable[[JSON, JSON], bool],
    key: Callable[[JSON], str | None],
) -> SignalFound:
    """Put together what was read.

    Args:
        pair: The two resources.
        readings: The target's records by key, read twice.
        carriers: What the carrier calls modified since the first reading, with the target's records embedded.
        span: The service's times of the two readings.
        is_changed: Tells whether a record had changed between the two.
        key: Returns the key of an embedded record; None where it has none.
    """
    before, after = readings
    since, until = span
    movements = Movements(pair)
    movements.read(since, since)
    for carrier in carriers:
        movements.move(carrier, until)
    common = [text for text in before if text in after]
    for text in sorted(common, key=lambda text: not is_changed(before[text], after[text])):  # the changed ones first
        movements.expect(after[text], since, until, is_changed=is_changed(before[text], after[text]))
    state = SignalState().measure(movements.read(until + _BEYOND, since))
    equal = differing = 0
    for carrier in carriers:
        for record in _list_embedded(carrier):
            known = after.get(key(record) or "")
            if known is not None and not is_changed(known, record):
                equal, differing = equal + (known == record), differing + (known != record)
    return SignalFound(pair, state.best, equal, differing)


def _list_embedded(carrier: JSON) -> list[JSON]:
    found = []
    for member in carrier.values() if isinstance(carrier, dict) else ():
        found += member if isinstance(member, list) else [member]
    return [record for record in found if isinstance(record, dict)]
