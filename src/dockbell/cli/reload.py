"""``dockbell reload``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_lines

if TYPE_CHECKING:
    from dockbell.admin.commands import Result
    from dockbell.config import Config


@click.command()
@config_option
@json_option
@click.pass_context
def reload(ctx: click.Context, config_path: str | None, *, as_json: bool) -> None:
    """Have the daemon read its configuration again, and follow it.

    Feeds and sinks that it does not change go on untouched; those that it changes end and begin anew, where they were.
    A configuration that cannot be used changes nothing. The name of dockbell and the store's place need a restart.
    SIGHUP to the daemon does the same.

    Exits with 1 when the daemon could not follow it, or none runs.

    \b
    Examples:
      dockbell reload
      dockbell reload --json
    """
    import anyio

    result = anyio.run(_reload, read_config(config_path))
    if as_json:
        print_json({"outcome": result.verdict, "detail": result.detail})
    else:
        print_lines(f"{result.verdict}: {result.detail}")
    if not result.is_done:
        ctx.exit(PROBLEM)


async def _reload(config: Config) -> Result:
    from dockbell import app
    from dockbell.admin.commands import Result, await_commands, enqueue_commands, read_result
    from dockbell.ports import CommandKind

    if not app.find_holder(config):
        return Result(None, "failed", detail='no daemon runs; "dockbell run" reads the configuration when it starts')
    command_store = await app.open_command_store(config)
    try:
        commands = await enqueue_commands(command_store, [None], CommandKind.RELOAD, app.now())
        (command,) = await await_commands(
            command_store, commands, is_held=lambda: bool(app.find_holder(config)), tell=lambda _: None
        )
        return read_result(command)
    finally:
        await command_store.aclose()
