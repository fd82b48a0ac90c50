"""What the commands of ``dockbell dead`` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from dockbell.cli.asking import (
    find_obstacles,
    write_time,
)
from dockbell.cli.printing import print_lines, print_raw, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dockbell.admin.replaying import Retried
    from dockbell.config import Config
    from dockbell.core.model import Event
    from dockbell.ports import DeadGroup, SinkState, Undelivered

_GROUPS: Final = 40


def print_letters(groups: Sequence[DeadGroup], letters: Sequence[Undelivered]) -> None:
    """Print dead letters as a table, or counted by their errors where they are many."""
    total = sum(group.letters for group in groups)
    if total <= len(letters):
        print_table(
            ("sink", "feed", "key", "sequence", "type", "attempts", "died", "on hold", "error"),
            [_row(each) for each in letters],
        )
        return
    print_table(
        ("sink", "feed", "dead letters", "keys", "first", "last", "error"),
        [
            (
                each.sink,
                each.feed,
                each.letters,
                each.keys,
                write_time(each.first_at),
                write_time(each.last_at),
                each.error,
            )
            for each in groups[:_GROUPS]
        ],
    )
    rest = sum(group.letters for group in groups[_GROUPS:])
    click.echo(
        f"\n{f'and {rest} with other errors; ' if rest else ''}{total} dead letters in all;"
        " a SINK, --feed, --key or --sequence narrows them down to a list"
    )


def _row(each: Undelivered) -> tuple[object, ...]:
    letter = each.letter
    return (
        each.sink,
        letter.feed,
        letter.key,
        letter.sequence,
        each.type or "not kept",
        letter.attempts,
        write_time(letter.died_at),
        "yes" if each.holds else "",
        letter.error,
    )


def print_retry(config: Config, came: Retried, state: SinkState) -> None:
    """Print what a retry did."""
    if came.released:
        click.echo(f"{came.released} records that were on hold go on with their dead letter")
    click.echo(f"{came.entered} dead letters are to be sent again; {state.replays} events wait to be sent so")
    if came.entered or came.released:
        for obstacle in find_obstacles(config, state):
            print_lines(obstacle)


def explain_filters(config: Config, sink: str, event: Event | None) -> str:
    """Return which filter of the sink would hold the event back now; empty where none does."""
    from dockbell.core.publishing.filters import Filter

    if event is None or sink not in config.sinks:
        return ""
    sieve = Filter(config.sinks[sink])
    answer = sieve.evaluate(event)
    return "" if answer.lets_through else sieve.explain(event, answer)


def print_letter(found: Undelivered, event: Event | None, obstacle: str, *, as_json: bool) -> None:
    """Print one dead letter and its event."""
    import msgspec

    from dockbell.core.moment import format_moment

    told = describe_letter(found) | {"died_at": format_moment(found.letter.died_at)}
    if obstacle:
        told["filtered"] = obstacle
    if as_json:  # as it is stored, to the digit
        told["event"] = None if event is None else msgspec.Raw(event.body)
        print_raw(msgspec.json.format(msgspec.json.encode(told)))
        return
    for name, value in told.items():
        print_lines(f"{name:<9} {value}")
    click.echo()
    if event is not None:
        print_raw(msgspec.json.format(event.body))
    else:  # what it was told when it began is no event of the feed
        click.echo("it tells of the record as it is stored" if found.type else "its event is not kept any more")


def describe_letter(each: Undelivered) -> dict[str, Any]:
    """Return a dead letter for ``--json``."""
    letter = each.letter
    return {
        "sink": each.sink,
        "feed": str(letter.feed),
        "key": letter.key,
        "sequence": letter.sequence,
        "type": each.type or None,
        "attempts": letter.attempts,
        "died_at": letter.died_at,
        "on_hold": each.holds,
        "error": letter.error,
    }


def describe_group(group: DeadGroup) -> dict[str, Any]:
    """Return a group of dead letters for ``--json``."""
    return {
        "sink": group.sink,
        "feed": str(group.feed),
        "error": group.error,
        "letters": group.letters,
        "keys": group.keys,
        "first_at": group.first_at,
        "last_at": group.last_at,
    }
