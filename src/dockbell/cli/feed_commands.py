"""What ``reconcile``, ``deletes`` and ``drift`` share: the choice of feeds, the wait for an outcome, its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.printing import print_json, print_reasons, print_table
from dockbell.cli.progress import Lines, Reading, load_expected, log_stream, showing, watch_passes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import Command, CommandKind

wait_option = click.option("--wait/--no-wait", default=True, help="Wait for the outcome; default: --wait.")


def choose_feeds(config: Config, names: Iterable[str]) -> tuple[Feed, ...]:
    """Return the configured feeds that are named; all where none is.

    Raises:
        click.UsageError: A name means none of them, or several.
    """
    from dockbell.admin.commands import UnknownFeed, find_feeds
    from dockbell.core.model import Feed

    try:
        return find_feeds(names, [Feed(each.source, each.resource) for each in config.feeds()])
    except UnknownFeed as error:
        raise click.UsageError(str(error)) from error


def run_feed_commands(config: Config, feeds: Sequence[Feed], kind: CommandKind, *, wait: bool, as_json: bool) -> bool:
    """Run a command for feeds, by the daemon or here, and print the outcomes; return whether all are good."""
    import anyio

    from dockbell.admin.commands import read_result

    commands = anyio.run(_run, config, feeds, kind, wait)
    results = [read_result(command) for command in commands]
    reasons = anyio.run(_find_reasons, config, feeds)
    if as_json:
        found = [
            {"feed": str(each.feed), "outcome": each.verdict, "counts": each.counts, "detail": each.detail}
            for each in results
        ]
        print_json({"wish": kind.value, "results": found, "reasons": reasons})
    else:
        names = list(dict.fromkeys(name for each in results for name in each.counts))
        print_table(
            ("feed", "outcome", *names, "detail"),
            [(each.feed, each.verdict, *(each.counts.get(name) for name in names), each.detail) for each in results],
        )
        print_reasons(reasons)
    return all(each.is_done or (each.verdict == "waiting" and not wait) for each in results)


async def _run(config: Config, feeds: Sequence[Feed], kind: CommandKind, wait: bool) -> Sequence[Command]:
    from dockbell import app

    if not feeds:
        return []
    with showing() as lines:
        if not app.find_holder(config):
            return await _run_here(config, feeds, kind, lines)
        return await _run_by_daemon(config, feeds, kind, lines if wait else None)


async def _run_by_daemon(
    config: Config, feeds: Sequence[Feed], kind: CommandKind, lines: Lines | None
) -> Sequence[Command]:
    """Leave commands for the daemon, and wait for it where there are lines to show it by."""
    import anyio

    from dockbell import app
    from dockbell.admin.commands import await_commands, enqueue_commands

    command_store = await app.open_command_store(config)
    try:
        commands = await enqueue_commands(command_store, feeds, kind, app.now())
        if lines is None:
            return commands
        waiting = list(feeds)

        def tell(commands: Sequence[Command]) -> None:
            left = [command.feed for command in commands if command.feed is not None]
            for feed in {*waiting} - {*left}:
                lines.end(str(feed))
            waiting[:] = left

        async with anyio.create_task_group() as group:
            if lines.is_shown:
                group.start_soon(watch_passes, config, lines, waiting)
            commands = await await_commands(
                command_store, commands, is_held=lambda: bool(app.find_holder(config)), tell=tell
            )
            group.cancel_scope.cancel()
        return commands
    finally:
        await command_store.aclose()


async def _run_here(config: Config, feeds: Sequence[Feed], kind: CommandKind, lines: Lines) -> Sequence[Command]:
    import logging

    from dockbell.app.once import run_commands
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    start_log(log_stream())
    logging.getLogger().setLevel(logging.WARNING)
    click.echo("no daemon runs: doing it here", err=True)
    reading = Reading(lines, await load_expected(config) if lines.is_shown else None)
    return await run_commands(config, Telemetry(log_fact, reading.hear), [(feed, kind) for feed in feeds])


async def _find_reasons(config: Config, feeds: Sequence[Feed]) -> Sequence[str]:
    """Return what waits for an operator in these feeds after all."""
    from dockbell import app
    from dockbell.admin.reasons import find_waiting

    read_store = await app.open_read_store(config)
    try:
        states = [state for state in await read_store.load_feeds() if state.feed in feeds]
    finally:
        await read_store.aclose()
    return [f"{state.feed}: {reason}" for state in states for reason in find_waiting(state)]
