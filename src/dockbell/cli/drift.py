"""``dockbell drift``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.completing import complete_feeds
from dockbell.cli.feed_commands import choose_feeds, run_feed_commands, wait_option
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dockbell.admin.commands import HeldDrift
    from dockbell.config import Config
    from dockbell.core.model import Feed


@click.command()
@click.argument("action", type=click.Choice(["list", "absorb", "publish"]), default="list", metavar="[ACTION]")
@click.argument("feed", required=False, shell_complete=complete_feeds)
@config_option
@json_option
@wait_option
@click.pass_context
def drift(
    ctx: click.Context, config_path: str | None, *, action: str, feed: str | None, as_json: bool, wait: bool
) -> None:
    """List held new or lost fields, absorb or publish them.

    When the API is deployed with other fields, no record has really changed: readings that differ by these fields alone
    are held until you decide. FEED is source/resource, or only the resource where one source has it; without it, all
    feeds that hold drift are meant.

    \b
    list      the fields, how many readings the last pass held, since when (default)
    absorb    store the records with their new form, without events
    publish   publish an update of each record

    \b
    Examples:
      dockbell drift
      dockbell drift absorb main/shipments
    """
    import anyio

    from dockbell.core.comparing.drift import Decision
    from dockbell.ports import CommandKind

    config = read_config(config_path)
    found = anyio.run(_load, config, choose_feeds(config, [feed] if feed else []))
    if action == "list":
        if as_json:
            print_json([_describe(each) for each in found])
        else:
            _print(found)
        return
    kind = CommandKind.ABSORB if action == "absorb" else CommandKind.PUBLISH
    waiting = [each.feed for each in found if each.decision is Decision.HOLD]
    if not waiting and not as_json:
        click.echo("no drift is held")
    elif not run_feed_commands(config, waiting, kind, wait=wait, as_json=as_json):
        ctx.exit(PROBLEM)


async def _load(config: Config, feeds: Sequence[Feed]) -> Sequence[HeldDrift]:
    from dockbell import app
    from dockbell.admin.commands import list_drift

    read_store = await app.open_read_store(config)
    try:
        return await list_drift(read_store, feeds)
    finally:
        await read_store.aclose()


def _print(found: Sequence[HeldDrift]) -> None:
    from dockbell.admin.explaining import write_time

    if not found:
        click.echo("no drift is held")
        return
    print_table(
        ("feed", "fields", "readings", "since", "decision"),
        [
            (
                each.feed,
                ", ".join(each.paths),
                each.count or "",
                "" if each.since is None else write_time(each.since),
                each.decision,
            )
            for each in found
        ],
    )
    click.echo(
        '\n"dockbell drift absorb FEED" is silent, "dockbell drift publish FEED" publishes an update of each record'
    )


def _describe(each: HeldDrift) -> dict[str, object]:
    return {
        "feed": str(each.feed),
        "fields": list(each.paths),
        "readings": each.count,
        "since": each.since,
        "decision": each.decision,
    }
