"""Statements about the commands of operators."""

from __future__ import annotations

from datetime import datetime

import msgspec

from dockbell.core.model import Feed
from dockbell.core.moment import to_micros
from dockbell.ports import Command, CommandKind, CommandOutcome
from dockbell.stores.sql.connection import Connection


def make_command(connection: Connection, feed_id: int | None, kind: CommandKind, now: datetime, key: str = "") -> int:
    (number,) = connection.execute(
        "INSERT INTO commands (kind, feed, key, made_at) VALUES (?, ?, ?, ?) RETURNING id",
        (kind.name, feed_id, key, to_micros(now)),
    ).fetchall()[0]
    return int(number)


def load_commands(connection: Connection, only: int | None = None, scope: str = "") -> list[Command]:
    """Return the commands that wait and whose feeds meet a condition, or one, also when it is done.

    What this dockbell does not know waits: a process of a newer one may come that does.
    """
    where, values = (f"done_at IS NULL {scope}", ()) if only is None else ("commands.id = ?", (only,))
    return [
        Command(
            number,
            CommandKind[kind],
            None if source is None else Feed(source, resource),
            None if done_at is None else _read_outcome(outcome),
            key,
        )
        for number, kind, source, resource, done_at, outcome, key in connection.execute(
            "SELECT commands.id, kind, source, resource, done_at, outcome, commands.key FROM commands"
            f" LEFT JOIN feeds ON feeds.id = feed WHERE {where} ORDER BY commands.id",
            values,
        )
        if kind in CommandKind.__members__
    ]


def _read_outcome(stored: str) -> CommandOutcome:
    if stored.startswith("{"):
        return msgspec.json.decode(stored, type=CommandOutcome)
    status, _, words = stored.partition(": ")  # older versions stored its text
    return msgspec.convert({"status": status, "detail": words}, CommandOutcome)


def finish_command(connection: Connection, command: Command, outcome: CommandOutcome, now: datetime) -> None:
    connection.execute(
        "UPDATE commands SET done_at = ?, outcome = ? WHERE id = ?",
        (to_micros(now), msgspec.json.encode(outcome).decode(), command.id),
    )
