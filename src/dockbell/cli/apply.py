"""``dockbell apply``: makes a configuration file what all processes on a database follow."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from dockbell.cli.group import exit_if
from dockbell.cli.options import ask_store, config_option, json_option, read_config
from dockbell.cli.printing import print_json

if TYPE_CHECKING:
    from dockbell.app.revisions import Agreed
    from dockbell.config import Config


@click.command()
@click.option("--force", is_flag=True, help="Also where a newer revision, or other sources, would be replaced.")
@config_option
@json_option
def apply(config_path: str | None, *, force: bool, as_json: bool) -> None:
    """Make all processes on a database follow this configuration.

    They follow it within a second, but for [store] and [web], which each has in its own file. Nothing is started. With
    a store in SQLite, "dockbell reload" does it.

    A file that says nothing of sources leaves them as they are. Exits with 1 when the file is not followed: a newer
    revision has replaced what it says, or it has other sources, after "dockbell sources" has changed some. It says how
    many sources the file would drop; --force has it followed all the same.

    \b
    Examples:
      dockbell apply
      dockbell apply --force --config old.toml
    """
    import anyio

    from dockbell.telemetry.facts import describe_losses

    config = read_config(config_path)
    agreed = anyio.run(_apply, config, force)
    revision, warning = agreed.revision, agreed.warning
    processes = len(ask_store(config, lambda read_store: read_store.load_members()))
    if as_json:
        found = {"revision": revision.number, "outdated": revision.outdated or None, "followed": warning is None}
        print_json(found | {"processes": processes, "drops": agreed.drops, "changes": agreed.changes})
    elif warning is not None:
        click.echo(str(warning))
    else:
        followed = f"followed by {processes} process{'' if processes == 1 else 'es'}"
        click.echo(f"revision {revision.number}, {followed}{describe_losses(agreed.drops, agreed.changes)}")
    exit_if(warning)


async def _apply(config: Config, force: bool) -> Agreed:  # anyio passes no keywords
    from dockbell import app
    from dockbell.app.revisions import agree

    async with aclosing(await app.open_configurations(config)) as configurations:
        return await agree(configurations, config, force=force)
