"""``dockbell status``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.group import exit_if
from dockbell.cli.options import ask_store, config_option, json_option, read_followed
from dockbell.cli.printing import print_json, print_lines, print_reasons, print_table

if TYPE_CHECKING:
    from dockbell.admin.status import FeedStatus, Status
    from dockbell.config import Config
    from dockbell.ports import Member, ReadStore, SinkState

_MEMBER: Final = ("daemon", "slot", "sources", "requests/min", "taken over", "runs for", "version")
_MARKS: Final = {"failing": ("✕", "red"), "waiting": ("!", "yellow"), "progress": ("…", "cyan")}
"""How the reasons of each weight are marked, and in which colour."""
_TOLD: Final = ("used", "dropped")
"""The phases of a signal that are told without being asked for."""


@click.command()
@config_option
@json_option
@click.option(
    "-v", "--verbose", is_flag=True, help="Also show what dockbell learned about each feed, and what is in quarantine."
)
def status(config_path: str | None, *, as_json: bool, verbose: bool) -> None:
    """Print the status of feeds and sinks.

    Use the exit code for monitoring. The command exits with 1, and prints the reasons, in these cases:

    \b
    daemon    no daemon runs, or it reads several feeds for the first time
    store     little space is left on its disk
    source    several of its feeds cannot be read, are stopped, or hold drift for one reason
    feed      its last reading failed, or it was not read completely yet, or not for three intervals and a minute; its
              passes fail or are late; it has a problem, holds deletions or drift, or has records in quarantine
    sink      it is paused, has dead letters, has been owed an event for more than five minutes, or no event could be
              delivered to it for more than ten seconds
    web       within the last hour, more connections came to the web server than it has room for

    The columns:

    \b
    daemon    the processes that share the store; slot is the number of each, sources is how many sources it has
    read      time since the last complete reading of the feed, by poll or pass
    behind    time since the moment up to which polls have proven that nothing is missing
    pass      time since the last reading of the whole feed
    lookback  how far before the moment of "behind" polls begin; two minutes or more if the API does not report its time
    connection  how the receiver was last found, and since when
    owed      events that the sink has not taken yet; ≤ if its filters, or coalesce, may leave some of them out
    blocked   records whose next event waits for another attempt
    replays   events that "dockbell replay" or "dockbell dead retry" chose and that wait to be sent
    waiting   time since the oldest owed event was recorded
    p50, p99, mean  time in the last hour from when a change became visible in the API until the sink had it;
              ≈ marks an estimate for records without timestamps
    planned   mean time that changes wait for their reading, by the plan

    \b
    Examples:
      dockbell status
      dockbell status --verbose
      dockbell status --json | jq .reasons
    """
    from dockbell.admin.as_json import describe_status
    from dockbell.admin.reasons import find_reasons

    config = read_followed(config_path)
    found = ask_store(config, partial(_load, config))
    reasons = find_reasons(found)
    if as_json:
        print_json(describe_status(found))
    else:
        _print(found, verbose=verbose)
        for weight, alike in groupby(reasons, attrgetter("weight")):
            mark, colour = _MARKS[weight]
            print_reasons(list(map(str, alike)), mark=mark, colour=colour)
    exit_if(reasons)


async def _load(config: Config, read_store: ReadStore) -> Status:
    from dockbell import app
    from dockbell.admin.silence import Silences
    from dockbell.admin.status import load_status
    from dockbell.app.next_time import next_time

    found = await load_status(
        read_store, config.feeds(), config.sinks, at=app.now(), holder=app.find_holder(config), next_time=next_time
    )
    return await Silences(read_store).listen(found, config.sinks)


def _print(found: Status, *, verbose: bool) -> None:
    if found.members:
        print_table(_MEMBER, [_member_row(each, found.at) for each in found.members])
        click.echo()
    else:
        click.echo(f"daemon: {found.holder or 'none'}\n")
    headings = ("feed", "records", "events", "read", "behind", "pass", "lookback", "key, timestamp")
    print_table(headings, [_feed_row(each, found.at) for each in found.feeds])
    click.echo()
    _print_remarks(found, verbose=verbose)
    if found.sinks:
        headings = ("sink", "connection", "owed", "blocked", "dead", "replays", "waiting", "last error")
        print_table(headings, [_sink_row(each, found.at) for each in found.sinks])
        click.echo()
    if rows := list(_delay_rows(found)):
        print_table(("delay of", "to sink", "changes", "p50", "p99", "mean", "planned"), rows)
        click.echo()


def _print_remarks(found: Status, *, verbose: bool) -> None:
    from dockbell.admin.remarks import describe_feeds
    from dockbell.admin.silence import describe_silences

    lines = [*describe_feeds(found), *describe_silences(found)]
    if not verbose:
        lines += [f"{each.feed}: {each.signal[1]}" for each in found.feeds if each.signal and each.signal[0] in _TOLD]
    if verbose:
        lines += [f"{each.feed}: {name}: {words}" for each in found.feeds for name, words in each.learned]
        lines += [
            f"{each.feed}: quarantine: {bad.problem} (last seen {_age(bad.last_at, found.at)} ago)"
            for each in found.feeds
            for bad in each.bad
        ]
    if lines:
        print_lines("\n".join([*lines, ""]))


def _member_row(each: Member, at: datetime) -> tuple[object, ...]:
    runs_for = _age(each.began_at, at)
    return (each.name, each.slot, each.sources, each.requests, each.taken_over, runs_for, each.version)


def _feed_row(each: FeedStatus, at: datetime) -> tuple[object, ...]:
    from dockbell.config import format_duration
    from dockbell.core.model import RESOURCES

    state = each.state
    if state is None:
        return (each.feed, *[None] * 7)
    return (
        each.feed,
        each.records,
        state.sequence,
        _age(each.read_at, at),
        _age(each.seen_until if RESOURCES[each.feed.resource].polled else None, at),
        _age(None if state.full is None else state.full.ended_at, at),
        None if each.lookback is None else format_duration(each.lookback),
        None if state.shape is None else f"{' + '.join(state.shape.key)}, {state.shape.updated_at or '-'}",
    )


def _sink_row(each: SinkState, at: datetime) -> tuple[object, ...]:
    connection = "" if each.found is None else f"{each.found.condition} {_age(each.found.since, at)}"
    owed = f"≤ {each.owed}" if each.owed and each.owed_at_most else each.owed
    return (each.name, connection, owed, each.blocked, each.dead, each.replays, _age(each.oldest, at), each.last_error)


def _delay_rows(found: Status) -> Iterator[tuple[object, ...]]:
    from dockbell.admin.delays import write_delay
    from dockbell.core.planning.forecast import in_words

    for each in found.feeds:
        predicted, write = each.delays.predicted, partial(write_delay, is_estimated=not each.is_dated)
        planned = None if predicted is None else in_words(predicted)
        for sink, delay in each.delays.sinks.items():
            yield (each.feed, sink, delay.count, *map(write, (delay.p50, delay.p99, delay.mean)), planned)
    if (whole := found.delay) is not None:
        yield ("all", "", whole.count, *map(write_delay, (whole.p50, whole.p99, whole.mean)), None)


def _age(moment: datetime | None, at: datetime) -> str:
    from dockbell.admin.quantities import format_age

    return "" if moment is None else format_age(at - moment)
