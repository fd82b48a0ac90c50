"""``dockbell reconcile``, ``deletes`` and ``drift``: commands for feeds, run by the daemon, or here where none runs."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.completion import complete_feeds
from dockbell.cli.group import exit_if
from dockbell.cli.options import ask_store, choose_feeds, config_option, json_option, read_followed
from dockbell.cli.printing import print_json, print_reasons, print_table
from dockbell.cli.progress import Lines, Reading, load_expected, log_stream, showing, watch_passes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dockbell.admin.commands import HeldDeletions, HeldDrift
    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import Command, CommandKind

_SAMPLE: Final = 10
_SAMPLE_IN_JSON: Final = 1000

_wait_option = click.option("--wait/--no-wait", default=True, help="Wait for the outcome; default: --wait.")


@click.command()
@click.argument("feeds", nargs=-1, metavar="[FEED]...", shell_complete=complete_feeds)
@config_option
@json_option
@_wait_option
def reconcile(config_path: str | None, *, feeds: tuple[str, ...], as_json: bool, wait: bool) -> None:
    """Read whole feeds now to find deletions and missed changes.

    FEED is source/resource, or the resource alone if only one source has it. Without FEED, the command reads all feeds
    except those of paused sources. A running daemon reads the feeds in addition to its polls. If no daemon runs, the
    command reads the feeds itself, and the next daemon delivers the events. dockbell deletes an absent record after a
    second pass, confirm_after later, confirms that the record is absent.

    Exits with 1 when a feed could not be read to its end, or when the daemon ended before it read the feed.

    \b
    Examples:
      dockbell reconcile
      dockbell reconcile shipments stock
      dockbell reconcile main/items --no-wait
    """
    from dockbell.ports import CommandKind

    config = read_followed(config_path)
    chosen = choose_feeds(config, feeds)
    if not feeds:
        chosen = tuple(feed for feed in chosen if not config.sources[feed.source].paused)
    _command(config, chosen, CommandKind.RECONCILE, wait=wait, as_json=as_json)


@click.command()
@click.argument("action", type=click.Choice(["list", "approve", "reject"]), default="list", metavar="[ACTION]")
@click.argument("feed", required=False, shell_complete=complete_feeds)
@config_option
@json_option
@_wait_option
def deletes(config_path: str | None, *, action: str, feed: str | None, as_json: bool, wait: bool) -> None:
    """List, approve or reject held mass deletions.

    When many records vanish from a feed at once, the feed is more likely broken than empty. dockbell holds such
    deletions, and publishes them when you approve them. FEED is source/resource, or the resource alone if only one
    source has it. Without FEED, the command handles all feeds with held deletions.

    \b
    list      show how many deletions are held, since when, and some of the keys (default)
    approve   read the whole feed once more, and delete the records that are still absent
    reject    keep the records as they are until the API shows them again

    \b
    Examples:
      dockbell deletes
      dockbell deletes approve main/warehouses
      dockbell deletes reject
    """
    from dockbell.admin.commands import list_deletions
    from dockbell.ports import CommandKind

    config = read_followed(config_path)
    feeds, most = choose_feeds(config, [feed] if feed else []), _SAMPLE_IN_JSON if as_json else _SAMPLE
    held = ask_store(config, lambda read_store: list_deletions(read_store, feeds, most=most))
    if action == "list" and as_json:
        print_json([_describe_deletions(each) for each in held])
    elif not held and not as_json:
        click.echo("no deletions held")
    elif action == "list":
        _print_deletions(held)
    else:
        kind = CommandKind.APPROVE if action == "approve" else CommandKind.REJECT
        _command(config, [each.feed for each in held], kind, wait=wait, as_json=as_json)


@click.command()
@click.argument("action", type=click.Choice(["list", "absorb", "publish"]), default="list", metavar="[ACTION]")
@click.argument("feed", required=False, shell_complete=complete_feeds)
@config_option
@json_option
@_wait_option
def drift(config_path: str | None, *, action: str, feed: str | None, as_json: bool, wait: bool) -> None:
    """List, absorb or publish held drift.

    When the API is deployed with other fields, the records themselves have not changed. dockbell holds readings that
    differ only in these fields until you decide. FEED is source/resource, or the resource alone if only one source has
    it. Without FEED, the command handles all feeds with held drift.

    \b
    list      show the fields, how many readings the last pass held, and since when (default)
    absorb    store the new form of the records without events
    publish   publish an update of each record

    \b
    Examples:
      dockbell drift
      dockbell drift absorb main/shipments
    """
    from dockbell.admin.commands import list_drift
    from dockbell.core.comparing.drift import Decision
    from dockbell.ports import CommandKind

    config = read_followed(config_path)
    feeds = choose_feeds(config, [feed] if feed else [])
    found = ask_store(config, lambda read_store: list_drift(read_store, feeds))
    meant = found if action == "list" else [each for each in found if each.decision is Decision.HOLD]
    if action == "list" and as_json:
        print_json([_describe_drift(each) for each in found])
    elif not meant and not as_json:
        click.echo("no drift held")
    elif action == "list":
        _print_drift(found)
    else:
        kind = CommandKind.ABSORB if action == "absorb" else CommandKind.PUBLISH
        _command(config, [each.feed for each in meant], kind, wait=wait, as_json=as_json)


# What is held --------------------------------------------------------------------------------------------------------


def _print_deletions(held: Sequence[HeldDeletions]) -> None:
    print_table(("feed", "held", "since"), [(each.feed, each.count, each.since) for each in held])
    for each in held:
        click.echo()
        rows = [(record.key, record.there_at, record.modified) for record in each.sample]
        print_table((f"{each.feed}: key", "last seen", "modified"), rows)
        if each.count > len(each.sample):
            click.echo(f"and {each.count - len(each.sample)} more")
    click.echo('\n"dockbell deletes approve FEED" deletes them, "dockbell deletes reject FEED" keeps them')


def _describe_deletions(each: HeldDeletions) -> dict[str, object]:
    sample = [{"key": record.key, "last_seen": record.there_at, "modified": record.modified} for record in each.sample]
    return {"feed": str(each.feed), "held": each.count, "since": each.since, "sample": sample}


def _print_drift(found: Sequence[HeldDrift]) -> None:
    rows = [(each.feed, ", ".join(each.paths), each.count or "", each.since, each.decision) for each in found]
    print_table(("feed", "fields", "readings", "since", "decision"), rows)
    click.echo(
        '\n"dockbell drift absorb FEED" publishes nothing, "dockbell drift publish FEED" an update of each record'
    )


def _describe_drift(each: HeldDrift) -> dict[str, object]:
    told = {"feed": str(each.feed), "fields": list(each.paths), "readings": each.count}
    return told | {"since": each.since, "decision": each.decision}


# What is done --------------------------------------------------------------------------------------------------------


def _command(config: Config, feeds: Sequence[Feed], kind: CommandKind, *, wait: bool, as_json: bool) -> None:
    """Run a command for feeds, by the daemon or here, and print the outcomes; exit with 1 unless all are good."""
    import anyio

    from dockbell.admin.commands import read_result
    from dockbell.admin.reasons import find_waiting

    results = [read_result(command) for command in anyio.run(_run, config, feeds, kind, wait)]
    states = ask_store(config, lambda read_store: read_store.load_feeds())
    reasons = [f"{state.feed}: {reason}" for state in states if state.feed in feeds for reason in find_waiting(state)]
    if as_json:
        found = [
            {"feed": str(each.feed), "outcome": each.verdict, "counts": each.counts, "detail": each.detail}
            for each in results
        ]
        print_json({"command": kind.value, "results": found, "reasons": reasons})
    else:
        names = list(dict.fromkeys(name for each in results for name in each.counts))
        rows = [(each.feed, each.verdict, *map(each.counts.get, names), each.detail) for each in results]
        print_table(("feed", "outcome", *names, "detail"), rows)
        print_reasons(reasons)
    exit_if(any(not (each.is_done or (each.verdict == "waiting" and not wait)) for each in results))


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

    async with aclosing(await app.open_command_store(config)) as command_store:
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


async def _run_here(config: Config, feeds: Sequence[Feed], kind: CommandKind, lines: Lines) -> Sequence[Command]:
    import logging

    from dockbell.app.once import run_commands
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    start_log(log_stream())
    logging.getLogger().setLevel(logging.WARNING)
    click.echo("no daemon is running: running the command here", err=True)
    reading = Reading(lines, await load_expected(config) if lines.is_shown else None)
    return await run_commands(config, Telemetry(log_fact, reading.hear), [(feed, kind) for feed in feeds])
