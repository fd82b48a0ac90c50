"""``dockbell reconcile``."""

from __future__ import annotations

import click

from dockbell.cli.completing import complete_feeds
from dockbell.cli.feed_commands import choose_feeds, run_feed_commands, wait_option
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config


@click.command()
@click.argument("feeds", nargs=-1, metavar="[FEED]...", shell_complete=complete_feeds)
@config_option
@json_option
@wait_option
@click.pass_context
def reconcile(
    ctx: click.Context, config_path: str | None, *, feeds: tuple[str, ...], as_json: bool, wait: bool
) -> None:
    """Read feeds whole now, to find deletions and misses.

    FEED is source/resource, or only the resource where one source has it; without any, all feeds are read. The daemon
    does it beside its polls; where none runs, it is done here, and what it finds is delivered when one does. A record
    that is absent is deleted once a second pass, confirm_after later, confirms it.

    Exits with 1 when a feed could not be read to its end, or nobody was there to read it.

    \b
    Examples:
      dockbell reconcile
      dockbell reconcile shipments stock
      dockbell reconcile main/items --no-wait
    """
    from dockbell.ports import CommandKind

    config = read_config(config_path)
    if not run_feed_commands(config, choose_feeds(config, feeds), CommandKind.RECONCILE, wait=wait, as_json=as_json):
        ctx.exit(PROBLEM)
