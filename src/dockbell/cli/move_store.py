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
@click.option("--undo", is_flag=True, help="Use the file again, with new event ids; do not pass URL.")
@config_option
@json_option
def move_store(config_path: str | None, *, url: str | None, undo: bool, as_json: bool) -> None:
    """Move the store from its file into PostgreSQL.

    Stop the daemon, create an empty database, and pass its URL. The command needs "pip install 'dockbell[postgres]'".
    Event ids, sequences, and the progress of each sink stay the same, and subscribers notice nothing. Afterwards, set
    [store] url to URL and start the daemon. Put a password in $PGPASSWORD or ~/.pgpass, because others on this machine
    can see URL.

    The command compares each table with the file, then commits everything in one transaction. If it fails, the database
    gets nothing. The file stays where it is, but every command refuses to use it from then on. If the move was
    interrupted, run the command again.

    --undo returns to the file. Stop the daemons on the database first. The next polls and passes find what happened
    since the move, and the first event of each feed is a gap. No event id is used twice.

    Exits with 1 when a daemon works on the store, when the store was moved already, or when the database is not empty
    or cannot be used.

    \b
    Examples:
      dockbell move-store postgresql://dockbell@db.example.com/dockbell
      dockbell move-store --undo
    """
    if (url is None) is not undo:
        raise click.UsageError("pass the URL of the database, postgresql://user@host/database, or only --undo")
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
        print_lines(f"{path}: written by an older dockbell; {moved.copy} is a copy of the file as it was")
    how = "already moved, and identical" if moved.was_there else "moved and compared"
    names = ("record", "event", "feed", "sink", "row")
    counts = ", ".join(_count(getattr(moved, f"{name}s"), name) for name in names)
    print_lines(f"{moved.place}: {how} in {seconds:,} s: {counts} in total")
    print_lines(f'{path}: kept, but dockbell refuses to use it from now on; "dockbell move-store --undo" returns to it')
    click.echo("next: set [store] url to the URL, put its password in $PGPASSWORD or ~/.pgpass, and start the daemon")


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _take_back(config: Config, *, as_json: bool) -> None:
    from dockbell import app

    place = app.take_store_back(config)
    if as_json:
        print_json({"path": str(config.store.path), "was_moved_to": place})
    else:
        print_lines(f"{config.store.path}: in use again, with new event ids; it had been moved to {place}")
