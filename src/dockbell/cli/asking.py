"""What ``replay``, ``dead``, ``pause`` and ``resume`` share: the choice of a sink and of events, the desk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from dockbell.cli.completing import complete_feeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import CommandStore, Selection, SinkState

_T = TypeVar("_T")

feed_option = click.option(
    "--feed",
    "feed_names",
    multiple=True,
    metavar="FEED",
    shell_complete=complete_feeds,
    help="Of this feed: source/resource, or the resource.",
)
key_option = click.option("--key", "keys", multiple=True, metavar="KEY", help="Of the record with this key.")
sequence_option = click.option("--sequence", "span", metavar="A-B", help="With these sequences: 5, 5-10, 5- or -10.")
all_option = click.option("--all", "everything", is_flag=True, help="All of them.")


def choose_sink(config: Config, name: str, others: Iterable[str] = ()) -> str:
    """Return the name of a sink that is configured, or one of the others.

    Raises:
        click.UsageError: There is no such sink.
    """
    from dockbell.config import suggest

    known = dict.fromkeys([*config.sinks, *others])
    if name not in known:
        raise click.UsageError(f'no sink "{name}"; {suggest(name, known) if known else "none is configured"}')
    return name


def read_selection(config: Config, feed_names: Sequence[str], keys: Sequence[str], span: str | None) -> Selection:
    """Return which events are chosen by their feeds, keys and sequences.

    Raises:
        click.UsageError: An option cannot be read, or names no feed.
    """
    import anyio

    from dockbell.admin.commands import UnknownFeed, find_feeds
    from dockbell.admin.replaying import read_keys, read_span
    from dockbell.ports import Selection

    known = anyio.run(_load_feeds, config) if feed_names or span is not None else ()
    try:
        feeds = find_feeds(feed_names, known) if feed_names else ()
    except UnknownFeed as error:
        raise click.UsageError(str(error)) from error
    first = last = None
    if span is not None:
        first, last = read_option("--sequence", lambda: read_span(span))
        feeds = feeds or tuple(known)
        if len(feeds) != 1:
            raise click.UsageError("--sequence counts in one feed; name it by --feed")
    return Selection(feeds, read_option("--key", lambda: read_keys(keys)), first=first, last=last)


async def _load_feeds(config: Config) -> Sequence[Feed]:
    """Return the feeds that are configured, and those that were."""
    from dockbell import app
    from dockbell.core.model import Feed

    read_store = await app.open_read_store(config)
    try:
        stored = [state.feed for state in await read_store.load_feeds()]
    finally:
        await read_store.aclose()
    return list(dict.fromkeys([*(Feed(each.source, each.resource) for each in config.feeds()), *stored]))


def read_option(option: str, read: Callable[[], _T]) -> _T:
    """Return what an option says.

    Raises:
        click.UsageError: It cannot be read.
    """
    try:
        return read()
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error


@asynccontextmanager
async def opened_command_store(config: Config) -> AsyncIterator[CommandStore]:
    """Open the desk of the store, and close it again."""
    from dockbell import app

    command_store = await app.open_command_store(config)
    try:
        yield command_store
    finally:
        await command_store.aclose()


async def load_sink(config: Config, name: str) -> SinkState:
    """Return how a sink stands."""
    from dockbell import app
    from dockbell.ports import SinkState

    read_store = await app.open_read_store(config)
    try:
        states = {state.name: state for state in await read_store.load_sinks()}
    finally:
        await read_store.aclose()
    return states.get(name, SinkState(name, 0, 0, 0, None, ""))


def find_obstacles(config: Config, state: SinkState) -> list[str]:
    """Return what keeps the events of a sink from being sent now, one line each."""
    from dockbell import app

    obstacles = []
    if state.paused:
        obstacles.append(
            f'sink {state.name} is paused ({state.paused}): they are sent after "dockbell resume {state.name}"'
        )
    if not app.find_holder(config):
        obstacles.append('no daemon runs: they will be sent when one does, "dockbell run"')
    return obstacles


def write_time(moment: datetime | None) -> str:
    """Return a time for a table, in UTC."""
    from dockbell.admin.explaining import write_time as write

    return "" if moment is None else write(moment)
