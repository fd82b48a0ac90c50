"""``dockbell replay``."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from dockbell.cli.asking import (
    all_option,
    choose_sink,
    feed_option,
    find_obstacles,
    key_option,
    load_sink,
    opened_command_store,
    read_option,
    read_selection,
    sequence_option,
)
from dockbell.cli.completing import complete_sinks
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import format_event, print_json, print_lines, print_reasons, print_table
from dockbell.cli.progress import showing

if TYPE_CHECKING:
    from datetime import datetime

    from dockbell.admin.replaying import Replayed
    from dockbell.config import Config
    from dockbell.ports import Selection, SinkState


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@feed_option
@key_option
@click.option("--event", "ids", multiple=True, metavar="ID", help="The event with this id.")
@sequence_option
@click.option("--since", metavar="TIME", help="Recorded at this time or later: 2026-11-21T02:30 (UTC), or 2h ago.")
@click.option("--until", metavar="TIME", help="Recorded before this time.")
@click.option("--failed", is_flag=True, help="Dead letters of the sink.")
@click.option("--never-sent", is_flag=True, help="From before the sink began; with --failed, either.")
@all_option
@click.option("--cancel", is_flag=True, help="Forget replays that wait, those of retried dead letters too.")
@click.option("--dry-run", is_flag=True, help="Count the events and show the first, and do nothing.")
@config_option
@json_option
@click.pass_context
def replay(
    ctx: click.Context,
    sink: str,
    *,
    feed_names: tuple[str, ...],
    keys: tuple[str, ...],
    ids: tuple[str, ...],
    span: str | None,
    since: str | None,
    until: str | None,
    failed: bool,
    never_sent: bool,
    everything: bool,
    cancel: bool,
    dry_run: bool,
    config_path: str | None,
    as_json: bool,
) -> None:
    """Send events that are kept to [sinks.SINK] again.

    Of the kept events those are sent that every option chooses and the sink's filters let through; what the sink is
    owed anyway is left out. They go below live traffic and in no promised order, unchanged, with their own id, and
    marked: dockbell-replay: true. Retained MQTT state is not touched. A daemon that runs begins within a second;
    without one they wait.

    \b
    chosen     events that are sent again now
    waiting    events whose replay waits already
    owed       events that the sink gets anyway
    filtered   events that its filters hold back

    \b
    Examples:
      dockbell replay erp --since 2h --dry-run
      dockbell replay erp --feed shipments --key shp_000123
      dockbell replay erp --failed
      dockbell replay erp --cancel
    """
    import anyio

    config = read_config(config_path)
    choose_sink(config, sink)
    given = (feed_names, keys, ids, span, since, until, failed, never_sent)
    if cancel:
        if any(given) or everything or dry_run:
            raise click.UsageError("--cancel forgets all replays of the sink that wait; give nothing else")
        forgotten = anyio.run(_cancel, config, sink)
        if as_json:
            print_json({"sink": sink, "forgotten": forgotten})
        else:
            click.echo(f"{forgotten} replays are forgotten")
        return
    if everything == any(given):
        raise click.UsageError("choose events by at least one option, or all of them by --all alone")
    selection = replace(
        read_selection(config, feed_names, keys, span),
        ids=ids,
        since=_read_time("--since", since),
        until=_read_time("--until", until),
        failed=failed,
        never_sent=never_sent,
    )
    replayed, state = anyio.run(_replay, config, sink, selection, dry_run)
    if as_json:
        print_json(_describe(config, replayed, state, dry=dry_run))
    else:
        _print(config, replayed, state, dry=dry_run)
    if replayed.problems:
        ctx.exit(PROBLEM)


def _read_time(option: str, text: str | None) -> datetime | None:
    from dockbell.admin.replaying import read_time
    from dockbell.app import now

    return None if text is None else read_option(option, lambda: read_time(text, now()))


async def _cancel(config: Config, sink: str) -> int:
    from dockbell.admin.replaying import forget_replays

    async with opened_command_store(config) as command_store:
        return await forget_replays(command_store, sink)


async def _replay(config: Config, sink: str, selection: Selection, dry: bool) -> tuple[Replayed, SinkState]:
    from dockbell import app
    from dockbell.admin.replaying import Replaying

    settings = config.sinks[sink]
    async with opened_command_store(config) as command_store:
        replaying = Replaying(
            command_store, sink, settings, await command_store.load_reaches(sink, settings.start), selection
        )
        if replaying.unwanted:
            feeds = ", ".join(map(str, replaying.unwanted))
            raise click.UsageError(f"sink {sink} takes nothing of {feeds}; see its sources and resources")
        with showing() as lines:

            def tell(looked: int, total: int, chosen: int) -> None:
                words = f"{looked:,} of {total:,} events looked at, {chosen:,} chosen"
                lines.tell(f"sink {sink}", words, done=looked, of=total)

            replayed = await replaying.run(app.now(), tell, dry=dry)
    return replayed, await load_sink(config, sink)


def _print(config: Config, replayed: Replayed, state: SinkState, *, dry: bool) -> None:
    rows = [each for each in replayed.feeds if each]
    if rows:
        print_table(
            ("feed", "chosen", "waiting", "owed", "filtered"),
            [(each.feed, each.chosen, each.waiting, each.owed, each.filtered) for each in rows],
        )
        click.echo()
    if dry:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for event in replayed.sample:
            click.echo(format_event(event, width=width, with_source=len(config.sources) > 1))
        if replayed.chosen > len(replayed.sample):
            click.echo(f"and {replayed.chosen - len(replayed.sample)} more")
        click.echo(f"{replayed.chosen} events would be sent again; nothing was written")
    elif not rows:
        click.echo("no kept event is chosen")
    else:
        click.echo(f"{replayed.chosen} events are to be sent again; {state.replays} wait to be sent to {state.name}")
        if state.replays:
            click.echo("they go below live traffic, marked dockbell-replay: true, in no promised order")
            for obstacle in find_obstacles(config, state):
                print_lines(obstacle)
    print_reasons(replayed.problems)


def _describe(config: Config, replayed: Replayed, state: SinkState, *, dry: bool) -> dict[str, Any]:
    from dockbell import app

    return {
        "sink": state.name,
        "dry_run": dry,
        "chosen": replayed.chosen,
        "feeds": [asdict(each) | {"feed": str(each.feed)} for each in replayed.feeds],
        "sample": [
            {"feed": str(event.feed), "sequence": event.sequence, "key": event.key, "id": event.id, "type": event.type}
            for event in replayed.sample
        ],
        "problems": replayed.problems,
        "replays": state.replays,
        "paused": state.paused or None,
        "daemon": app.find_holder(config) or None,
    }
