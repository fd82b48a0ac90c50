"""Who is connected, and who has to leave so that others can be answered. Pure.

There are so many places. When they are taken, or half of them by one address, whoever comes takes the place of somebody
who does nothing there: first of those who were refused what they asked for, then of those who have not said yet all of
what they want, then of those who have been answered, and at last of those who do not take what they are sent. Where
nobody is idle, there are some spare places, in which only probes are answered, and others are told to come again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, Protocol

CONNECTIONS_MOST: Final = 500
"""There are never more places."""


class Standing(IntEnum):
    """What somebody does who is connected; who has to leave first stands first."""

    REFUSED = 0  # was told that it may not
    SILENT = 1  # has not said all of what it wants
    IDLE = 2  # was answered
    BUSY = 3  # is being answered


class Guest(Protocol):
    """Somebody who is connected."""

    @property
    def address(self) -> str:
        """The address that it comes from."""
        ...

    @property
    def network(self) -> str:
        """What stands for all addresses of whoever has this one."""
        ...

    @property
    def takes_its_time(self) -> bool:
        """Whether there is something that it could take, and it has not taken any for a while."""
        ...

    @property
    def has_all(self) -> bool:
        """Whether it has taken all that it was sent."""
        ...

    def hang_up(self) -> None:
        """End the connection at once."""
        ...


def count_places(descriptors: int) -> tuple[int, int]:
    """Return how many places and how many spare ones there are; others keep more than half of the file descriptors."""
    places = max(1, min(CONNECTIONS_MOST, descriptors * 3 // 8))
    return places, max(4, places // 8)


class Crowd:
    """All who are connected.

    Attributes:
        count: How many were sent away, or had to leave, until now.
        last: The address of the last of them.

    Args:
        places: How many are answered at a time.
        spare: How many more may be there.
        stands_for_many: Whether an address is a proxy's, who may take as many places as there are.
        note: Is called when somebody was sent away.
    """

    def __init__(
        self,
        places: int,
        spare: int,
        *,
        stands_for_many: Callable[[str], bool] = lambda _: False,
        note: Callable[[], None] = lambda: None,
    ) -> None:
        self.places = places
        self.spare = spare
        self.count = 0
        self.last = ""
        self._stands_for_many = stands_for_many
        self._note = note
        self._seated: dict[Standing, dict[Guest, None]] = {standing: {} for standing in Standing}
        self._standing: dict[Guest, Standing] = {}
        self._spare: dict[Guest, None] = {}
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._standing) + len(self._spare)

    def enter(self, guest: Guest) -> bool:
        """Give somebody a place, or a spare one; return whether it is a place."""
        network = guest.network
        is_many = self._taken[network] >= max(1, self.places // 2) and not self._stands_for_many(guest.address)
        if (is_many and not self._make_room(network)) or (
            len(self._standing) >= self.places and not self._make_room(None)
        ):
            self.send_away(guest.address)
            if len(self._spare) >= self.spare:
                oldest = next(iter(self._spare))
                self.leave(oldest)
                oldest.hang_up()
            self._spare[guest] = None
            return False
        self._taken[network] += 1
        self._standing[guest] = Standing.SILENT
        self._seated[Standing.SILENT][guest] = None
        return True

    def turn(self, guest: Guest, standing: Standing) -> None:
        """Note what somebody does now."""
        before = self._standing.get(guest)
        if before is not None and before is not standing:
            del self._seated[before][guest]
            self._seated[standing][guest] = None
            self._standing[guest] = standing

    def leave(self, guest: Guest) -> None:
        """Note that somebody is gone."""
        self._spare.pop(guest, None)
        standing = self._standing.pop(guest, None)
        if standing is not None:
            del self._seated[standing][guest]
            self._taken[guest.network] -= 1
            if not self._taken[guest.network]:
                del self._taken[guest.network]

    def send_away(self, address: str) -> None:
        """Note that somebody was not let in, or had to leave."""
        self.count += 1
        self.last = address
        self._note()

    def relieve(self) -> None:
        """Hang up on all who do not take what they are sent: what waits for them is in the way of others."""
        for guest in [guest for guest in self._standing if guest.takes_its_time]:
            self._end(guest)

    def _make_room(self, network: str | None) -> bool:
        """Hang up on somebody who is idle, of one network where it is given; return whether there was anybody."""
        guest = next((guest for guest in self._find_idle() if network in (None, guest.network)), None)
        if guest is not None:
            self._end(guest)
        return guest is not None

    def _find_idle(self) -> Iterator[Guest]:
        for standing in (Standing.REFUSED, Standing.SILENT, Standing.IDLE):
            yield from (guest for guest in self._seated[standing] if guest.has_all)
        yield from (guest for guest in self._standing if guest.takes_its_time)

    def _end(self, guest: Guest) -> None:
        self.leave(guest)
        self.send_away(guest.address)
        guest.hang_up()
