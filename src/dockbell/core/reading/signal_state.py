"""Whether one feed's polls are a signal for another feed: what was measured, what follows of it, and why.

First it is measured, without a request, how often a carrier's timestamp moves when a record of the target changes, and
how often when none does. Where both speak for it, embedded records are tried: those that did not change must look as
their own list shows them. Then they are used, until one contradicts the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from math import sqrt
from typing import Final, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from dockbell.core.moment import format_moment, from_micros, to_micros
from dockbell.core.reading.embedding import Pair
from dockbell.core.reading.movements import Judged, Link

CHANGES_LEAST: Final = 50
"""So many changes must have been met before anything is concluded."""
EQUAL_LEAST: Final = 500
"""So many embedded records must be as their own list shows them; half of the records where these are fewer."""
DROPPED_FOR: Final = timedelta(days=1)

CONFIRMED_LEAST: Final = 20
"""So many changes must have been embedded before their own list showed them, and as that did."""
_EQUAL_FEWEST: Final = 20
_SURE: Final = 0.95
_QUANTILE: Final = 1.645
"""Of the normal distribution: one time in twenty the true share is below the bound."""
_IDLE_LEAST: Final = 10
_IDLE_SHARE_MOST: Final = 0.2
_COUNTED_MOST: Final = 1000
"""Of more changes the older ones count half."""
_USELESS: Final = 0.5
_TRIED_MOST: Final = 200
"""Of so many changes their own list showed first, while it is tried, some must have been embedded before."""
_LATELY: Final = 200
"""Of more changes since it is used the older ones count half."""


class Phase(StrEnum):
    MEASURING = "measuring"
    TRYING = "trying"
    USED = "used"
    DROPPED = "dropped"


class Evidence(NamedTuple):
    """How often the carrier moved, by one link."""

    moved: int = 0  # with changes of the target
    changes: int = 0
    moved_idle: int = 0  # with records of it that had not changed
    idle: int = 0

    def add(self, *, is_changed: bool, is_moved: bool) -> Evidence:
        if is_changed:
            return self._replace(moved=self.moved + is_moved, changes=self.changes + 1)
        return self._replace(moved_idle=self.moved_idle + is_moved, idle=self.idle + 1)

    def fade(self) -> Evidence:
        return Evidence(*(count // 2 for count in self)) if self.changes > _COUNTED_MOST else self

    @property
    def holds(self) -> bool:
        """Whether the carrier moves with nearly every change, and seldom without one."""
        return (
            self.changes >= CHANGES_LEAST
            and lower_bound(self.moved, self.changes) >= _SURE
            and self.idle >= _IDLE_LEAST
            and self.moved_idle <= _IDLE_SHARE_MOST * self.idle
        )


def lower_bound(hits: int, of: int) -> float:
    """Return the share above which the true one lies, nineteen times in twenty (Wilson's bound)."""
    if of == 0:
        return 0.0
    share, square = hits / of, _QUANTILE**2
    middle = share + square / (2 * of)
    spread = _QUANTILE * sqrt(share * (1 - share) / of + square / (4 * of * of))
    return (middle - spread) / (1 + square / of)


class SignalState(msgspec.Struct, frozen=True):
    """What is known of a signal, and whether it is used; stored with the target's feed."""

    phase: Phase = Phase.MEASURING
    evidence: Mapping[Link, Evidence] = msgspec.field(default_factory=dict)
    equal: int = 0  # embedded records that were as their own list shows them
    confirmed: int = 0  # those of them that were embedded before
    found: int = 0  # changes that the signal showed first lately, since it is used
    missed: int = 0  # changes that it did not show, because their carriers had not moved
    late: int = 0  # changes whose carriers were polled in time, and that their own list showed first all the same
    until: datetime | None = None  # it is dropped until then
    reason: str = ""  # why

    @property
    def best(self) -> Evidence:
        """The evidence of the link that speaks for the signal most."""
        known = self.evidence.values()
        return max(known, key=lambda each: (lower_bound(each.moved, each.changes), each.changes), default=Evidence())

    @property
    def asks(self) -> bool:
        """Whether the carrier's polls ask for embedded records."""
        return self.phase in (Phase.TRYING, Phase.USED)

    def measure(self, records: Iterable[Judged]) -> SignalState:
        """Return what is known after records were judged; where all speaks for it, embedded records are tried next."""
        evidence = dict(self.evidence)
        for judged in records:
            for link, is_moved in judged.moved.items():
                known = evidence.get(link, Evidence()).add(is_changed=judged.is_changed, is_moved=is_moved)
                evidence[link] = known.fade()
        state = replace(self, evidence=evidence)
        return state.try_out() if state.phase is Phase.MEASURING and state.best.holds else state

    def try_out(self) -> SignalState:
        return replace(self, phase=Phase.TRYING, equal=0, confirmed=0, late=0, until=None, reason="")

    def take_equal(self, count: int, records: int, *, confirmed: int = 0) -> SignalState:
        """Return what is known after embedded records were as their list shows them; ``records``: it has so many.

        ``confirmed`` more were embedded before their list showed them.
        """
        state = replace(self, equal=self.equal + count + confirmed, confirmed=self.confirmed + confirmed)
        needed = min(EQUAL_LEAST, max(_EQUAL_FEWEST, records // 2))
        is_proven = state.equal >= needed and state.confirmed >= CONFIRMED_LEAST
        return replace(state, phase=Phase.USED, found=0, missed=0, late=0) if is_proven else state

    def take_late(self, reason: str, now: datetime) -> SignalState:
        """Return what is known after a list showed a change that was not used, while the signal is tried.

        Where the embedded records show nearly none sooner, the signal is dropped for that reason.
        """
        state = replace(self, late=self.late + 1)
        is_vain = state.late >= _TRIED_MOST and state.confirmed < CONFIRMED_LEAST
        return state.drop(reason, now) if is_vain else state

    def count(self, *, found: int = 0, missed: int = 0, late: int = 0, is_configured: bool = False) -> SignalState:
        """Return what is known after changes that the signal showed, or did not.

        Where it does not show most of them first the service does not behave as it did, so that it is measured anew;
        not where the operator has configured it.
        """
        state = replace(self, found=self.found + found, missed=self.missed + missed, late=self.late + late)
        total, unused = state.found + state.missed + state.late, state.missed + state.late
        if total > _LATELY:
            state = replace(state, found=state.found // 2, missed=state.missed // 2, late=state.late // 2)
        is_useless = total >= CHANGES_LEAST and unused > _USELESS * total
        return SignalState() if is_useless and not is_configured else state

    def drop(self, reason: str, now: datetime) -> SignalState:
        """Return what is known after a contradiction: it is not used for a day."""
        return SignalState(Phase.DROPPED, self.evidence, until=now + DROPPED_FOR, reason=reason)

    def wake(self, now: datetime, *, is_configured: bool) -> SignalState:
        """Return the state at a time: what was dropped begins anew, and what is configured is tried at once."""
        is_over = self.until is not None and not now < self.until <= now + DROPPED_FOR
        state = SignalState() if self.phase is Phase.DROPPED and is_over else self
        return state.try_out() if is_configured and state.phase is Phase.MEASURING else state

    def describe(self, pair: Pair) -> str:
        """Return what was found, in a sentence."""
        best = self.best
        subject = f"{pair.carrier}' updated_at moved with {best.moved} of {best.changes} changes of {pair.target}"
        if best.idle:
            subject += f", and with {best.moved_idle} of {best.idle} records that had not changed"
        if not best.changes:
            subject = f"whether {pair.carrier}' updated_at moves with {pair.target} is not known yet"
        words = {
            Phase.MEASURING: f"no signal: {CHANGES_LEAST} changes are needed to tell"
            if best.changes < CHANGES_LEAST
            else "no signal",
            Phase.TRYING: f"tried as a signal, {self.equal} embedded records matched their list,"
            f" {self.confirmed} of them sooner",
            Phase.USED: f"used as a signal, which recently showed {self.found} changes first, {self.late} too late"
            f" and {self.missed} not at all",
            Phase.DROPPED: "no signal"
            + ("" if self.until is None else f" until {format_moment(self.until)}")
            + f": {self.reason}",
        }
        return f"{subject}: {words[self.phase]}"

    def to_json(self) -> str:
        return json.dumps(
            {
                "phase": self.phase,
                "evidence": {link: list(each) for link, each in self.evidence.items()},
                "equal": self.equal,
                "confirmed": self.confirmed,
                "found": self.found,
                "missed": self.missed,
                "late": self.late,
                "until": None if self.until is None else to_micros(self.until),
                "reason": self.reason,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what was stored; nothing where another version wrote it in a form that this one does not know."""
        if not text:
            return cls()
        try:
            known = json.loads(text)
            return cls(
                Phase(known["phase"]),
                {link: Evidence(*counts) for link, counts in known["evidence"].items()},
                known["equal"],
                known["confirmed"],
                known["found"],
                known["missed"],
                known.get("late", 0),  # the first version that stored this had no such count
                None if known["until"] is None else from_micros(known["until"]),
                known["reason"],
            )
        except (ValueError, KeyError, TypeError):
            return cls()
