"""The processes that share one store, as this one sees them: it takes its share of the sources, and hands some over."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import anyio
from anyio import to_thread
from msgspec.structs import replace

from dockbell.core.model import NOTICES, Feed
from dockbell.errors import StoreUnavailable
from dockbell.ports import Claim, Fleet, OutboxBell, Share, Spent, Upgrade
from dockbell.stores.postgres import leases
from dockbell.stores.postgres.configurations import PostgresConfigurations
from dockbell.stores.postgres.holder import Holder
from dockbell.stores.postgres.line import Line
from dockbell.stores.sql.connection import Connection, transaction
from dockbell.stores.sql.lease import Lease

_LOOK_SECONDS: Final = 0.1
_FOLLOW_SECONDS: Final = 0.25
_CLAIMED_FIRST: Final = 25
_CLAIMED_MOST: Final = 500
"""Keys. A process works on the first ones that it has claimed before it claims more: what is due does not wait for what
is not, and is spread over the processes, whichever comes first."""
_MOST_SHARE: Final = 1.1
"""A process claims up to this of its fair share; with more it hands some over, down to the fair share."""


class PostgresFleet(Fleet):
    """Implements the port; ``feed_leases`` are the leases of feeds, which end when their source is handed over."""

    def __init__(
        self, holder: Holder, line: Line, outbox_bell: OutboxBell, feed_leases: MutableMapping[Feed, Lease]
    ) -> None:
        self.slot = holder.slot
        self.processes = 1
        self.leads = False
        self._configurations = PostgresConfigurations(line)
        self._holder = holder
        self._line = line
        self._outbox = outbox_bell
        self._feed_leases = feed_leases
        self._listed: Mapping[str, str] = {}
        self._claimed_at_once = _CLAIMED_FIRST

    @property
    def configurations(self) -> PostgresConfigurations:
        return self._configurations

    async def note_spent(self, spent: Mapping[str, Spent]) -> None:
        await self._line.do(self._note_spent, spent)

    def _note_spent(self, connection: Connection, spent: Mapping[str, Spent]) -> None:
        with transaction(connection):
            leases.note_spent(connection, self._holder.id, spent)

    async def take_share(self, accounts: Mapping[str, str], intervals: Mapping[str, timedelta] | None = None) -> Share:
        accounts = {**accounts, NOTICES.source: NOTICES.source}
        share, ends = await self._line.do(self._take_share, accounts, intervals or {})
        self._listed = accounts
        self.leads = NOTICES.source in share.held
        for feed, end in ends.items():
            self._outbox.announce(feed, end)
        return share

    def _take_share(
        self, connection: Connection, accounts: Mapping[str, str], intervals: Mapping[str, timedelta]
    ) -> tuple[Share, Mapping[Feed, int]]:
        if self._holder.has_lived:
            leases.bury(connection)
        with transaction(connection):
            if self._listed != accounts:
                leases.list_sources(connection, accounts)
            standing = leases.find_standing(connection, self._holder.id)
            claims: Mapping[str, Claim] = {}
            taken_over: frozenset[str] = frozenset()
            has_more = False
            before = standing.own
            if not standing.free:
                self._claimed_at_once = _CLAIMED_FIRST
            else:
                claims, taken_over, has_more = self._claim(connection, standing, accounts, intervals)
                standing = leases.find_standing(connection, self._holder.id)
            taken = standing.own.keys() - before.keys()
            if NOTICES.source in standing.own:
                taken.add(NOTICES.source)  # every process adds to its feed
            ends = leases.load_ends(connection, taken) if taken else {}
        self.processes = max(standing.processes, 1)
        held = frozenset(standing.own)
        surplus = _find_surplus(replace(standing, processes=standing.settled), accounts) - {NOTICES.source}
        return Share(held, surplus, claims, len(taken_over), has_more), ends

    def _claim(
        self,
        connection: Connection,
        standing: leases.Standing,
        accounts: Mapping[str, str],
        intervals: Mapping[str, timedelta],
    ) -> tuple[Mapping[str, Claim], frozenset[str], bool]:
        """Claim what is free.

        Returns:
            What was spent of it, the sources among it that a dead process had, and whether it may claim more at once.
        """
        wanted = {account: intervals.get(account) for account in _list_keys(accounts)}
        room = max(0, _find_most(standing, len(wanted)) - len(_list_keys(standing.own)))
        most = min(room, self._claimed_at_once)
        claims, taken_over = leases.claim(connection, self._holder.id, wanted, most)
        notices, _ = leases.claim(connection, self._holder.id, {NOTICES.source: None}, 1)
        if taken_over:
            leases.count_taken_over(connection, self._holder.id, len(taken_over))
        has_more = len(claims) == most < room
        self._claimed_at_once = _CLAIMED_MOST if has_more else _CLAIMED_FIRST
        return {**claims, **notices}, taken_over, has_more

    async def prepare(self, sources: Collection[str]) -> None:
        await self._line.do(leases.prepare, self._holder.id, sources)

    async def hand_over(self, sources: Collection[str], spent: Mapping[str, Spent]) -> None:
        for feed in [*self._feed_leases]:  # a copy, made at once: threads open feeds of other sources meanwhile
            if feed.source in sources:
                del self._feed_leases[feed]  # who has them next takes them anew, and so does this process later
        await self._line.do(self._hand_over, sources, spent)

    def _hand_over(self, connection: Connection, sources: Collection[str], spent: Mapping[str, Spent]) -> None:
        with transaction(connection):
            leases.note_spent(connection, self._holder.id, spent)
            leases.release(connection, self._holder.id, sources)

    async def finish_upgrade(self) -> Upgrade:
        return await to_thread.run_sync(self._holder.finish_upgrade)

    async def aclose(self) -> None:
        await self._line.aclose()

    async def follow(self) -> None:
        last = 0
        while True:
            await anyio.sleep(_FOLLOW_SECONDS)
            awaited = [feed for feed, count in self._outbox.awaited.items() if count]
            with suppress(StoreUnavailable):  # the writer meets the same and reports it
                newest, ends = await self._line.do(_look_at_others, awaited)
                for feed, end in ends.items():
                    self._outbox.announce(feed, end)
                if newest != last:
                    self._outbox.ring()  # for those who show all events
                last = newest

    async def wait_until_lost(self) -> None:
        while not self._holder.is_lost:  # noqa: ASYNC110  # a thread finds out
            await anyio.sleep(_LOOK_SECONDS)

    @property
    def is_trusted(self) -> bool:
        return self._holder.is_trusted

    async def wait_for_trust(self) -> None:
        while not self._holder.is_trusted:  # noqa: ASYNC110  # a clock decides it
            await anyio.sleep(_LOOK_SECONDS)


def _look_at_others(connection: Connection, awaited: Sequence[Feed]) -> tuple[int, Mapping[Feed, int]]:
    """Return the number of the newest event, and the ends of some feeds."""
    (newest,) = connection.execute("SELECT coalesce(max(entry), 0) FROM events").fetchone()
    ends = leases.load_ends(connection, {feed.source for feed in awaited}) if awaited else {}
    return newest, ends


def _list_keys(accounts: Mapping[str, str]) -> set[str]:
    """Return the API keys of some sources, each as the first source that has it; notices have none."""
    return {*accounts.values()} - {NOTICES.source}


def _find_most(standing: leases.Standing, keys: int) -> int:
    """Return how many API keys a process may have.

    It claims no more, else it would hand over at once what it has claimed, and claim that again before others do.
    """
    return max(math.floor(_MOST_SHARE * keys / standing.processes), standing.least + 1)


def _find_surplus(standing: leases.Standing, accounts: Mapping[str, str]) -> frozenset[str]:
    """Return the sources to hand over: those not configured any more, of a key that another has, and too many."""
    surplus = {source for source in standing.own if source not in accounts} | standing.split
    kept = _list_keys({source: account for source, account in standing.own.items() if source not in surplus})
    keys = len(_list_keys(accounts))
    fair = keys / standing.processes
    if len(kept) > _find_most(standing, keys):
        most = math.ceil(fair) if len(kept) > math.ceil(fair) else math.floor(fair)
        shed = {*sorted(kept)[most:]}
        surplus |= {source for source, account in standing.own.items() if account in shed}
    return frozenset(surplus)
