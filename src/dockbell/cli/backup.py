"""``dockbell backup``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json
from dockbell.cli.progress import showing

if TYPE_CHECKING:
    from dockbell.cli.progress import Lines
    from dockbell.config import Config
    from dockbell.stores.sqlite.copying import Copy

_MEGABYTE = 1_000_000


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what is at PATH.")
@config_option
@json_option
def backup(config_path: str | None, *, path: Path, force: bool, as_json: bool) -> None:
    """Copy the store to PATH, while the daemon runs or not.

    The copy is the store as it was when the copying began, in one file for its owner only; it is checked before it
    gets its name, and a daemon at work goes on meanwhile. A store that begins from a backup knows that it does: it uses
    no event id twice, and says which time is missing.

    To put one back: stop the daemon, copy the file to where the store is, and start the daemon.

    Exits with 1 when there is no store, PATH is there already, others could put another file in its place, or the copy
    cannot be written or is not sound.

    \b
    Examples:
      dockbell backup /var/backups/dockbell.db
      dockbell backup "/var/backups/dockbell-$(date +%F).db"
      dockbell backup --force --json latest.db
    """
    import anyio

    config = read_config(config_path)
    with showing() as lines:
        copy = anyio.run(_copy, config, path, force, lines)
    if as_json:
        print_json({"path": str(copy.path), "bytes": copy.size})
    else:
        click.echo(f"{copy.path}: {copy.size / _MEGABYTE:,.1f} MB, complete and checked")


async def _copy(config: Config, path: Path, force: bool, lines: Lines) -> Copy:
    from dockbell import app

    def show(done: int, of: int) -> None:
        lines.tell(str(path), f"{done / _MEGABYTE:,.0f} of {of / _MEGABYTE:,.0f} MB", done=done, of=of)

    return await app.back_up(config, path, force=force, progress=show)
