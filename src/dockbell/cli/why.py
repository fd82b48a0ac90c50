"""``dockbell why``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from dockbell.cli.completing import complete_resources, complete_sources
from dockbell.cli.feed_commands import choose_feeds
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_lines, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dockbell.admin.why import EventTrace, RecordHistory, SinkTrace
    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import Noted, RunRecord


@click.command()
@click.argument("resource", shell_complete=complete_resources)
@click.argument("key")
@config_option
@json_option
@click.option(
    "--source",
    metavar="NAME",
    shell_complete=complete_sources,
    help="The source; needed where several read the resource.",
)
def why(config_path: str | None, *, resource: str, key: str, as_json: bool, source: str | None) -> None:
    """Say why a record has the events that it has, or none.

    Prints the record as it is stored, the last runs that covered it, what its readings came to, its events and how far
    they are with each sink. KEY is written as in events and topics, components joined by commas; a key as the API
    writes it is understood too. Times are UTC.

    \b
    delivered   the sink has taken it, or began after it
    owed        it is on its way
    waiting     behind an earlier event of the record
    blocked     the last attempt failed, the next is due
    dead        it is a dead letter
    filtered    the sink does not want it
    not begun   the sink is new: the daemon must be started again

    \b
    Examples:
      dockbell why shipments shp_000123
      dockbell why stock SKU-1,wh_1 --source main --json
    """
    import anyio

    from dockbell.admin.as_json import describe_history
    from dockbell.admin.explaining import explain

    config = read_config(config_path)
    (feed,) = choose_feeds(config, [f"{source}/{resource}" if source else resource])
    try:
        account = anyio.run(_load, config, feed, key)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json(describe_history(account, key))
        return
    reason = explain(account)
    if account.key != key:
        print_lines(f'key "{key}" is taken for {account.key}\n')
    _print(account)
    if reason:
        click.echo(f"\n{click.style('why:', bold=True)} {reason}")


async def _load(config: Config, feed: Feed, key: str) -> RecordHistory:
    from dockbell import app
    from dockbell.admin.why import find_history

    read_store = await app.open_read_store(config)
    try:
        return await find_history(read_store, feed, key, feeds=config.feeds(), sinks=config.sinks, at=app.now())
    finally:
        await read_store.aclose()


def _print(account: RecordHistory) -> None:
    print_lines(f"{account.feed} {account.key}: {_tell_record(account)}")
    for title, headings, rows in (
        ("runs that covered it", ("asked", "run", "result"), _run_rows(account.runs)),
        ("findings", ("at", "via", "finding", "modified", "fingerprint", "event"), map(_note_row, account.notes)),
        ("events", ("sequence", "recorded", "type", "id", "sinks"), map(_event_row, account.events)),
    ):
        listed = list(rows)
        if listed:
            click.echo(f"\n{title}")
            print_table(headings, listed)


def _tell_record(account: RecordHistory) -> str:
    record = account.record
    words = [account.presence.value]
    if record is not None:
        if record.gone_at is not None:
            words.append(f"since {_write(record.gone_at)}")
        words += [f"revision {record.revision}", f"modified {_write(record.modified) or 'at no known time'}"]
        words.append("purged" if record.is_purged else f"fingerprint {_shorten(record.fingerprint)}")
        if record.held_at is not None:
            words.append(f"a reading is held since {_write(record.held_at)}")
    if account.quarantined:
        words.append("in quarantine")
    return ", ".join(words)


def _run_rows(runs: Sequence[RunRecord]) -> list[tuple[object, ...]]:
    from dockbell.admin.why import gather

    rows: list[tuple[object, ...]] = []
    for group in gather(runs):
        first, last = group[0], group[-1]
        if len(group) == 1:
            asked, kind = _write(first.asked_at), f"{first.kind}"
            result = f"{first.pages} pages, {first.records} records, {first.events} events"
        else:
            asked, kind = f"{_write(first.asked_at)} to {_write(last.asked_at)}", f"{len(group)} times {first.kind}"
            result = f"{sum(run.pages for run in group)} pages, {sum(run.events for run in group)} events"
        rows.append((asked, kind, f"incomplete, {first.problem}" if first.problem else f"complete, {result}"))
    return rows


def _note_row(note: Noted) -> tuple[object, ...]:
    event = "" if note.sequence is None else f"#{note.sequence}"
    return (_write(note.at), note.via, note.finding, _write(note.modified), _shorten(note.fingerprint), event)


def _event_row(told: EventTrace) -> tuple[object, ...]:
    event = told.event
    sinks = "; ".join(f"{transit.sink} {_tell_transit(transit)}" for transit in told.transits)
    kind = f"{event.type} (unjudged: its condition took too long)" if told.is_unjudged else event.type
    return (f"#{event.sequence}", _write(told.recorded_at), kind, event.id, sinks)


def _tell_transit(transit: SinkTrace) -> str:
    from dockbell.admin.why import Stage

    error = f": {transit.error}" if transit.error else ""
    if transit.stage is Stage.BLOCKED:
        return f"blocked after {transit.attempts} attempts{error}, next at {_write(transit.due)}"
    if transit.stage is Stage.DEAD:
        return f"dead after {transit.attempts} attempts{error}"
    if transit.stage is Stage.FILTERED:
        return f"filtered{error}"
    return f"{transit.stage.value}{error}"


def _write(moment: datetime | None) -> str:
    from dockbell.admin.explaining import write_time

    return "" if moment is None else write_time(moment)


def _shorten(fingerprint: bytes | None) -> str:
    return "" if fingerprint is None else fingerprint.hex()[:8]
