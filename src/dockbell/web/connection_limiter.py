"""Limits how many clients are connected, and picks the connection that is closed for a new one. Pure.

The number of connections is limited, and one network may have half of them. At the limit a new client replaces one that
is not being answered: first one that was refused, then one that has not sent its whole request, then one that was
answered, and at last one that does not read what it is sent. Where none can be replaced, the client takes a connection
of the reserve: it is answered there if it is a probe, else it is told to come again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, Protocol

CONNECTIONS_MOST: Final = 500
"""The limit is never higher."""


class Activity(IntEnum):
    """What a client does, in the order in which clients are replaced."""

    REFUSED = 0  # got 401, 429 or 503
    SILENT = 1  # has not sent its whole request
    IDLE = 2  # was answered
    BUSY = 3  # is being answered


class Client(Protocol):
    """A client that is connected."""

    @property
    def address(self) -> str:
        """The address that it connects from."""
        ...

    @property
    def network(self) -> str:
        """The network that its address counts for: an owner of one IPv6 address has all of its network."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Whether it has left bytes unread for a while."""
        ...

    @property
    def has_taken_all(self) -> bool:
        """Whether it has read all bytes that it was sent."""
        ...

    def abort(self) -> None:
        """End the connection at once."""
        ...


def count_connections(descriptors: int) -> tuple[int, int]:
    """Return the limit and the reserve; more than half of the file descriptors are left to the rest of the process."""
    limit = max(1, min(CONNECTIONS_MOST, descriptors * 3 // 8))
    return limit, max(4, limit // 8)


class ConnectionLimiter:
    """The clients that are connected.

    Attributes:
        refusals: How many clients were refused or replaced until now.
        last_refused: The address of the last of them.

    Args:
        limit: How many clients are answered at a time.
        reserve: How many more may be connected.
        is_proxy: Whether an address is a proxy's, which may use the whole limit.
        on_refusal: Is called when a client was refused or replaced.
    """

    def __init__(
        self,
        limit: int,
        reserve: int,
        *,
        is_proxy: Callable[[str], bool] = lambda _: False,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        self.limit = limit
        self.reserve = reserve
        self.refusals = 0
        self.last_refused = ""
        self._is_proxy = is_proxy
        self._on_refusal = on_refusal
        self._by_activity: dict[Activity, dict[Client, None]] = {activity: {} for activity in Activity}
        self._activities: dict[Client, Activity] = {}
        self._reserve: dict[Client, None] = {}
        self._per_network: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._activities) + len(self._reserve)

    def admit(self, client: Client) -> bool:
        """Add a client; return False where it got a connection of the reserve only."""
        if not self._has_room(client):
            self.note_refusal(client.address)
            self._add_to_reserve(client)
            return False
        self._per_network[client.network] += 1
        self._activities[client] = Activity.SILENT
        self._by_activity[Activity.SILENT][client] = None
        return True

    def note_activity(self, client: Client, activity: Activity) -> None:
        """Note what a client does now."""
        before = self._activities.get(client)
        if before is not None and before is not activity:
            del self._by_activity[before][client]
            self._by_activity[activity][client] = None
            self._activities[client] = activity

    def remove(self, client: Client) -> None:
        """Note that a client has disconnected."""
        self._reserve.pop(client, None)
        activity = self._activities.pop(client, None)
        if activity is not None:
            del self._by_activity[activity][client]
            self._per_network[client.network] -= 1
            if not self._per_network[client.network]:
                del self._per_network[client.network]

    def note_refusal(self, address: str) -> None:
        """Note that a client of this address was refused or replaced."""
        self.refusals += 1
        self.last_refused = address
        self._on_refusal()

    def drop_stalled(self) -> None:
        """Disconnect all stalled clients, which frees the memory that their answers hold."""
        for client in [client for client in self._activities if client.is_stalled]:
            self._drop(client)

    def _has_room(self, client: Client) -> bool:
        """Return whether a client may be answered; may replace another for it."""
        has_many = self._per_network[client.network] >= max(1, self.limit // 2) and not self._is_proxy(client.address)
        if has_many and not self._replace(client.network):
            return False
        return len(self._activities) < self.limit or self._replace(None)

    def _add_to_reserve(self, client: Client) -> None:
        """Add a client to the reserve, in place of the oldest one where it is full."""
        if len(self._reserve) >= self.reserve:
            oldest = next(iter(self._reserve))
            self.remove(oldest)
            oldest.abort()
        self._reserve[client] = None

    def _replace(self, network: str | None) -> bool:
        """Disconnect one replaceable client, of a network where it is given; return whether there was one."""
        client = next((client for client in self._find_replaceable() if network in (None, client.network)), None)
        if client is not None:
            self._drop(client)
        return client is not None

    def _find_replaceable(self) -> Iterator[Client]:
        for activity in (Activity.REFUSED, Activity.SILENT, Activity.IDLE):
            yield from (client for client in self._by_activity[activity] if client.has_taken_all)
        yield from (client for client in self._activities if client.is_stalled)

    def _drop(self, client: Client) -> None:
        self.remove(client)
        self.note_refusal(client.address)
        client.abort()
