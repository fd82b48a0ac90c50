"""``dockbell why`` and ``purge``: what is stored of one record."""

from __future__ import annotations

import sys
from contextlib import aclosing
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.completion import complete_resources, complete_sources
from dockbell.cli.deliveries import print_attempts, tell_delivery
from dockbell.cli.group import exit_if
from dockbell.cli.options import ask_store, choose_feeds, config_option, json_option, read_followed, read_selection
from dockbell.cli.printing import print_json, print_lines, print_table, write_cell
from dockbell.core.counting import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dockbell.admin.commands import Result, Target
    from dockbell.admin.why import EventTrace, RecordHistory
    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import Noted, RunRecord

_ATTEMPTS_SHOWN: Final = 30
_RUNS: Final = {"poll": "polls", "trailing": "trailing polls", "pass": "passes"}


@click.command()
@click.argument("resource", shell_complete=complete_resources)
@click.argument("key")
@config_option
@json_option
@click.option(
    "--source",
    metavar="NAME",
    shell_complete=complete_sources,
    help="The source; required if several sources have the resource.",
)
def why(config_path: str | None, *, resource: str, key: str, as_json: bool, source: str | None) -> None:
    """Explain why a record has its events, or has none.

    Prints the stored record, the last runs that covered it, the result of its readings, its events with their progress
    at each sink, and the delivery attempts with the receivers' answers. Write KEY as in events and topics, with commas
    between components. The command also accepts a key as the API writes it. Times are UTC.

    \b
    delivered   the sink has taken the event
    owed        the event is on its way
    waiting     the event waits behind an earlier event of the record
    blocked     the last attempt failed; the next attempt is due
    dead        the event is a dead letter
    held        the event waits behind a dead letter of the record, until you decide on that
    filtered    the sink does not take this event
    not begun   the sink is new; restart the daemon
    before its beginning  the sink began after the event

    Exits with 1 when dockbell knows nothing of the record.

    \b
    Examples:
      dockbell why shipments shp_000123
      dockbell why stock SKU-1,wh_1 --source main --json
    """
    from dockbell.admin.history_as_json import describe_history
    from dockbell.admin.why import find_history
    from dockbell.app import now

    config = read_followed(config_path)
    (feed,) = choose_feeds(config, [f"{source}/{resource}" if source else resource])
    try:
        account = ask_store(
            config,
            lambda read_store: find_history(read_store, feed, key, feeds=config.feeds(), sinks=config.sinks, at=now()),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json(describe_history(account, key))
    else:
        _print(account, key)
    exit_if(not account.is_known)


def _print(account: RecordHistory, given: str) -> None:
    from dockbell.admin.why import explain

    if account.key != given:
        print_lines(f'key "{given}" is read as {account.key}\n')
    print_lines(f"{account.feed} {account.key}: {_tell_record(account)}")
    events = [_event_row(each, account.at) for each in account.events]
    for title, headings, rows in (
        ("runs that covered the record", ("asked", "run", "result"), _run_rows(account.runs)),
        ("findings", ("at", "via", "finding", "modified", "fingerprint", "event"), map(_note_row, account.notes)),
        (
            "events",
            ("sequence", "recorded", "type", "id", "sinks"),
            events,
        ),
    ):
        listed = list(rows)
        if listed:
            click.echo(f"\n{title}")
            print_table(headings, listed)
    attempts = [(trace.sink, each) for told in account.events for trace in told.traces for each in trace.log]
    attempts.sort(key=lambda each: each[1].began_at)
    if len(attempts) > _ATTEMPTS_SHOWN:
        click.echo(f"\nshowing the last {_ATTEMPTS_SHOWN} of {len(attempts)} attempts; --json shows all")
    print_attempts(attempts[-_ATTEMPTS_SHOWN:])
    if reason := explain(account):
        click.echo(f"\n{click.style('why:', bold=True)} {reason}")


def _tell_record(account: RecordHistory) -> str:
    record = account.record
    words = [account.presence.value]
    if record is not None:
        if record.gone_at is not None:
            words.append(f"since {write_cell(record.gone_at)}")
        words += [f"revision {record.revision}", f"modified {write_cell(record.modified) or 'at an unknown time'}"]
        words.append("purged" if record.is_purged else f"fingerprint {_shorten(record.fingerprint)}")
        if record.held_at is not None:
            words.append(f"a reading held since {write_cell(record.held_at)}")
    if account.quarantined:
        words.append("in quarantine")
    return ", ".join(words)


def _run_rows(runs: Sequence[RunRecord]) -> list[tuple[object, ...]]:
    """Return a row for each group of consecutive runs of one kind with one outcome."""
    rows: list[tuple[object, ...]] = []
    for _, alike in groupby(runs, lambda run: (run.kind, run.problem)):
        group = list(alike)
        first, last = group[0], group[-1]
        if len(group) == 1:
            asked, kind = write_cell(first.asked_at), f"{first.kind}"
            counts = [(first.pages, "page"), (first.records, "record"), (first.events, "event")]
        else:
            asked, kind = (
                f"{write_cell(first.asked_at)} to {write_cell(last.asked_at)}",
                f"{len(group)} {_RUNS[first.kind]}",
            )
            counts = [(sum(run.pages for run in group), "page"), (sum(run.events for run in group), "event")]
        result = ", ".join(count_of(*each) for each in counts)
        rows.append((asked, kind, f"incomplete, {first.problem}" if first.problem else f"complete, {result}"))
    return rows


def _note_row(note: Noted) -> tuple[object, ...]:
    event = "" if note.sequence is None else f"#{note.sequence}"
    return (note.at, note.via, note.finding, note.modified, _shorten(note.fingerprint), event)


def _event_row(told: EventTrace, at: datetime) -> tuple[object, ...]:
    event = told.event
    sinks = "; ".join(f"{trace.sink} {tell_delivery(trace, at)}" for trace in told.traces)
    kind = f"{event.type} (unjudged: its condition took too long to evaluate)" if told.is_unjudged else event.type
    return (f"#{event.sequence}", told.recorded_at, kind, event.id, sinks)


def _shorten(fingerprint: bytes | None) -> str:
    return "" if fingerprint is None else fingerprint.hex()[:8]


@click.command()
@click.argument("feed")
@click.argument("key")
@click.option(
    "--anyway", is_flag=True, help="Erase even if the API still shows the record; it comes back with the next pass."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
@config_option
@json_option
def purge(config_path: str | None, *, feed: str, key: str, anyway: bool, yes: bool, as_json: bool) -> None:
    """Permanently erase the stored content of one record.

    Erases the record's stored text, its held and waiting content, its readings in quarantine, and the content of its
    kept events. The events stay in their places, empty. The key, the revision and the timestamp stay too, so numbering
    continues. Subscribers get a last event, `deleted` with the reason `purged`, and retained state is cleared. dockbell
    then rewrites the files of the store to leave no trace in them. Backups keep the content.

    FEED is source/resource, or the resource alone if only one source has it. FEED may have left the configuration.
    Write KEY as in events, or as the API writes it.

    A record that the API still shows comes back with the next pass, as `restored`. Remove the record from the API
    first, or exclude fields permanently with `drop` in [resources.X].

    On a terminal, the command asks before it erases. Without a terminal, for example in a script, it erases nothing
    without --yes.

    \b
    Examples:
      dockbell purge shipments shp_000123
      dockbell purge shipments shp_000123 --anyway --yes
    """
    import anyio

    from dockbell.admin.commands import find_target
    from dockbell.core.model import RESOURCES

    config = read_followed(config_path)
    (meant,) = read_selection(config, {"feed_names": (feed,), "keys": (), "span": None}).feeds
    if meant.resource not in RESOURCES:
        raise click.UsageError(f"{meant} has no records")
    try:
        target = ask_store(config, lambda read_store: find_target(read_store, meant, key))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if target is None:
        _refuse(meant, key, "not in the store", as_json=as_json)
    elif target.is_there and not anyway:
        words = (
            "the record still exists, so the next pass would store it again; remove it from the API, or add --anyway"
        )
        _refuse(meant, target.key, words, as_json=as_json)
    else:
        if not yes:
            if not _is_asked():
                raise click.UsageError(
                    "purge erases permanently and cannot ask for confirmation without a terminal; add --yes"
                )
            click.confirm(f"permanently erase all content of {meant} {target.key}?", abort=True, err=True)
        result = anyio.run(_purge, config, target)
        _tell_result(target, result, as_json=as_json)
        exit_if(not result.is_done)


def _is_asked() -> bool:
    return sys.stdin.isatty()


def _refuse(feed: Feed, key: str, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"feed": str(feed), "key": key, "outcome": "failed", "detail": words})
    else:
        click.echo(f"{feed} {key}: {words}", err=True)
    exit_if(words)


async def _purge(config: Config, target: Target) -> Result:
    """Have it done by the daemon, or do it here."""
    from dockbell import app
    from dockbell.admin.commands import await_commands, read_result
    from dockbell.ports import Command, CommandKind

    if not app.find_holder(config):
        from dockbell.app.once import run_purge

        outcome = await run_purge(config, target.feed, target.key)
        return read_result(Command(0, CommandKind.PURGE, target.feed, outcome))
    async with aclosing(await app.open_command_store(config)) as command_store:
        number = await command_store.make_command(target.feed, CommandKind.PURGE, app.now(), target.key)
        (command,) = await await_commands(
            command_store,
            [Command(number, CommandKind.PURGE, target.feed)],
            is_held=lambda: bool(app.find_holder(config)),
        )
    return read_result(command)


def _tell_result(target: Target, result: Result, *, as_json: bool) -> None:
    if as_json:
        told = {"feed": str(target.feed), "key": target.key, "outcome": result.verdict}
        print_json({**told, **result.counts, "detail": result.detail})
    elif result.is_done:
        news = ", subscribers get a last event" if result.counts["published"] else ""
        click.echo(f"{target.feed} {target.key}: erased, {result.counts['emptied']} kept events emptied{news}")
    else:
        click.echo(f"{target.feed} {target.key}: {result.verdict}: {result.detail}", err=True)
