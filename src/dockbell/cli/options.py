"""What several commands share: options, the choice of sinks, feeds and events, and the way to the store."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from dockbell.cli.completion import complete_feeds
from dockbell.cli.group import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import CommandStore, ReadStore, Selection, SinkState

_T = TypeVar("_T")
_Command = TypeVar("_Command", bound=Callable[..., None])

config_option = click.option(
    "--config",
    "config_path",
    metavar="PATH",
    type=click.Path(readable=False),  # load says why a file cannot be read
    help="Configuration file; default: $DOCKBELL_CONFIG, else ./dockbell.toml.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
verbose_option = click.option("-v", "--verbose", is_flag=True, help="Log each request and each delivery.")
all_option = click.option("--all", "everything", is_flag=True, help="Include all.")
key_option = click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Select events of the record with this key."
)
sequence_option = click.option(
    "--sequence", "span", metavar="A-B", help="Select these sequence numbers: 5, 5-10, 5- or -10."
)
feed_option = click.option(
    "--feed",
    "feed_names",
    multiple=True,
    metavar="FEED",
    shell_complete=complete_feeds,
    help="Select events of this feed: source/resource, or only the resource.",
)


class Chosen(TypedDict):
    """What ``--feed``, ``--key`` and ``--sequence`` say."""

    feed_names: tuple[str, ...]
    keys: tuple[str, ...]
    span: str | None


def selection_options(command: _Command) -> _Command:
    """Give a command ``--feed``, ``--key`` and ``--sequence``, which it takes as :class:`Chosen`."""
    return feed_option(key_option(sequence_option(command)))


def read_followed(config_path: str | None) -> Config:
    """Return what is followed: where processes share a store the newest revision, else what the file says.

    Where that revision cannot be used here, the file says what there is, and a warning tells so.

    Raises:
        ConfigError: Every problem of the file.
        StoreError: The store cannot be asked.
    """
    import anyio

    from dockbell.app import load_newest
    from dockbell.errors import ConfigError

    config = read_config(config_path)
    if config.store.path is not None:
        return config
    try:
        return anyio.run(load_newest, config)
    except ConfigError as error:
        for line in (*error.problems, "this command uses the configuration file, which that revision has replaced"):
            click.echo(f"{click.style('warning:', fg='yellow')} {line}", err=True)
        return config


def read_config(config_path: str | None) -> Config:
    """Return the configuration that ``--config``, the environment or the working folder names, as its file has it.

    Raises:
        ConfigError: Every problem of it.
    """
    from dockbell.app import load_config
    from dockbell.config import find

    return load_config(find(config_path, os.environ))


def read_option(option: str, read: Callable[[], _T]) -> _T:
    """Return what an option says.

    Raises:
        click.UsageError: It cannot be read.
    """
    try:
        return read()
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from error


# What is meant -------------------------------------------------------------------------------------------------------


def choose_sink(config: Config, name: str, others: Iterable[str] = ()) -> None:
    """Refuse the name of a sink that is neither configured nor one of the others.

    Raises:
        NotFound: There is no such sink.
    """
    from dockbell.config import suggest

    known = dict.fromkeys([*config.sinks, *others])
    if name not in known:
        raise NotFound(f'no sink "{name}"; {suggest(name, known) if known else "no sinks are configured"}')


def choose_feeds(config: Config, names: Iterable[str], others: Iterable[Feed] = ()) -> tuple[Feed, ...]:
    """Return the feeds that are named, of those that are configured and the others; all where none is named.

    Raises:
        NotFound: A name means none of them.
        click.UsageError: A name means several of them.
    """
    from dockbell.admin.commands import AmbiguousFeed, UnknownFeed, find_feeds
    from dockbell.core.model import Feed

    known = dict.fromkeys([*(Feed(each.source, each.resource) for each in config.feeds()), *others])
    try:
        return find_feeds(names, list(known))
    except AmbiguousFeed as error:
        raise click.UsageError(str(error)) from error
    except UnknownFeed as error:
        raise NotFound(str(error)) from error


def read_selection(config: Config, chosen: Chosen) -> Selection:
    """Return which events are chosen; their feeds may have left the configuration.

    Raises:
        NotFound: An option names no feed.
        click.UsageError: An option cannot be read.
    """
    from dockbell.admin.replaying import read_keys, read_span
    from dockbell.ports import Selection

    feeds: tuple[Feed, ...] = ()
    first = last = None
    if chosen["feed_names"] or chosen["span"] is not None:
        stored = [state.feed for state in ask_store(config, lambda read_store: read_store.load_feeds())]
        feeds = choose_feeds(config, chosen["feed_names"], stored)
    if (span := chosen["span"]) is not None:
        first, last = read_option("--sequence", lambda: read_span(span))
        if len(feeds) != 1:
            raise click.UsageError("--sequence applies to one feed; select it with --feed")
    return Selection(feeds, read_option("--key", lambda: read_keys(chosen["keys"])), first=first, last=last)


# The store -----------------------------------------------------------------------------------------------------------


def ask_store(config: Config, question: Callable[[ReadStore], Awaitable[_T]]) -> _T:
    """Ask the store something, whether a daemon works on it or not."""
    from dockbell import app

    return _run(app.open_read_store, config, question)


def use_command_store(config: Config, act: Callable[[CommandStore], Awaitable[_T]]) -> _T:
    """Leave something in the store for the daemon; dead letters are read by it too."""
    from dockbell import app

    return _run(app.open_command_store, config, act)


def _run(open_store: Callable[[Config], Awaitable[Any]], config: Config, work: Callable[[Any], Awaitable[_T]]) -> _T:
    import anyio

    async def run() -> _T:
        async with aclosing(await open_store(config)) as store:
            return await work(store)

    return anyio.run(run)


def load_sinks(config: Config) -> Mapping[str, SinkState]:
    """Return the state of each configured sink; the store may not know it yet."""
    from dockbell.ports import SinkState

    known = {state.name: state for state in ask_store(config, lambda read_store: read_store.load_sinks())}
    return {name: known.get(name, SinkState(name, 0, 0, 0, None, "")) for name in config.sinks}


def find_obstacles(config: Config, state: SinkState) -> Sequence[str]:
    """Return what keeps the events of a sink from being sent now, one line each."""
    from dockbell import app

    obstacles = []
    if state.paused:
        obstacles.append(f'sink {state.name} is paused ({state.paused}): "dockbell resume {state.name}" sends them')
    if not app.find_holder(config):
        obstacles.append('no daemon is running: "dockbell run" starts one, which sends them')
    return obstacles
