"""How long ago something happened whose time was noted by our clock, though that clock was set since."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

import msgspec
from msgspec.structs import replace

_PARTED: Final = timedelta(seconds=2)
_NONE: Final = timedelta(0)


class _Stretch(msgspec.Struct, frozen=True):
    """A time in which our clock was not set."""

    first: datetime  # when it began, by our clock, or a little earlier
    last: datetime  # when it ended, by our clock, or a little later
    offset: datetime  # what our clock showed at the origin of the steady one


@dataclass(slots=True)
class Timeline:
    """Both clocks since the process began: ours, which may be set, and the monotonic one.

    It must be shown the clocks often: what was noted between two looks is taken for younger where that is not clear.
    """

    _stretches: list[_Stretch] = field(default_factory=list)
    _steady: timedelta = _NONE
    _began: timedelta = _NONE

    @classmethod
    def begin(cls, now: datetime, steady: timedelta) -> Self:
        timeline = cls()
        timeline.look(now, steady)
        return timeline

    def look(self, now: datetime, steady: timedelta) -> None:
        offset = now - steady
        if not self._stretches:
            self._stretches, self._began = [_Stretch(now, now, offset)], steady
        elif abs(offset - self._stretches[-1].offset) <= _PARTED:
            self._stretches[-1] = replace(self._stretches[-1], last=max(now, self._stretches[-1].last))
        else:
            passed = steady - self._steady
            self._stretches[-1] = replace(self._stretches[-1], last=self._stretches[-1].last + passed)
            self._stretches.append(_Stretch(now - passed, now, offset))
        self._steady = steady

    def knows(self, noted: datetime) -> bool:
        return self._find(noted) is not None

    def age(self, noted: datetime) -> timedelta:
        """Return how long before the last look our clock showed this; of several times it is the latest.

        Of a time before the process began our clock alone tells; where it lies ahead, it is as old as the process.
        """
        stretch = self._find(noted)
        if stretch is not None:
            return max(self._steady - (noted - stretch.offset), _NONE)
        began = self._stretches[0]
        return self._steady - min(noted - began.offset, self._began)

    def _find(self, noted: datetime) -> _Stretch | None:
        return next((each for each in reversed(self._stretches) if each.first <= noted <= each.last), None)
