"""``dockbell deletes``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.completing import complete_feeds
from dockbell.cli.feed_commands import choose_feeds, run_feed_commands, wait_option
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dockbell.admin.commands import HeldDeletions
    from dockbell.config import Config
    from dockbell.core.model import Feed

_SAMPLE: Final = 10
_SAMPLE_IN_JSON: Final = 1000


@click.command()
@click.argument("action", type=click.Choice(["list", "approve", "reject"]), default="list", metavar="[ACTION]")
@click.argument("feed", required=False, shell_complete=complete_feeds)
@config_option
@json_option
@wait_option
@click.pass_context
def deletes(
    ctx: click.Context, config_path: str | None, *, action: str, feed: str | None, as_json: bool, wait: bool
) -> None:
    """List held mass deletions, approve or reject them.

    A feed whose records vanish in a mass, or all at once, is more likely half broken than empty: such deletions are
    held, and published only on your word. FEED is source/resource, or only the resource where one source has it;
    without it, all feeds that hold deletions are meant.

    \b
    list      what is held, since when, and some of the keys (default)
    approve   read the feed whole once more, and delete what is absent again
    reject    keep the records as they are until they are seen again

    \b
    Examples:
      dockbell deletes
      dockbell deletes approve main/warehouses
      dockbell deletes reject
    """
    import anyio

    from dockbell.ports import CommandKind

    config = read_config(config_path)
    feeds = choose_feeds(config, [feed] if feed else [])
    held = anyio.run(_load, config, feeds, _SAMPLE_IN_JSON if as_json else _SAMPLE)
    if action == "list" and as_json:
        print_json([_describe(each) for each in held])
    elif action == "list" and held:
        _print(held)
    elif not held and not as_json:
        click.echo("no deletions are held")
    else:
        kind = CommandKind.APPROVE if action == "approve" else CommandKind.REJECT
        if not run_feed_commands(config, [each.feed for each in held], kind, wait=wait, as_json=as_json):
            ctx.exit(PROBLEM)


async def _load(config: Config, feeds: Sequence[Feed], most: int) -> Sequence[HeldDeletions]:
    from dockbell import app
    from dockbell.admin.commands import list_deletions

    read_store = await app.open_read_store(config)
    try:
        return await list_deletions(read_store, feeds, most=most)
    finally:
        await read_store.aclose()


def _print(held: Sequence[HeldDeletions]) -> None:
    print_table(("feed", "held", "since"), [(each.feed, each.count, _write(each.since)) for each in held])
    for each in held:
        click.echo()
        print_table(
            (f"{each.feed}: key", "last seen", "modified"),
            [(record.key, _write(record.there_at), _write(record.modified)) for record in each.sample],
        )
        if each.count > len(each.sample):
            click.echo(f"and {each.count - len(each.sample)} more")
    click.echo('\n"dockbell deletes approve FEED" deletes them, "dockbell deletes reject FEED" keeps them')


def _write(moment: datetime | None) -> str:
    from dockbell.admin.explaining import write_time

    return "" if moment is None else write_time(moment)


def _describe(each: HeldDeletions) -> dict[str, object]:
    return {
        "feed": str(each.feed),
        "held": each.count,
        "since": each.since,
        "sample": [
            {"key": record.key, "last_seen": record.there_at, "modified": record.modified} for record in each.sample
        ],
    }
