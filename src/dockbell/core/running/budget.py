"""The budget: when the next request of a key may be sent (docs/guarantees.md).

Three bounds, and the strictest counts:

- *Ours.* Never more than ``share`` of the limit in any 60 s of the service. It counts a request when it arrives, which
  is somewhere between our sending it and its answer; so a request occupies a place from the one until 60 s after the
  other. Whatever the round trips are and wherever the service's windows begin, no window holds more than the places.
- *Told.* Of ``x-ratelimit-remaining`` we leave to others what ``share`` leaves them, or what they will need until
  ``x-ratelimit-reset`` if they go on as they did in this window, whichever is more. What is told lapses at the reset.
- *Paced.* Pass pages and trailing polls are spread over what the urgent ones leave, with a little kept free. Polls may
  burst: they find the room that pacing left them.

Times are read from a monotonic clock, as the time since its origin: a step of the wall clock changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from dockbell.core.model import Allowance, Urgency

ZERO: Final = timedelta(0)
WINDOW: Final = timedelta(seconds=60)
"""The span in which the service counts (api-spec.md, "Limits")."""

_GRAIN: Final = timedelta(seconds=0.5)
# A grain is dropped when its youngest request is at least half a second older than the window: for clocks that differ.
_GRAINS_KEPT: Final = WINDOW // _GRAIN + 2
_SPAN: Final = _GRAIN * _GRAINS_KEPT
# A window that was told for this long without moving is a fixed one; others (reset = now + 60 s) cannot be spread over.
_STEADY: Final = timedelta(seconds=3)
_RESET_JITTER: Final = timedelta(seconds=1.5)

DECLARED_SPAN: Final = timedelta(seconds=10)
"""The spans of the past minute of which a process says what it spent."""
_STEPS: Final = 32
"""What is declared is rounded up to a part of the budget: who asks seldom declares the same most of the time."""
_AHEAD_PART: Final = 8
_AHEAD_LEAST: Final = 24
_AHEAD_LEAST_PART: Final = 4
"""Until the next declaration a process may spend an eighth of what it is allowed in a minute; of a small budget so many
requests, or a quarter."""

_PACED: Final = frozenset({Urgency.PASS, Urgency.TRAILING})
_PLANNED: Final = frozenset({Urgency.POLL, Urgency.PASS})
# What others use shows in the difference of two figures: over a shorter time it would be chance.
_FOREIGN_KEPT: Final = 2  # minutes
_FOREIGN_SPAN: Final = timedelta(seconds=10)


class Usage(msgspec.Struct, frozen=True):
    """How a budget stands."""

    used: int  # our own requests within the last minute, those under way included
    allowed: int  # the most that we allow ourselves in a minute
    limit: int
    remaining: int | None
    """What the API last said is left of its window; None when it said nothing, or the window is over."""
    resets_in: timedelta | None


class Load(msgspec.Struct, frozen=True):
    """What a planner must know of a budget."""

    limit: int  # in a minute, of all users of the key: ours, or the API's where that is lower
    allowed: int  # the most of it that we allow ourselves
    foreign: float  # requests a second of others with this key, as far as the API's figures tell
    beside: int  # requests so far that were neither polls nor pages of passes
    pauses: int  # so often the API asked for a pause (429)


class _Told(msgspec.Struct, frozen=True):
    """What the last answer said of the service's window, and what it had said of this window first."""

    remaining: int
    kept: int  # so many of them are left to others
    resets_at: timedelta
    since: timedelta
    first_reset: timedelta
    first_used: int
    first_answers: int


class Budget:
    """Decides when the next request may be sent; ask with :meth:`admit`, then say what was done.

    Every :meth:`spent` is followed by one :meth:`answered` with the same urgency, whatever became of the request.
    """

    def __init__(self, requests_per_minute: int, share: float = 1.0) -> None:
        if requests_per_minute < 1 or not 0 < share <= 1:
            raise ValueError(
                f"budget: {requests_per_minute} requests a minute shared at {share}; at least 1, and 0 to 1"
            )
        self.limit = requests_per_minute
        self._share = share
        self.allowed = _part(requests_per_minute, share)
        self._free = self.allowed // 50
        self._urgent = _Places()
        self._paced = _Places()
        self._pacer: timedelta | None = None
        self._answers = 0
        self._told: _Told | None = None
        self._paused_until = ZERO
        self._beside = 0
        self._pauses = 0
        self._foreign = 0.0  # requests a second
        self._foreign_at = ZERO  # when that was found out
        self._told_first: timedelta | None = None
        self._told_limit = requests_per_minute
        self._ahead: int | None = None  # how many requests were declared that are not sent yet; None: it is alone
        self._promised = (0, 0)  # how many were declared last, and how many had been sent by then
        self._was_idle = False  # no request was under way then
        self._stands = False
        self._sent = 0

    def declare(self, now: timedelta) -> tuple[int, ...]:
        """Return what may be spent until this is called again, then what was spent in the past minute.

        The past minute is in spans of ten seconds, the latest first. Who takes over after a crash counts all of it as
        spent (:meth:`assume`), so that both together stay within the budget. It holds once it is stored
        (:meth:`confirm`).
        """
        least = min(_AHEAD_LEAST, self.allowed // _AHEAD_LEAST_PART)
        self._promised = max(1, least, self.allowed // _AHEAD_PART), self._sent
        step, spans, under_way = max(1, self.allowed // _STEPS), self._spans(now), self._under_way()
        self._was_idle = not under_way
        return tuple(-(-count // step) * step for count in (self._promised[0] + under_way, *spans))

    def confirm(self) -> None:
        """Keep to what was declared last: it is stored."""
        ahead, sent = self._promised
        self._ahead = max(0, ahead - (self._sent - sent))
        self._stands = self._was_idle and self._sent == sent

    @property
    def stands(self) -> bool:
        """Whether what was declared last holds until the next request: none was under way, and none was sent since.

        Who takes over knows how old the declaration is, and so how old the requests are of which it tells.
        """
        return self._stands

    def spend_nothing(self) -> None:
        """Spend nothing until something is declared and stored."""
        self._ahead, self._stands = 0, False

    def declare_last(self, now: timedelta) -> tuple[int, ...]:
        """Return the same where nothing more will be spent: who takes over has all that is left."""
        return (self._under_way(), *self._spans(now))

    def _spans(self, now: timedelta) -> list[int]:
        spans = [0] * (WINDOW // DECLARED_SPAN)
        for age, count in (*self._urgent.ages(now), *self._paced.ages(now)):
            spans[min(age // DECLARED_SPAN, len(spans) - 1)] += count
        return spans

    def assume(self, declared: Sequence[int], age: timedelta, now: timedelta) -> None:
        """Count as spent what another process has declared ``age`` ago; call it before anything is spent."""
        ahead, *spans = declared or (0,)
        for place, count in reversed([*enumerate(spans)]):
            self._urgent.assume(now - age - place * DECLARED_SPAN, count)
        self._urgent.assume(now, ahead)  # at any time since then

    def inherit(self, before: Budget) -> None:
        """Count the requests of the budget that this one replaces, which has none under way."""
        self._urgent, self._paced, self._answers = before._urgent, before._paced, before._answers
        self._told, self._pacer, self._paused_until = before._told, before._pacer, before._paused_until
        self._foreign, self._foreign_at = before._foreign, before._foreign_at
        self._told_limit, self._told_first = before._told_limit, before._told_first

    def admit(self, now: timedelta, urgency: Urgency = Urgency.POLL) -> timedelta:
        """Return how long to wait before one request of this urgency; zero: it may be sent now.

        An answer to a request under way may shorten the wait: ask again then.
        """
        told = self._current(now)
        room = told.resets_at - now if told and self._room(told) < 1 else ZERO
        wait = max(ZERO, self._paused_until - now, self._wait_for_place(now), room)
        if urgency in _PACED and self._pacer is not None:
            wait = max(wait, self._pacer + self._pace(now) - now)
        return wait

    def spent(self, now: timedelta, urgency: Urgency = Urgency.POLL) -> None:
        self._beside += urgency not in _PLANNED
        self._sent += 1
        self._stands = False
        if self._ahead:
            self._ahead -= 1
        if urgency not in _PACED:
            self._urgent.enter()
            return
        pace = self._pace(now)
        # From when it was due, not from when it was sent: small delays must not add up.
        self._pacer = now if self._pacer is None else max(self._pacer + pace, now - pace)
        self._paced.enter()

    def answered(self, now: timedelta, urgency: Urgency = Urgency.POLL) -> None:
        (self._paced if urgency in _PACED else self._urgent).settle(now)
        self._answers += 1

    def learned(self, allowance: Allowance, now: timedelta) -> None:
        resets_at = now + min(max(allowance.resets_in, ZERO), WINDOW)
        used = allowance.limit - allowance.remaining
        told = self._told
        self._told_limit = allowance.limit
        self._told_first = now if self._told_first is None else self._told_first
        is_sliding = told is not None and _RESET_JITTER < resets_at - told.first_reset < WINDOW / 2
        if is_sliding and now - self._told_first > _SPAN:  # before that it counts what another process of ours asked
            self._note_foreign(max(0, used - self._count(now) + self._under_way()) / WINDOW.total_seconds(), now)
        if told is None or abs(resets_at - told.first_reset) > _RESET_JITTER:
            told = _Told(0, 0, resets_at, now, first_reset=resets_at, first_used=used, first_answers=self._answers)
        # One less than the share leaves: standing exactly there may be our own full use.
        kept = max(0, allowance.limit - _part(allowance.limit, self._share) - 1)
        if now - told.since >= _STEADY:
            ours = self._answers - told.first_answers + self._under_way()
            foreign = max(0, used - told.first_used - ours)
            kept = max(kept, round(foreign * (resets_at - now) / (now - told.since)))
            if now - told.since >= _FOREIGN_SPAN:
                self._note_foreign(foreign / (now - told.since).total_seconds(), now)
        self._told = replace(told, remaining=allowance.remaining, kept=kept, resets_at=resets_at)

    def pause(self, delay: timedelta, now: timedelta) -> None:
        """Send nothing for a while: the API asked for it (429)."""
        self._paused_until = max(self._paused_until, now + delay)
        self._pauses += 1

    def load(self, now: timedelta) -> Load:
        limit = min(self.limit, self._told_limit)
        # What was found out long ago is forgotten: who asks too seldom to find it out anew must ask more often.
        foreign = self._foreign * 0.5 ** max(0.0, (now - self._foreign_at) / WINDOW - _FOREIGN_KEPT)
        return Load(limit, _part(limit, self._share), foreign, self._beside, self._pauses)

    def usage(self, now: timedelta) -> Usage:
        told = self._current(now)
        return Usage(
            used=self._count(now),
            allowed=self.allowed,
            limit=self.limit,
            remaining=told.remaining if told else None,
            resets_in=told.resets_at - now if told else None,
        )

    def _note_foreign(self, foreign: float, now: timedelta) -> None:
        self._foreign, self._foreign_at = foreign, now

    def _wait_for_place(self, now: timedelta) -> timedelta:
        if self._count(now) < self.allowed:
            return _GRAIN if self._ahead == 0 else ZERO
        frees = [at for at in (self._urgent.frees_at(), self._paced.frees_at()) if at is not None]
        return min(frees) - now if frees else _GRAIN

    def _pace(self, now: timedelta) -> timedelta:
        """Return the distance of paced requests: what is left of the span over what the urgent ones leave of it."""
        pace = _SPAN / max(1, self.allowed - self._free - self._urgent.count(now))
        told = self._current(now)
        if told and now - told.since >= _STEADY:
            pace = max(pace, (told.resets_at - now) / max(1, self._room(told) - self._free))
        return pace

    def _room(self, told: _Told) -> int:
        """Return how many requests the API still has for us, those under way counted as not yet in its figure."""
        return told.remaining - self._under_way() - told.kept

    def _count(self, now: timedelta) -> int:
        return self._urgent.count(now) + self._paced.count(now)

    def _under_way(self) -> int:
        return self._urgent.under_way + self._paced.under_way

    def _current(self, now: timedelta) -> _Told | None:
        return self._told if self._told and now < self._told.resets_at else None


class _Places:
    """Requests that the service may have counted within the last window, in grains: memory does not grow with them."""

    def __init__(self) -> None:
        self.under_way = 0
        self._settled = 0
        self._grains: list[tuple[int, int]] = []  # number of the grain, requests answered in it

    def enter(self) -> None:
        self.under_way += 1

    def settle(self, now: timedelta) -> None:
        self.under_way -= 1
        self._settled += 1
        grain = now // _GRAIN
        last = self._grains.pop() if self._grains and self._grains[-1][0] == grain else (grain, 0)
        self._grains.append((grain, last[1] + 1))

    def assume(self, at: timedelta, count: int) -> None:
        """Count requests as answered at a time, after those of all earlier times."""
        if count:
            self._settled += count
            self._grains.append((at // _GRAIN, count))

    def ages(self, now: timedelta) -> Iterator[tuple[timedelta, int]]:
        """Yield how long ago requests were answered, and how many."""
        for grain, count in self._grains:
            if (age := now - (grain + 1) * _GRAIN) < _SPAN:
                yield max(ZERO, age), count

    def count(self, now: timedelta) -> int:
        oldest = now // _GRAIN - _GRAINS_KEPT
        while self._grains and self._grains[0][0] <= oldest:
            self._settled -= self._grains.pop(0)[1]
        return self._settled + self.under_way

    def frees_at(self) -> timedelta | None:
        return (self._grains[0][0] + _GRAINS_KEPT) * _GRAIN if self._grains else None


def _part(limit: int, share: float) -> int:
    """Return the whole requests in a share of a limit, at least one; 0.29 of 100 is 29, whatever floats say."""
    return max(1, int(limit * share + 1e-9))
