"""``dockbell test``, ``secret``, ``pause``, ``resume``, ``retry`` and ``replay``: what is done with one sink."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Unpack

import click
from msgspec.structs import replace

from dockbell.cli.completion import complete_sinks
from dockbell.cli.group import exit_if
from dockbell.cli.options import (
    Chosen,
    all_option,
    choose_sink,
    config_option,
    feed_option,
    find_obstacles,
    json_option,
    key_option,
    load_sinks,
    read_followed,
    read_option,
    read_selection,
    sequence_option,
    use_command_store,
)
from dockbell.cli.printing import print_event, print_json, print_lines, print_reasons, print_table, write_cell
from dockbell.cli.progress import showing
from dockbell.core.counting import count_of

if TYPE_CHECKING:
    from datetime import datetime

    from dockbell.admin.replaying import Replayed
    from dockbell.config import Config
    from dockbell.ports import CommandStore, Selection, SinkState

_SECRET_BYTES: Final = 32


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@config_option
def test(sink: str, config_path: str | None) -> None:
    """Send a marked test event to [sinks.SINK].

    Reports the outcome, and exits with 1 when the event was not delivered. Stores nothing, and does not disturb a
    running daemon.

    \b
    Example:
      dockbell test erp
    """
    import secrets

    import anyio

    from dockbell.admin.check import try_sink
    from dockbell.app import now, open_sink
    from dockbell.core.model import OutcomeKind
    from dockbell.core.publishing.event import test_event
    from dockbell.telemetry import Telemetry

    config = _read_config(config_path, sink)
    event = test_event(config.name, sink, now(), secrets.token_hex(8))
    outcome = anyio.run(try_sink, open_sink(config, sink, Telemetry(), aside=True), event)
    reason = f": {outcome.reason}" if outcome.reason else ""
    print_lines(f"{event.id} {outcome.kind}{reason}")
    exit_if(outcome.kind is not OutcomeKind.DELIVERED)


@click.command()
@click.option(
    "--ed25519", is_flag=True, help="Print a signing_key, and the public key for the receiver on standard error."
)
def secret(*, ed25519: bool) -> None:
    """Print a new secret for signing webhooks.

    \b
    Examples:
      export ERP_WEBHOOK_SECRET=$(dockbell secret)
      dockbell secret > erp.secret && chmod 600 erp.secret
      dockbell secret --ed25519 > erp.key && chmod 600 erp.key
    """
    import secrets

    if ed25519:
        from dockbell.sinks.webhook import signing_key

        key = signing_key.mint(secrets.token_bytes(_SECRET_BYTES))
        public = signing_key.SigningKey(key).public
        click.echo(key)
        click.echo(f"public key for the receiver: {public}", err=True)
        return

    from dockbell.core.publishing.signature import mint

    click.echo(mint(secrets.token_bytes(_SECRET_BYTES)))


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@click.option("--reason", default="by an operator", show_default=True, metavar="TEXT", help="Reason to show in status.")
@config_option
@json_option
def pause(config_path: str | None, *, sink: str, reason: str, as_json: bool) -> None:
    """Stop sending to [sinks.SINK] until you resume it.

    dockbell finishes deliveries in flight; all other events wait. A running daemon stops sending within a second, and
    the sink stays paused when the daemon restarts. A sink pauses itself when its receiver answers "410 Gone".

    \b
    Examples:
      dockbell pause erp --reason "moving house"
      dockbell resume erp
    """
    from dockbell.app import now

    if not reason.strip():
        raise click.UsageError("--reason: must not be empty")
    config = _read_config(config_path, sink)
    is_new = use_command_store(config, lambda command_store: command_store.pause(sink, reason, now()))
    state = load_sinks(config)[sink]
    if as_json:
        print_json({"sink": sink, "paused": state.paused, "paused_at": state.paused_at, "changed": is_new})
    elif is_new:
        click.echo(f'sink {sink} is paused; its events wait until "dockbell resume {sink}"')
    else:
        print_lines(f"sink {sink} is already paused, since {write_cell(state.paused_at)}: {state.paused}")


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@config_option
@json_option
def resume(config_path: str | None, *, sink: str, as_json: bool) -> None:
    """Resume a paused [sinks.SINK] and send everything it is owed.

    A running daemon starts to send within a second, including events that waited for their next attempt.

    \b
    Example:
      dockbell resume erp
    """
    from dockbell import app

    config = _read_config(config_path, sink)
    was_paused = use_command_store(config, lambda command_store: command_store.resume(sink, app.now()))
    state, holder = load_sinks(config)[sink], app.find_holder(config)
    if as_json:
        print_json({"sink": sink, "changed": was_paused, "owed": state.owed, "daemon": holder or None})
    elif not was_paused:
        click.echo(f'sink {sink} is not paused; "dockbell retry {sink}" retries its waiting events now')
    else:
        click.echo(f"resumed sink {sink}; it is owed {count_of(state.owed, 'event')}")
        if not holder:
            click.echo('no daemon is running: "dockbell run" starts one, which sends them')


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@config_option
@json_option
def retry(config_path: str | None, *, sink: str, as_json: bool) -> None:
    """Retry the waiting events of [sinks.SINK] now.

    Use this command after a receiver has recovered. It ends the wait for the next attempt, and any pause that the
    receiver asked for. dockbell keeps counting attempts. A running daemon starts to send within a second. To send dead
    letters, use "dockbell dead retry".

    \b
    Example:
      dockbell retry erp
    """
    from dockbell import app

    config = _read_config(config_path, sink)
    hurried = use_command_store(config, lambda command_store: command_store.hurry(sink, app.now()))
    state = load_sinks(config)[sink]
    if as_json:
        told = {"sink": sink, "keys": hurried.keys, "replays": hurried.replays}
        print_json(told | {"paused": state.paused or None, "daemon": app.find_holder(config) or None})
        return
    records, replays = count_of(hurried.keys, "waiting record"), count_of(hurried.replays, "waiting replay")
    click.echo(f"sink {sink}: {records} and {replays} are due now")
    for obstacle in find_obstacles(config, state):
        print_lines(obstacle)


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@feed_option
@key_option
@click.option("--event", "ids", multiple=True, metavar="ID", help="Select the event with this id.")
@sequence_option
@click.option(
    "--since",
    metavar="TIME",
    help="Select events recorded at this time or later: 2026-11-21T02:30 (UTC), or 2h for two hours ago.",
)
@click.option("--until", metavar="TIME", help="Select events recorded before this time.")
@click.option("--failed", is_flag=True, help="Select dead letters of the sink.")
@click.option(
    "--never-sent", is_flag=True, help="Select events from before the sink began; with --failed, either kind."
)
@all_option
@click.option("--cancel", is_flag=True, help="Cancel waiting replays, including those of retried dead letters.")
@click.option("--dry-run", is_flag=True, help="Count the events and show the first ones, but send nothing.")
@config_option
@json_option
def replay(
    sink: str,
    *,
    ids: tuple[str, ...],
    since: str | None,
    until: str | None,
    failed: bool,
    never_sent: bool,
    everything: bool,
    cancel: bool,
    dry_run: bool,
    config_path: str | None,
    as_json: bool,
    **chosen: Unpack[Chosen],
) -> None:
    """Send kept events to [sinks.SINK] again.

    Sends the kept events that match every option and that the sink's filters let through, except events that the sink
    is owed anyway. dockbell sends them unchanged, with their own id and the mark dockbell-replay: true, in no
    guaranteed order, and with lower priority than live traffic. Retained MQTT state does not change. A running daemon
    starts to send within a second; without a daemon, the events wait.

    \b
    chosen     events that are sent again now
    waiting    events whose replay already waits
    owed       events that the sink gets anyway
    filtered   events that the sink's filters hold back

    \b
    Examples:
      dockbell replay erp --since 2h --dry-run
      dockbell replay erp --feed shipments --key shp_000123
      dockbell replay erp --failed
      dockbell replay erp --cancel
    """
    from dockbell.admin.replaying import forget_replays

    config = _read_config(config_path, sink)
    given = (*chosen.values(), ids, since, until, failed, never_sent)
    if cancel:
        if any(given) or everything or dry_run:
            raise click.UsageError("--cancel cancels all waiting replays of the sink; remove the other options")
        forgotten = use_command_store(config, lambda command_store: forget_replays(command_store, sink))
        if as_json:
            print_json({"sink": sink, "forgotten": forgotten})
        else:
            click.echo(f"cancelled {count_of(forgotten, 'replay')}")
        return
    if everything == any(given):
        raise click.UsageError("select events with at least one option, or pass only --all")
    selection = replace(
        read_selection(config, chosen),
        ids=ids,
        since=_read_time("--since", since),
        until=_read_time("--until", until),
        failed=failed,
        never_sent=never_sent,
    )
    replayed = use_command_store(config, lambda command_store: _replay(command_store, config, sink, selection, dry_run))
    state = load_sinks(config)[sink]
    if as_json:
        print_json(_describe(config, replayed, state, dry=dry_run))
    else:
        _print(config, replayed, state, dry=dry_run)
    exit_if(replayed.problems)


def _read_config(config_path: str | None, sink: str) -> Config:
    config = read_followed(config_path)
    choose_sink(config, sink)
    return config


def _read_time(option: str, text: str | None) -> datetime | None:
    from dockbell.admin.replaying import read_time
    from dockbell.app import now

    return None if text is None else read_option(option, lambda: read_time(text, now()))


async def _replay(command_store: CommandStore, config: Config, sink: str, selection: Selection, dry: bool) -> Replayed:
    from dockbell.admin.replaying import Replaying
    from dockbell.app import now

    settings = config.sinks[sink]
    reaches = await command_store.load_reaches(sink, settings.start)
    replaying = Replaying(command_store, sink, settings, reaches, selection)
    if replaying.unwanted:
        feeds = ", ".join(map(str, replaying.unwanted))
        raise click.UsageError(f"sink {sink} takes no events of {feeds}; check its sources and resources")
    with showing() as lines:

        def tell(looked: int, total: int, chosen: int) -> None:
            words = f"{looked:,} of {total:,} events checked, {chosen:,} chosen"
            lines.tell(f"sink {sink}", words, done=looked, of=total)

        return await replaying.run(now(), tell, dry=dry)


def _print(config: Config, replayed: Replayed, state: SinkState, *, dry: bool) -> None:
    rows = [each for each in replayed.feeds if each]
    if rows:
        counts = [(each.feed, each.chosen, each.waiting, each.owed, each.filtered) for each in rows]
        print_table(("feed", "chosen", "waiting", "owed", "filtered"), counts)
        click.echo()
    chosen = count_of(replayed.chosen, "event")
    if dry:
        for event in replayed.sample:
            print_event(event, with_source=len(config.sources) > 1)
        if replayed.chosen > len(replayed.sample):
            click.echo(f"and {replayed.chosen - len(replayed.sample)} more")
        click.echo(f"{chosen} would be sent again; nothing was written")
    elif not rows:
        click.echo("no kept event matches")
    else:
        click.echo(f"queued {chosen} for replay; {count_of(state.replays, 'replay')} waiting for {state.name}")
        if state.replays:
            click.echo(
                "they have lower priority than live traffic, no guaranteed order, and the mark dockbell-replay: true"
            )
            for obstacle in find_obstacles(config, state):
                print_lines(obstacle)
    print_reasons(replayed.problems)


def _describe(config: Config, replayed: Replayed, state: SinkState, *, dry: bool) -> dict[str, Any]:
    from dockbell import app

    sample = [
        {"feed": str(event.feed), "sequence": event.sequence, "key": event.key, "id": event.id, "type": event.type}
        for event in replayed.sample
    ]
    return {
        "sink": state.name,
        "dry_run": dry,
        "chosen": replayed.chosen,
        "feeds": [asdict(each) | {"feed": str(each.feed)} for each in replayed.feeds],
        "sample": sample,
        "problems": replayed.problems,
        "replays": state.replays,
        "paused": state.paused or None,
        "daemon": app.find_holder(config) or None,
    }
