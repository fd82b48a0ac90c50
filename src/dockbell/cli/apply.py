"""``dockbell apply``: makes a configuration file what all processes on a database follow."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from dockbell.cli.group import exit_if
from dockbell.cli.options import ask_store, config_option, json_option, read_config
from dockbell.cli.printing import print_json

if TYPE_CHECKING:
    from dockbell.config import Config
    from dockbell.ports import Revision


@click.command()
@click.option("--force", is_flag=True, help="Also where a newer revision has replaced what the file says.")
@config_option
@json_option
def apply(config_path: str | None, *, force: bool, as_json: bool) -> None:
    """Have all processes on a database follow this configuration file.

    They follow it within a second, but for [store] and [web], which each has in its own file. Nothing is started. With
    a store in SQLite, "dockbell reload" does it.

    Exits with 1 when a newer revision has replaced what the file says: --force makes it the newest again.

    \b
    Examples:
      dockbell apply
      dockbell apply --force --config old.toml
    """
    import anyio

    config = read_config(config_path)
    revision = anyio.run(_apply, config, force)
    processes = len(ask_store(config, lambda read_store: read_store.load_members()))
    if as_json:
        print_json({"revision": revision.number, "outdated": revision.outdated or None, "processes": processes})
    elif revision.outdated:
        click.echo(
            f"the file is revision {revision.outdated}, which revision {revision.number} has replaced;"
            " --force has it followed again"
        )
    else:
        click.echo(f"revision {revision.number}, followed by {processes} process{'' if processes == 1 else 'es'}")
    exit_if(revision.outdated)


async def _apply(config: Config, force: bool) -> Revision:  # anyio passes no keywords
    from dockbell import app
    from dockbell.app.revisions import agree

    async with aclosing(await app.open_configurations(config)) as configurations:
        return await agree(configurations, config, force=force)
