"""``dockbell dead``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, Unpack

import click
from msgspec.structs import asdict

from dockbell.cli.completion import complete_feeds, complete_sinks
from dockbell.cli.deliveries import print_attempts
from dockbell.cli.group import NotFound, exit_if
from dockbell.cli.options import (
    Chosen,
    all_option,
    ask_store,
    choose_sink,
    config_option,
    find_obstacles,
    json_option,
    load_sinks,
    read_followed,
    read_selection,
    selection_options,
    use_command_store,
)
from dockbell.cli.printing import print_json, print_lines, print_raw, print_reasons, print_table
from dockbell.core.counting import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from dockbell.config import Config
    from dockbell.core.model import Event
    from dockbell.core.publishing.settlement import Attempt
    from dockbell.ports import CommandStore, DeadGroup, Selection, Undelivered

_LISTED: Final = 40
_LISTED_IN_JSON: Final = 1000
_ANSWER_MOST: Final = 60
_LIST: Final = "list"


class _DeadGroup(click.Group):
    """A group that takes its arguments for those of ``list`` where they name none of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:  # a shell completes the name of a command, or of a sink
            return super().parse_args(ctx, args)
        if not args or (args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx)):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        sinks = complete_sinks(ctx, self.commands[_LIST].params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, sinks)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of ``list``, and the commands."""
        click.Command.format_options(self.commands[_LIST], ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_DeadGroup, subcommand_metavar="[COMMAND] [SINK]")
def dead() -> None:
    """List, show, retry or discard dead letters.

    A dead letter is an event that dockbell has stopped trying to deliver to a sink: the receiver refused it, or every
    attempt failed. dockbell keeps the dead letter and its event until you retry or discard it. Without a COMMAND, the
    list is printed.

    \b
    Examples:
      dockbell dead
      dockbell dead show erp shipments 42
      dockbell dead retry erp --all
      dockbell dead discard erp --key shp_000123
    """


@dead.command(_LIST)
@click.argument("sink", required=False, shell_complete=complete_sinks)
@selection_options
@config_option
@json_option
def list_(sink: str | None, *, config_path: str | None, as_json: bool, **chosen: Unpack[Chosen]) -> None:
    """List the dead letters of SINK, or of all sinks.

    The list includes sinks that are no longer in the configuration. If there are many dead letters, the command counts
    them by error instead of listing them. With `on_dead = "hold"`, the later events of a record wait until you retry or
    discard its dead letter.

    \b
    Examples:
      dockbell dead list erp --feed shipments
      dockbell dead erp --json | jq '.letters[].key'
    """
    config = read_followed(config_path)
    selection = read_selection(config, chosen)
    groups, letters = _load(config, sink, selection, _LISTED_IN_JSON if as_json else _LISTED)
    if as_json:
        counted = [asdict(group) | {"feed": str(group.feed)} for group in groups]
        total, listed = sum(group.letters for group in groups), [_describe_letter(each) for each in letters]
        print_json({"total": total, "groups": counted, "letters": listed})
    elif not groups:
        click.echo("no dead letters")
    else:
        _print_letters(groups, letters)


@dead.command()
@click.argument("sink", shell_complete=complete_sinks)
@click.argument("feed", shell_complete=complete_feeds)
@click.argument("sequence", type=click.IntRange(min=0))
@config_option
@json_option
def show(config_path: str | None, *, sink: str, feed: str, sequence: int, as_json: bool) -> None:
    """Show a dead letter with its attempts and its event.

    Shows why the letter died, each attempt with the receiver's answer, and the stored event.

    FEED is source/resource, or the resource alone if only one source has it.

    \b
    Example:
      dockbell dead show erp shipments 42
    """
    config = read_followed(config_path)
    selection = read_selection(config, {"feed_names": (feed,), "keys": (), "span": str(sequence)})
    _, found = _load(config, sink, selection, 1)
    if not found:
        (meant,) = selection.feeds
        raise NotFound(
            f'sink {sink} has no dead letter {meant} #{sequence}; "dockbell dead {sink}" lists its dead letters'
        )
    (letter,) = found
    event, attempts = _load_event(config, letter)
    _print_letter(letter, event, attempts, _explain_filters(config, sink, event), as_json=as_json)


@dead.command()
@click.argument("sink", shell_complete=complete_sinks)
@selection_options
@all_option
@config_option
@json_option
def retry(sink: str, *, everything: bool, config_path: str | None, as_json: bool, **chosen: Unpack[Chosen]) -> None:
    """Send dead letters to their sink again.

    dockbell sends dead letters as "dockbell replay" sends events: marked, with lower priority than live traffic, and in
    no guaranteed order. A record on hold (`on_dead = "hold"`) instead continues with its dead letter, in order. An
    event that fails again becomes a dead letter again.

    \b
    Examples:
      dockbell dead retry erp --all
      dockbell dead retry erp --feed shipments --sequence 42
    """
    from dockbell.admin.replaying import Retried, retry_dead
    from dockbell.app import now

    config = read_followed(config_path)
    selection = _read_choice(config, chosen, everything=everything)

    async def act(command_store: CommandStore) -> Retried:
        await _refuse_unknown(config, command_store, sink)
        if sink not in config.sinks:
            raise click.UsageError(f"sink {sink} is no longer configured; you can only discard its dead letters")
        return await retry_dead(command_store, sink, config.sinks[sink], selection, now())

    came = use_command_store(config, act)
    state = load_sinks(config)[sink]
    problems = came.find_problems()
    if as_json:
        print_json({"sink": sink, **dataclasses.asdict(came), "replays": state.replays, "problems": problems})
    else:
        if came.released:
            click.echo(f"{count_of(came.released, 'record')} on hold will continue, starting with the dead letter")
        click.echo(
            f"queued {count_of(came.entered, 'dead letter')} for replay; {count_of(state.replays, 'replay')} waiting"
        )
        if came.entered or came.released:
            for obstacle in find_obstacles(config, state):
                print_lines(obstacle)
        print_reasons(problems)
    exit_if(problems)


@dead.command()
@click.argument("sink", shell_complete=complete_sinks)
@selection_options
@all_option
@config_option
@json_option
def discard(sink: str, *, everything: bool, config_path: str | None, as_json: bool, **chosen: Unpack[Chosen]) -> None:
    """Delete dead letters without sending their events.

    A record on hold (`on_dead = "hold"`) continues with its next event. The store keeps the events of deleted dead
    letters as long as other events, and "dockbell replay" can still send them.

    \b
    Examples:
      dockbell dead discard erp --key shp_000123
      dockbell dead discard erp --all
    """
    from dockbell.admin.replaying import discard_dead
    from dockbell.app import now

    config = read_followed(config_path)
    selection = _read_choice(config, chosen, everything=everything)

    async def act(command_store: CommandStore) -> tuple[int, int]:
        await _refuse_unknown(config, command_store, sink)
        return await discard_dead(command_store, sink, selection, now())

    letters, released = use_command_store(config, act)
    if as_json:
        print_json({"sink": sink, "discarded": letters, "released": released})
    else:
        click.echo(f"discarded {count_of(letters, 'dead letter')}")
        if released:
            click.echo(f"{count_of(released, 'record')} on hold will continue with the next event")


def _read_choice(config: Config, chosen: Chosen, *, everything: bool) -> Selection:
    if everything == any(chosen.values()):
        raise click.UsageError("select dead letters with --feed, --key or --sequence, or pass only --all")
    return read_selection(config, chosen)


async def _refuse_unknown(config: Config, command_store: CommandStore, sink: str) -> None:
    from dockbell.admin.replaying import find_sinks_with_dead

    choose_sink(config, sink, await find_sinks_with_dead(command_store))


def _load(
    config: Config, sink: str | None, selection: Selection, most: int
) -> tuple[Sequence[DeadGroup], Sequence[Undelivered]]:
    async def read(command_store: CommandStore) -> tuple[Sequence[DeadGroup], Sequence[Undelivered]]:
        if sink is not None:
            await _refuse_unknown(config, command_store, sink)
        return await command_store.count_dead(sink, selection), await command_store.read_dead(sink, selection, most)

    return use_command_store(config, read)


def _load_event(config: Config, found: Undelivered) -> tuple[Event | None, Sequence[Attempt]]:
    """Return the event of a dead letter, and the attempts to deliver it, as far as they are kept."""
    from dockbell.admin.replaying import load_letter

    return ask_store(config, lambda read_store: load_letter(read_store, found))


# What is printed -----------------------------------------------------------------------------------------------------


def _print_letters(groups: Sequence[DeadGroup], letters: Sequence[Undelivered]) -> None:
    """Print dead letters as a table, or counted by their errors where they are many."""
    total = sum(group.letters for group in groups)
    if total <= len(letters):
        headings = ("sink", "feed", "key", "sequence", "type", "attempts", "died", "on hold", "error", "answer")
        print_table(headings, [_row(each) for each in letters])
        return
    print_table(
        ("sink", "feed", "dead letters", "keys", "first", "last", "error"),
        [
            (each.sink, each.feed, each.letters, each.keys, each.first_at, each.last_at, each.error)
            for each in groups[:_LISTED]
        ],
    )
    rest = sum(group.letters for group in groups[_LISTED:])
    click.echo(
        f"\n{f'and {rest} with other errors; ' if rest else ''}{total} dead letters in total;"
        " narrow down with SINK, --feed, --key or --sequence to list them"
    )


def _row(each: Undelivered) -> tuple[object, ...]:
    letter, kind, held = each.letter, each.type or "not kept", "yes" if each.holds else ""
    told = (each.sink, letter.feed, letter.key, letter.sequence, kind, letter.attempts, letter.died_at)
    return (*told, held, letter.error, letter.answer[:_ANSWER_MOST])


def _explain_filters(config: Config, sink: str, event: Event | None) -> str:
    """Return which filter of the sink would hold the event back now; empty where none does."""
    from dockbell.core.publishing.filters import Filter

    if event is None or sink not in config.sinks:
        return ""
    sieve = Filter(config.sinks[sink])
    answer = sieve.evaluate(event)
    return "" if answer.lets_through else sieve.explain(event, answer)


def _print_letter(
    found: Undelivered, event: Event | None, attempts: Sequence[Attempt], obstacle: str, *, as_json: bool
) -> None:
    import msgspec

    from dockbell.admin.history_as_json import describe_attempts
    from dockbell.core.moment import format_moment

    told = _describe_letter(found) | {"died_at": format_moment(found.letter.died_at)}
    if obstacle:
        told["filtered"] = obstacle
    if as_json:  # as it is stored, to the digit
        told["attempt_log"] = describe_attempts(attempts)
        told["event"] = None if event is None else msgspec.Raw(event.body)
        print_raw(msgspec.json.format(msgspec.json.encode(told)))
        return
    for name, value in told.items():
        print_lines(f"{name:<9} {value}")
    print_attempts((found.sink, each) for each in attempts)
    click.echo()
    if event is not None:
        print_raw(msgspec.json.format(event.body))
    else:  # what it was told when it began is no event of the feed
        click.echo(
            "no recorded event: dockbell sends the record as it is stored"
            if found.type
            else "dockbell no longer keeps its event"
        )


def _describe_letter(each: Undelivered) -> dict[str, Any]:
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
        "answer": letter.answer,
    }
