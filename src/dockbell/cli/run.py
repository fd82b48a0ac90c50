"""``dockbell run``, ``once``, ``reload`` and ``backup``: the daemon, a single round, and what goes on beside them."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dockbell.cli.group import exit_if
from dockbell.cli.options import config_option, json_option, load_sinks, read_config, verbose_option
from dockbell.cli.printing import print_json, print_lines, print_table
from dockbell.cli.progress import Reading, load_expected, log_stream, show_deliveries, showing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dockbell.admin.commands import Result
    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import SinkState
    from dockbell.telemetry import Fact, Telemetry

_MEGABYTE = 1_000_000


@click.command()
@config_option
@verbose_option
def run(config_path: str | None, *, verbose: bool) -> None:
    """Run the daemon until Ctrl-C or SIGTERM.

    SIGHUP, or "dockbell reload", makes the daemon read its configuration again. The log goes to standard error. On a
    terminal, the log is text, with the progress of long passes below it. Otherwise, the log is one JSON object per
    line.

    \b
    Examples:
      dockbell run
      dockbell run --config /etc/dockbell.toml --verbose
    """
    from functools import partial

    import anyio

    from dockbell.app.process import run_until_signal
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    start_log(log_stream(), verbose=verbose)
    telemetry = Telemetry(log_fact, _end_without_reader)
    # A sink may write events to the same terminal.
    with showing(read_config(config_path) if sys.stderr.isatty() and sys.stdout.isatty() else None) as lines:
        if lines.is_shown:
            expected = anyio.run(load_expected, read_config(config_path))
            telemetry.listen(Reading(lines, expected, least=2).hear)
        anyio.run(run_until_signal, partial(_read, config_path, telemetry), telemetry)


def _read(config_path: str | None, telemetry: Telemetry) -> Config:
    """Return the configuration, and tell what others can read or write that they should not."""
    from dockbell.admin.exposure import find_exposed
    from dockbell.config import find
    from dockbell.telemetry import FileExposed

    config = read_config(config_path)
    for problem in find_exposed(config, find(config_path, os.environ)):
        telemetry.emit(FileExposed(problem))
    return config


def _end_without_reader(fact: Fact) -> None:
    """End as by SIGTERM once the reader of the pipe is gone: ``dockbell run | head``."""
    from dockbell.telemetry import SinkFails

    if isinstance(fact, SinkFails) and fact.reason.startswith("standard output") and _is_broken_pipe():
        signal.raise_signal(signal.SIGTERM)


def _is_broken_pipe() -> bool:
    poll = select.poll()
    poll.register(1, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))


@click.command()
@config_option
@json_option
@verbose_option
def once(config_path: str | None, *, as_json: bool, verbose: bool) -> None:
    """Read every feed that is due, deliver, and exit.

    Feeds whose interval is "auto" are always due. The command delivers the events that can be delivered now. Exits with
    0 when everything was read and nothing is owed, otherwise with 1. Refuses to run while a daemon holds the store.
    With a stdout sink, the report goes to standard error.

    \b
    Examples:
      dockbell once
      */15 * * * *  dockbell once --config /etc/dockbell.toml
    """
    import logging

    import anyio

    from dockbell.app.once import run_once
    from dockbell.core.model import Feed
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    config = read_config(config_path)
    start_log(log_stream(), verbose=verbose)
    if not verbose:
        logging.getLogger().setLevel(logging.WARNING)
    tally = Tally((Feed(each.source, each.resource) for each in config.feeds()), config.sinks)
    with showing(config) as lines:
        reading = Reading(lines, anyio.run(load_expected, config) if lines.is_shown else None)
        telemetry = Telemetry(log_fact, tally.hear, reading.hear, show_deliveries(lines))
        settled = anyio.run(run_once, config, telemetry)
    err = any(sink.type == "stdout" for sink in config.sinks.values())
    states = load_sinks(config)
    if as_json:
        print_json({"settled": settled} | _describe_round(tally, states), err=err)
    else:
        _print_round(tally, states, err=err)
    exit_if(not settled)


@dataclass(slots=True)
class FeedTally:
    runs: list[str] = field(default_factory=list)
    pages: int = 0
    records: int = 0
    events: int = 0
    problem: str = ""


@dataclass(slots=True)
class SinkTally:
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    problem: str = ""


class Tally:
    """Counts facts by feed and by sink; a listener of :class:`dockbell.telemetry.Telemetry`."""

    def __init__(self, feeds: Iterable[Feed], sinks: Iterable[str]) -> None:
        self.feeds = {feed: FeedTally() for feed in feeds}
        self.sinks = {name: SinkTally() for name in sinks}

    def hear(self, fact: Fact) -> None:
        from dockbell.core.model import OutcomeKind
        from dockbell.telemetry import DeliverySettled, EventDied, FeedFails, RunEnded, SinkFails

        match fact:
            case RunEnded():
                feed = self.feeds[fact.feed]
                feed.runs.append(fact.kind)
                feed.pages += fact.pages
                feed.records += fact.records
                feed.events += fact.events
                feed.problem = fact.problem or feed.problem
            case FeedFails():
                self.feeds[fact.feed].problem = fact.reason
            case DeliverySettled():
                sink = self.sinks[fact.sink]
                if fact.outcome.kind is OutcomeKind.DELIVERED:
                    sink.delivered += 1
                else:
                    sink.failed += 1
                    sink.problem = fact.outcome.reason
            case SinkFails():
                self.sinks[fact.sink].problem = fact.reason
            case EventDied():
                self.sinks[fact.sink].dead += 1


def _describe_round(tally: Tally, states: Mapping[str, SinkState]) -> dict[str, object]:
    return {
        "feeds": [{"feed": str(feed)} | asdict(each) for feed, each in tally.feeds.items()],
        "sinks": [
            {"sink": name} | asdict(each) | {"owed": states[name].owed, "blocked": states[name].blocked}
            for name, each in tally.sinks.items()
        ],
    }


def _print_round(tally: Tally, states: Mapping[str, SinkState], *, err: bool) -> None:
    feeds = [
        (feed, " + ".join(each.runs), each.pages, each.records, each.events, each.problem)
        for feed, each in tally.feeds.items()
    ]
    print_table(("feed", "read", "pages", "records", "events", "problem"), feeds, err=err)
    if tally.sinks:
        click.echo(err=err)
        sinks = [
            (name, each.delivered, each.failed, each.dead, states[name].owed, states[name].blocked, each.problem)
            for name, each in tally.sinks.items()
        ]
        print_table(("sink", "delivered", "failed", "dead", "owed", "blocked", "problem"), sinks, err=err)


@click.command()
@config_option
@json_option
def reload(config_path: str | None, *, as_json: bool) -> None:
    """Make the daemon reload and apply its configuration.

    Feeds and sinks that the new configuration does not change continue undisturbed. Feeds and sinks that it changes
    restart where they were. An invalid configuration changes nothing. A change of dockbell's name or of the store's
    location requires a restart. SIGHUP to the daemon does the same as this command.

    Exits with 1 when the daemon could not apply the configuration, or when no daemon runs.

    \b
    Examples:
      dockbell reload
      dockbell reload --json
    """
    import anyio

    result = anyio.run(_reload, read_config(config_path))
    if as_json:
        print_json({"outcome": result.verdict, "detail": result.detail})
    else:
        print_lines(f"{result.verdict}: {result.detail}")
    exit_if(not result.is_done)


async def _reload(config: Config) -> Result:
    from dockbell import app
    from dockbell.admin.commands import Result, await_commands, enqueue_commands, read_result
    from dockbell.config.values import redact_url
    from dockbell.ports import CommandKind

    if not app.find_holder(config):
        none = f'no daemon uses {redact_url(config.store.url)}; "dockbell run" starts one'
        moved = "a daemon that started with another [store] url needs a restart to use the new one"
        return Result(None, "failed", detail=f"{none}; {moved}")
    async with aclosing(await app.open_command_store(config)) as command_store:
        commands = await enqueue_commands(command_store, [None], CommandKind.RELOAD, app.now())
        (command,) = await await_commands(command_store, commands, is_held=lambda: bool(app.find_holder(config)))
    return read_result(command)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace an existing file at PATH.")
@config_option
@json_option
def backup(config_path: str | None, *, path: Path, force: bool, as_json: bool) -> None:
    """Copy the store to PATH, even while the daemon runs.

    The copy shows the store as it was when copying began, in one file that only its owner can access. The command
    checks the copy before it gives it its name. A running daemon continues meanwhile. A store that starts from a backup
    knows that it does: it uses no event id twice, and reports the missing period.

    To restore a backup, stop the daemon, copy the file to the location of the store, and start the daemon.

    Exits with 1 when there is no store, when PATH exists already, when others could put another file in its place, or
    when the copy cannot be written or is damaged.

    \b
    Examples:
      dockbell backup /var/backups/dockbell.db
      dockbell backup "/var/backups/dockbell-$(date +%F).db"
      dockbell backup --force --json latest.db
    """
    from functools import partial

    import anyio

    from dockbell import app

    config = read_config(config_path)
    with showing() as lines:

        def show(done: int, of: int) -> None:
            lines.tell(str(path), f"{done / _MEGABYTE:,.0f} of {of / _MEGABYTE:,.0f} MB", done=done, of=of)

        copy = anyio.run(partial(app.back_up, config, path, force=force, progress=show))
    if as_json:
        print_json({"path": str(copy.path), "bytes": copy.size})
    else:
        click.echo(f"{copy.path}: {copy.size / _MEGABYTE:,.1f} MB, complete and checked")
