"""``dockbell purge``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dockbell.cli.asking import opened_command_store, read_selection
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json

if TYPE_CHECKING:
    from dockbell.admin.commands import Result
    from dockbell.admin.purging import Target
    from dockbell.config import Config
    from dockbell.core.model import Feed


@click.command()
@click.argument("feed")
@click.argument("key")
@click.option(
    "--anyway", is_flag=True, help="Even where the API still shows the record: it comes back with the next pass."
)
@click.option("--yes", is_flag=True, help="Do not ask; needed where nobody can be asked.")
@config_option
@json_option
@click.pass_context
def purge(
    ctx: click.Context, config_path: str | None, *, feed: str, key: str, anyway: bool, yes: bool, as_json: bool
) -> None:
    """Erase all that is stored of one record's content, for good.

    Its stored text, what is held or waits of it, its readings in quarantine, and the content of its kept events: they
    stay in their places, empty. Its key, its revision and its timestamp stay too, so that numbers go on. Subscribers
    get a last event, `deleted` with the reason `purged`; retained state is cleared. Then the store's files are written
    anew, so that no trace is left in them. Backups are not reached.

    FEED is source/resource, or only the resource where one source has it; it may have left the configuration. KEY is
    written as in events, or as the API writes it.

    A record that is still there comes back with the next pass, as `restored`: have it removed from the API first, or
    leave members out for good by `drop` in [resources.X].

    On a terminal it asks before it erases; elsewhere, as in a script, it erases nothing without --yes.

    \b
    Examples:
      dockbell purge shipments shp_000123
      dockbell purge shipments shp_000123 --anyway --yes
    """
    import anyio

    from dockbell.core.model import RESOURCES

    config = read_config(config_path)
    (meant,) = read_selection(config, [feed], [], None).feeds
    if meant.resource not in RESOURCES:
        raise click.UsageError(f"{meant} holds no records")
    try:
        target = anyio.run(_find, config, meant, key)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if target is None:
        _refuse(ctx, meant, key, "nothing is stored of it", as_json=as_json)
    elif target.is_there and not anyway:
        words = "it is still there, so that the next pass would store it again; remove it from the API, or add --anyway"
        _refuse(ctx, meant, target.key, words, as_json=as_json)
    else:
        if not yes:
            if not _is_asked():
                raise click.UsageError("this erases for good, and nobody can be asked here; add --yes")
            click.confirm(f"erase all content of {meant} {target.key}, for good?", abort=True, err=True)
        result = anyio.run(_purge, config, target)
        _tell(target, result, as_json=as_json)
        if not result.is_done:
            ctx.exit(PROBLEM)


def _is_asked() -> bool:
    return sys.stdin.isatty()


def _refuse(ctx: click.Context, feed: Feed, key: str, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"feed": str(feed), "key": key, "outcome": "failed", "detail": words})
    else:
        click.echo(f"{feed} {key}: {words}", err=True)
    ctx.exit(PROBLEM)


async def _find(config: Config, feed: Feed, key: str) -> Target | None:
    from dockbell import app
    from dockbell.admin.purging import find_target

    read_store = await app.open_read_store(config)
    try:
        return await find_target(read_store, feed, key)
    finally:
        await read_store.aclose()


async def _purge(config: Config, target: Target) -> Result:
    """Have it done by the daemon, or do it here."""
    from dockbell import app
    from dockbell.admin.commands import await_commands, read_result
    from dockbell.ports import Command, CommandKind

    if not app.find_holder(config):
        from dockbell.app.once import run_purge

        outcome = await run_purge(config, target.feed, target.key)
        return read_result(Command(0, CommandKind.PURGE, target.feed, outcome))
    async with opened_command_store(config) as command_store:
        number = await command_store.make_command(target.feed, CommandKind.PURGE, app.now(), target.key)
        (command,) = await await_commands(
            command_store,
            [Command(number, CommandKind.PURGE, target.feed)],
            is_held=lambda: bool(app.find_holder(config)),
            tell=lambda _: None,
        )
    return read_result(command)


def _tell(target: Target, result: Result, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "feed": str(target.feed),
                "key": target.key,
                "outcome": result.verdict,
                **result.counts,
                "detail": result.detail,
            }
        )
    elif result.is_done:
        told = ", subscribers are told" if result.counts["published"] else ""
        click.echo(f"{target.feed} {target.key}: erased, {result.counts['emptied']} kept events are empty{told}")
    else:
        click.echo(f"{target.feed} {target.key}: {result.verdict}: {result.detail}", err=True)
