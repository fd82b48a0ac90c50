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
@click.option("--force", is_flag=True, help="Apply the file even if it replaces a newer revision or other sources.")
@config_option
@json_option
def apply(config_path: str | None, *, force: bool, as_json: bool) -> None:
    """Apply this configuration to all processes on a database.

    The processes follow the configuration within a second, except for [store] and [web]: each process takes these from
    its own file. The command starts no process. For a store in SQLite, use "dockbell reload" instead.

    A file without sources leaves the sources as they are. Exits with 1 when the processes do not follow the file. That
    is the case when a newer revision has replaced the content of the file, or when the file has other sources because
    "dockbell sources" has changed some. The output reports how many sources the file would drop. With --force, the
    processes follow the file anyway.

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
