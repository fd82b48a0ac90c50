"""The agents that a configuration asks for, and how they are brought in line with another one while they work.

What differs is found by :mod:`dockbell.app.changes`. All that is new is opened before anything ends, so that a
configuration that cannot be used changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from dockbell.app import opening
from dockbell.app.changes import Changes, SinkRecipe, compare, list_feeds, list_sinks, list_sources
from dockbell.app.command_runner import CommandRunner
from dockbell.app.janitor import Janitor
from dockbell.app.revisions import Revisions
from dockbell.app.source_agents import FeedAgents, KeyPlanning, SourceAgents
from dockbell.config import Config, check_secrets
from dockbell.config.secret import Secret
from dockbell.config.tables import SourceSettings
from dockbell.config.values import redact_url, show
from dockbell.core.model import Feed
from dockbell.core.planning.forecast import predict_wait
from dockbell.delivery.delay_log import DelayLog
from dockbell.delivery.notifier import Notifier
from dockbell.delivery.relay import Relay
from dockbell.errors import ConfigError
from dockbell.host import system
from dockbell.ports import Bell, Claim, Sink, Spent, Store
from dockbell.telemetry import SinkLeft, SinkOverrun, Telemetry

if TYPE_CHECKING:
    from dockbell.sources import InventoryClient


class Opened(msgspec.Struct, frozen=True):
    """What is new, and was opened before anything old ends."""

    clients: Mapping[str, InventoryClient]  # of sources, by name
    sinks: Mapping[str, Sink]  # not connected yet, by name


class Agents:
    """The agents of one dockbell; made by :func:`assemble`.

    Attributes:
        config: What it is in line with.
        store: Open for as long as the agents are.
        sources: By name; each is loaded by itself.
        configured: The feeds of the configuration, loaded or not.
        known: The feeds of the whole configuration: of those that are not among ``configured``, other processes have
            the sources.
        asked_for: Rings where :meth:`find` waits for a source that is not due.
        claims: What other processes have spent of keys whose sources come from them, by the first source with the key.
    """

    def __init__(self, config: Config, store: Store, telemetry: Telemetry) -> None:
        self.config = config
        self.store = store
        self.telemetry = telemetry
        self.sources: dict[str, SourceAgents] = {}
        self.configured: frozenset[Feed] = frozenset()
        self.known: frozenset[Feed] = frozenset()
        self.claims: Mapping[str, Claim] = {}
        self.relays: dict[str, Relay] = {}
        self.notifier = Notifier(store, telemetry, name=config.name, now=opening.now)
        self.delay_log = DelayLog(store.health, telemetry, predict=self._predict_wait, now=opening.now)
        self.command_runner = CommandRunner(store, self.find, telemetry, name=config.name)
        self.janitor = self._make_janitor(config)
        self._sink_recipes: dict[str, SinkRecipe] = {}
        self._plannings: dict[tuple[str, Secret], KeyPlanning] = {}
        self._loads = Bell()
        self.asked_for = Bell()

    @property
    def feeds(self) -> Mapping[Feed, FeedAgents]:
        """The agents of all feeds that are loaded."""
        return {feed: agents for source in self.sources.values() for feed, agents in source.feeds.items()}

    async def find(self, feed: Feed) -> FeedAgents | None:
        """Return the agents of a feed as soon as they are loaded; None where it is not configured, or not read."""
        while feed in self.configured:
            rings = self._loads.rings
            if (source := self.sources.get(feed.source)) is not None:
                if source.settings.paused:
                    return None
                if feed in source.feeds:
                    return source.feeds[feed]
                if source.due_at is not None:  # it is not to wait until it is due
                    source.due_at = None
                    self.asked_for.ring()
            await self._loads.wait(rings)
        return None

    async def load(self) -> None:
        """Load every source that is not loaded."""
        for source in self.sources.values():
            await self.load_source(source)

    async def load_source(self, source: SourceAgents) -> None:
        """Load a source, and tell those who wait for its feeds."""
        await source.load()
        self._loads.ring()

    async def wait_for_due(self) -> None:
        """Return when all sources are loaded that are due, or nearly, by what other processes have done with them."""
        while any(source.is_due and not source.is_started for source in self.sources.values()):
            await self._loads.wait(self._loads.rings)

    def know(self, config: Config) -> None:
        """Note the whole configuration, of which other processes have some sources."""
        self.known = frozenset(list_feeds(config))

    def find_changes(self, config: Config) -> Changes:
        """Return what a configuration would change.

        Raises:
            ConfigError: It cannot be followed without a restart.
        """
        fixed = (("name", self.config.name, config.name), ("[store] url", self.config.store.url, config.store.url))
        problems = [
            f"{place}: cannot change while dockbell runs, got {show(redact_url(wanted))},"
            f" it is {show(redact_url(there))}; restart dockbell"
            for place, there, wanted in fixed
            if wanted != there
        ]
        if problems:
            raise ConfigError(*problems)
        others = (("[store]", self.config.store, config.store), ("[web]", self.config.web, config.web))
        feeds = {feed: (each.settings, how) for each in self.sources.values() for feed, how in each.wanted.items()}
        sources = compare({name: each.settings for name, each in self.sources.items()}, list_sources(config))
        turned = [name for name in sources.changed if self.sources[name].settings.paused != config.sources[name].paused]
        return Changes(
            sources,
            compare(feeds, list_feeds(config)),
            compare(self._sink_recipes, list_sinks(config)),
            paused=tuple(name for name in turned if config.sources[name].paused),
            resumed=tuple(name for name in turned if not config.sources[name].paused),
            others=tuple(f"{place} changed" for place, there, wanted in others if there != wanted),
        )

    async def adopt(self, config: Config, opened: Opened, changes: Changes) -> None:
        """Hold what a configuration asks for, not loaded yet; the work of what it replaces has ended.

        The store is not asked: :meth:`enroll` follows.
        """
        for name in changes.sinks.ending:
            del self.relays[name], self._sink_recipes[name]
        sources = list_sources(config)
        for name in changes.sources.ending:
            ended = self.sources.pop(name)
            await ended.leave()
            if name in sources and sources[name].account == ended.settings.account:
                opened.clients[name].inherit(ended.client)
        firsts = config.accounts()
        for name in changes.sources.beginning:
            self.sources[name] = self._make_source(sources[name], opened.clients[name], firsts[name])
        self._plannings = {account: each for account, each in self._plannings.items() if each.sources}
        feeds = list_feeds(config)
        for source in self.sources.values():
            source.wanted = {}
        for feed, (_, settings) in feeds.items():
            self.sources[feed.source].wanted[feed] = settings
        self.janitor = self._make_janitor(config)
        self.notifier.forget(changes.feeds.removed, changes.sinks.removed, changes.sources.ending)
        self.config, self.configured = config, frozenset(feeds)
        self._loads.ring()

    def _make_source(self, settings: SourceSettings, client: InventoryClient, first: str) -> SourceAgents:
        """Make the agents of a source; where another one has its API key, the two have one budget and one planner."""
        planning, claim = self._plannings.get(settings.account), self.claims.get(first)
        if planning is None or not planning.sources:
            planning = self._plannings[settings.account] = KeyPlanning(
                client.key_budget, first=first, telemetry=self.telemetry
            )
            if (fleet := self.store.fleet) is not None:
                client.key_budget.take_over(claim, fleet.wait_for_trust)
        else:
            client.share_budget(planning.sources[0].client)
        return SourceAgents(
            settings,
            client,
            planning,
            name=self.config.name,
            store=self.store,
            telemetry=self.telemetry,
            due_in=None if claim is None else claim.due_in,
        )

    def declare_spent(self) -> Mapping[str, Spent]:
        """Return what may be spent of each key until the next call, by the first source with the key.

        A key keeps its last declaration until its next request, because most keys have none most of the time.
        """
        return {
            each.first: each.budget.declare()
            for each in self._plannings.values()
            if each.sources and not each.budget.stands
        }

    def confirm_spent(self, told: Collection[str]) -> None:
        """Let what was declared of keys be spent: it is stored."""
        for each in self._plannings.values():
            if each.first in told:
                each.budget.confirm()

    def settle_spent(self, sources: Collection[str]) -> Callable[[], Mapping[str, Spent]]:
        """Return what tells, once the work on some sources has ended, what was spent of their keys."""
        budgets = {
            each.first: each.budget
            for each in self._plannings.values()
            if each.sources and all(source.client.name in sources for source in each.sources)
        }
        return lambda: {first: budget.declare_last() for first, budget in budgets.items()}

    async def enroll(self, opened: Opened, changes: Changes, *, is_first: bool = False) -> None:
        """Have the store know all configured feeds, and each sink begin in those that are new to it.

        All feeds at once, before any is loaded: what a sink is owed does not depend on which feed is loaded first, and
        after the loss of a store no feed misses that it was lost.

        Raises:
            StoreError: The store cannot be read or written; call it again.
        """
        await self.store.add_feeds([feed for feed in changes.feeds.beginning if feed in self.configured])
        if is_first:
            await self.notifier.open()
        for name, recipe in list_sinks(self.config).items():
            for feed in await self.store.sink(name).enroll(recipe[0].start):
                self.telemetry.emit(SinkOverrun(name, feed, None))
            if name not in self.relays:
                self._make_relay(opened.sinks[name], recipe)
        left = await self.store.retention.find_left(tuple(self.relays))
        for name in left if is_first else changes.sinks.removed:
            if name in left:
                self.telemetry.emit(SinkLeft(name, left[name]))

    async def aclose(self) -> None:
        await self.delay_log.finish()
        for source in self.sources.values():
            await source.client.aclose()

    def _predict_wait(self, feed: Feed) -> timedelta | None:
        """Return how long changes of a feed wait for its next reading, in the mean; None where no interval says."""
        source = self.sources.get(feed.source)
        agents = None if source is None else source.feeds.get(feed)
        interval = None if agents is None else agents.tracked.schedule.interval
        return None if interval is None else predict_wait(interval)

    def _make_relay(self, sink: Sink, recipe: SinkRecipe) -> None:
        settings, state_url, unordered, max_owed, keep_attempts = recipe
        self.relays[sink.name] = Relay(
            sink,
            settings,
            store=self.store,
            telemetry=self.telemetry,
            now=opening.now,
            name=self.config.name,
            state_url=state_url,
            unordered=unordered,
            max_owed=max_owed,
            keep_attempts=keep_attempts,
            steady=system.elapsed,
            feeds=lambda: self.configured,
            known=None if self.store.fleet is None else lambda: self.known,
            processes=lambda: 1 if self.store.fleet is None else self.store.fleet.processes,
        )
        self._sink_recipes[sink.name] = recipe
        self.notifier.expect(sink.name)

    def _make_janitor(self, config: Config) -> Janitor:
        fleet = self.store.fleet
        return Janitor(
            self.store,
            settings=config.store,
            sinks=tuple(config.sinks),
            telemetry=self.telemetry,
            now=opening.now,
            leads=lambda: fleet is None or fleet.leads,
        )


async def open_news(config: Config, changes: Changes, telemetry: Telemetry, store: Store | None) -> Opened:
    """Open what a configuration adds or changes, for :meth:`Agents.adopt`.

    Where several processes share the store, a source that cannot be used keeps no other from its work: it fails by
    itself, and tries again.

    Raises:
        ConfigError: Something that the configuration names cannot be used; nothing is left open.
    """
    fleet = None if store is None else store.fleet
    slot = 0 if fleet is None else fleet.slot
    sinks = {name: opening.open_sink(config, name, telemetry, slot=slot) for name in changes.sinks.beginning}
    async with AsyncExitStack() as stack:
        clients = {}
        for name in changes.sources.beginning:
            clients[name] = opening.open_source(config, name, telemetry, checked=fleet is None)
            stack.push_async_callback(clients[name].aclose)
        stack.pop_all()
    return Opened(clients, sinks)


@asynccontextmanager
async def assemble(
    config: Config, telemetry: Telemetry, *, shared: bool = False, revisions: Revisions | None = None
) -> AsyncIterator[Agents]:
    """Open everything that a configuration names, not loaded and not at work yet, and close it again.

    Where it is ``shared`` and the store allows that, other processes may work on it too: then there are no sources yet,
    and ``revisions`` joins them.

    Raises:
        ConfigError: Something that the configuration names cannot be used.
        StoreError: The store is in use, is another program's, or cannot be opened.
    """
    async with AsyncExitStack() as stack:
        check_secrets(config)
        store = None
        if shared and config.store.path is None:
            store = await _open_store(config, telemetry, stack, shared=True)
            if revisions is not None and store.fleet is not None:
                config = await revisions.join(store.fleet.configurations)
            config = config.only(())
        everything = Changes(
            compare({}, list_sources(config)), compare({}, list_feeds(config)), compare({}, list_sinks(config))
        )
        opened = await open_news(config, everything, telemetry, store)
        for client in opened.clients.values():
            stack.push_async_callback(client.aclose)
        if store is None:  # not before: what cannot be used makes no store
            store = await _open_store(config, telemetry, stack)
        agents = Agents(config, store, telemetry)
        stack.push_async_callback(agents.aclose)
        await agents.adopt(config, opened, everything)
        await agents.enroll(opened, everything, is_first=True)
        yield agents


async def _open_store(config: Config, telemetry: Telemetry, stack: AsyncExitStack, *, shared: bool = False) -> Store:
    store = await opening.open_store(config, telemetry, shared=shared)
    stack.push_async_callback(store.aclose)
    return store
