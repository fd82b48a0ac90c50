"""``dockbell move-store``: the store from SQLite's file into PostgreSQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_lines
from dockbell.cli.progress import showing

if TYPE_CHECKING:
    from dockbell.config import Config
    from dockbell.stores.postgres.moving import Moved


@click.command()
@click.argument("url", required=False)
@click.option("--undo", is_flag=True, help="Take the file back, under new event ids; URL is not given.")
@config_option
@json_option
def move_store(config_path: str | None, *, url: str | None, undo: bool, as_json: bool) -> None:
    """Move the store from its file into PostgreSQL.

    Stop the daemon, make an empty database, and name it by URL; it needs "pip install 'dockbell[postgres]'". Event ids,
    sequences, and how far each sink has come stay as they are, so that subscribers notice nothing. Then put URL in
    [store] url and start the daemon. A password belongs in $PGPASSWORD or ~/.pgpass: in URL, others on this machine can
    see it.

    The database gets all in one transaction, after each table was compared with the file, or nothing. The file is kept,
    and refused by every command from then on. Where this was cut short, run it again.

    --undo takes the file back: stop the daemons on the database first. What happened since the move is found by the
    next polls and passes, and the first event of each feed is a gap; no event id is used twice.

    Exits with 1 when a daemon works on the store, it was moved already, or the database is not empty or cannot be used.

    \b
    Examples:
      dockbell move-store postgresql://dockbell@db.example.com/dockbell
      dockbell move-store --undo
    """
    if (url is None) is not undo:
        raise click.UsageError("name the database, postgresql://user@host/database, or give --undo alone")
    config = read_config(config_path)
    if url is None:
        _take_back(config, as_json=as_json)
    else:
        _move(config, url, as_json=as_json)


def _move(config: Config, url: str, *, as_json: bool) -> None:
    from functools import partial

    import anyio

    from dockbell import app

    began = time.monotonic()
    with showing() as lines:

        def show(words: str, done: int, of: int) -> None:
            lines.tell("move-store", f"{words}, {done:,} of {of:,} rows", done=done, of=of)

        moved = anyio.run(partial(app.move_store, config, url, progress=show))
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        counts = {name: getattr(moved, name) for name in ("feeds", "records", "events", "sinks", "rows")}
        print_json({"moved_to": moved.place, **counts, "was_there": moved.was_there, "seconds": seconds})
    else:
        _tell(config, moved, seconds)


def _tell(config: Config, moved: Moved, seconds: float) -> None:
    path = config.store.path
    if moved.copy is not None:
        print_lines(f"{path}: was an older dockbell's; as it was then, it is in {moved.copy}")
    how = "was there already, and is the same" if moved.was_there else "moved and compared"
    names = ("record", "event", "feed", "sink", "row")
    counts = ", ".join(_count(getattr(moved, f"{name}s"), name) for name in names)
    print_lines(f"{moved.place}: {how} in {seconds:,} s: {counts} in all")
    print_lines(f'{path}: is kept, and refused from now on; "dockbell move-store --undo" takes it back')
    click.echo("next: put the URL in [store] url, its password in $PGPASSWORD or ~/.pgpass, and start the daemon")


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _take_back(config: Config, *, as_json: bool) -> None:
    from dockbell import app

    place = app.take_store_back(config)
    if as_json:
        print_json({"path": str(config.store.path), "was_moved_to": place})
    else:
        print_lines(f"{config.store.path}: is used again, under new event ids; it was moved to {place}")
