"""``dockbell state``: the stored records, for pipes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from dockbell.cli.completion import complete_feeds
from dockbell.cli.group import exit_if
from dockbell.cli.options import choose_feeds, config_option, read_followed
from dockbell.cli.printing import print_raw, write_cell

if TYPE_CHECKING:
    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import FeedState, ReadStore


@click.command()
@click.argument("feed", required=False, shell_complete=complete_feeds)
@click.argument("key", required=False)
@click.option("--find", "text", metavar="TEXT", help="Only records with TEXT in a value or in their key.")
@click.option("--deleted", is_flag=True, help="Include deleted records, as they last were.")
@config_option
def state(config_path: str | None, *, feed: str | None, key: str | None, text: str | None, deleted: bool) -> None:
    """Print the stored records as JSON lines.

    Prints all records, the records of FEED, or the record with KEY. FEED is source/resource, or the resource alone if
    only one source has it. FEED may have left the configuration. Write KEY as in events, or as the API writes it.

    Works while the daemon runs: each record is printed as it is stored at that moment. If the baseline of a feed is not
    complete yet, the command names the feed on standard error.

    \b
    feed, key     the record, as in events
    revision      number of changes of the record
    modified      the record's own timestamp; null if it has none
    fingerprint   hash of the content, as dockbell compares it; null after a purge
    gone_at       when the record was deleted; null while it exists
    record        content, without what `drop` leaves out; null after it was erased

    "dockbell purge" erases the content of a deleted record. Otherwise, dockbell erases it after keep_events.

    Exits with 1 when no record with KEY is stored, or when the record is deleted and you do not pass --deleted.

    \b
    Examples:
      dockbell state > records.jsonl
      dockbell state shipments | jq -c .record
      dockbell state main/stock --deleted | jq -r 'select(.gone_at) | .key'
      dockbell state shipments shp_000123
      dockbell state shipments --find SO-28765062
    """
    import anyio

    if text is not None and key is not None:
        raise click.UsageError("KEY selects one record; remove --find")
    anyio.run(_print, read_followed(config_path), feed, key, text, deleted)


async def _print(config: Config, name: str | None, key: str | None, text: str | None, deleted: bool) -> None:
    from dockbell import app
    from dockbell.core.model import RESOURCES

    async with aclosing(await app.open_read_store(config)) as read_store:
        states = {state.feed: state for state in await read_store.load_feeds()}
        feeds = choose_feeds(config, () if name is None else (name,), states)
        if name is not None and feeds[0].resource not in RESOURCES:
            raise click.UsageError(f"{feeds[0]} has no records")
        for feed in feeds:
            if key is not None:
                await _print_one(read_store, feed, states.get(feed), key, deleted=deleted)
            elif feed.resource in RESOURCES:
                await _print_all(read_store, feed, states.get(feed), text or "", deleted=deleted)


async def _print_all(read_store: ReadStore, feed: Feed, state: FeedState | None, text: str, *, deleted: bool) -> None:
    from dockbell.admin.history_as_json import write_stored
    from dockbell.admin.state import read_all
    from dockbell.core.text_search import TextSearch

    if state is None or not state.passes or state.rebaselining:
        click.echo(f"{feed}: the baseline is not complete yet; records may be missing", err=True)
    if state is not None:
        search = TextSearch(text)
        async for record in read_all(read_store, state, with_gone=deleted):
            if search.matches(record.key, record.body):
                print_raw(write_stored(feed, record))


async def _print_one(read_store: ReadStore, feed: Feed, state: FeedState | None, key: str, *, deleted: bool) -> None:
    from dockbell.admin.history_as_json import write_stored
    from dockbell.admin.state import find_one

    try:
        record = None if state is None else await find_one(read_store, state, key)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    problem = ""
    if record is None:
        problem = f'not in the store; "dockbell why {feed} {key}" may explain why'
    elif record.gone_at is not None and not deleted:
        problem = f"deleted at {write_cell(record.gone_at)}; --deleted prints what is left"
    else:
        print_raw(write_stored(feed, record))
    if problem:
        click.echo(f"{feed} {key}: {problem}", err=True)
    exit_if(problem)
