"""``dockbell dead``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.asking import (
    all_option,
    choose_sink,
    feed_option,
    key_option,
    load_sink,
    opened_command_store,
    read_selection,
    sequence_option,
)
from dockbell.cli.completing import complete_feeds, complete_sinks
from dockbell.cli.dead_printing import (
    describe_group,
    describe_letter,
    explain_filters,
    print_letter,
    print_letters,
    print_retry,
)
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    from dockbell.admin.replaying import Retried
    from dockbell.config import Config
    from dockbell.core.model import Event
    from dockbell.ports import DeadGroup, Selection, SinkState, Undelivered

_LISTED: Final = 40
_LISTED_IN_JSON: Final = 1000
_LIST: Final = "list"


class _DeadGroup(click.Group):
    """A group that takes its arguments for those of ``list`` where they name none of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        if ctx.resilient_parsing and not args:  # a shell completes the name of a command, or of a sink
            return super().parse_args(ctx, args)
        if not args or (args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx)):
            args = [_LIST, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so, and the sinks."""
        from click.shell_completion import CompletionItem

        sinks = complete_sinks(ctx, self.commands[_LIST].params[0], incomplete)
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, sinks)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of ``list``, and the commands."""
        click.Command.format_options(self.commands[_LIST], ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_DeadGroup, subcommand_metavar="[COMMAND] [SINK]")
def dead() -> None:
    """List dead letters, show them, send them again or discard them.

    A dead letter is an event that a sink was offered for the last time: its receiver refused it, or every attempt
    failed. It is kept, with its event, until it is sent again or discarded. Without a COMMAND they are listed.

    \b
    Examples:
      dockbell dead
      dockbell dead show erp shipments 42
      dockbell dead retry erp --all
      dockbell dead discard erp --key shp_000123
    """


@dead.command(_LIST)
@click.argument("sink", required=False, shell_complete=complete_sinks)
@feed_option
@key_option
@sequence_option
@config_option
@json_option
def list_(
    sink: str | None,
    *,
    feed_names: tuple[str, ...],
    keys: tuple[str, ...],
    span: str | None,
    config_path: str | None,
    as_json: bool,
) -> None:
    """List the dead letters of SINK, or of all.

    Sinks that have left the configuration are listed too. Many are not listed but counted, by their errors. Where
    `on_dead = "hold"`, the later events of a record wait for you to retry or discard its dead letter.

    \b
    Examples:
      dockbell dead list erp --feed shipments
      dockbell dead erp --json | jq '.letters[].key'
    """
    import anyio

    config = read_config(config_path)
    selection = read_selection(config, feed_names, keys, span)
    groups, letters = anyio.run(_load, config, sink, selection, _LISTED_IN_JSON if as_json else _LISTED)
    if as_json:
        print_json(
            {
                "total": sum(group.letters for group in groups),
                "groups": [describe_group(group) for group in groups],
                "letters": [describe_letter(each) for each in letters],
            }
        )
    elif not groups:
        click.echo("no dead letters")
    else:
        print_letters(groups, letters)


@dead.command()
@click.argument("sink", shell_complete=complete_sinks)
@click.argument("feed", shell_complete=complete_feeds)
@click.argument("sequence", type=click.IntRange(min=0))
@config_option
@json_option
def show(config_path: str | None, *, sink: str, feed: str, sequence: int, as_json: bool) -> None:
    """Show a dead letter: why it died, and its event as it is stored.

    FEED is source/resource, or only the resource where one source has it.

    \b
    Example:
      dockbell dead show erp shipments 42
    """
    import anyio

    config = read_config(config_path)
    selection = read_selection(config, [feed], [], str(sequence))
    _, found = anyio.run(_load, config, sink, selection, 1)
    if not found:
        (meant,) = selection.feeds
        raise click.UsageError(f'{meant} #{sequence} is no dead letter of {sink}; "dockbell dead {sink}" lists them')
    (letter,) = found
    event = anyio.run(_load_event, config, letter)
    print_letter(letter, event, explain_filters(config, sink, event), as_json=as_json)


@dead.command()
@click.argument("sink", shell_complete=complete_sinks)
@feed_option
@key_option
@sequence_option
@all_option
@config_option
@json_option
@click.pass_context
def retry(
    ctx: click.Context,
    sink: str,
    *,
    feed_names: tuple[str, ...],
    keys: tuple[str, ...],
    span: str | None,
    everything: bool,
    config_path: str | None,
    as_json: bool,
) -> None:
    """Offer dead letters to their sink again.

    They are sent as by "dockbell replay": marked, below live traffic, in no promised order. A record on hold
    (`on_dead = "hold"`) goes on with its dead letter instead, in order. Those that fail again are dead letters again.

    \b
    Examples:
      dockbell dead retry erp --all
      dockbell dead retry erp --feed shipments --sequence 42
    """
    import anyio

    config = read_config(config_path)
    _need_a_choice(feed_names, keys, span, everything=everything)
    selection = read_selection(config, feed_names, keys, span)
    came, state = anyio.run(_retry, config, sink, selection)
    problems = list(came.find_problems())
    if as_json:
        print_json({"sink": sink, **asdict(came), "replays": state.replays, "problems": problems})
    else:
        print_retry(config, came, state)
        print_reasons(problems)
    if problems:
        ctx.exit(PROBLEM)


@dead.command()
@click.argument("sink", shell_complete=complete_sinks)
@feed_option
@key_option
@sequence_option
@all_option
@config_option
@json_option
def discard(
    sink: str,
    *,
    feed_names: tuple[str, ...],
    keys: tuple[str, ...],
    span: str | None,
    everything: bool,
    config_path: str | None,
    as_json: bool,
) -> None:
    """Delete dead letters: their events are not sent.

    A record on hold (`on_dead = "hold"`) goes on with its next event. The events themselves stay as long as others
    do, and "dockbell replay" can still send them.

    \b
    Examples:
      dockbell dead discard erp --key shp_000123
      dockbell dead discard erp --all
    """
    import anyio

    config = read_config(config_path)
    _need_a_choice(feed_names, keys, span, everything=everything)
    letters, released = anyio.run(_discard, config, sink, read_selection(config, feed_names, keys, span))
    if as_json:
        print_json({"sink": sink, "discarded": letters, "released": released})
    else:
        click.echo(f"{letters} dead letters are discarded")
        if released:
            click.echo(f"{released} records that were on hold go on with their next event")


def _need_a_choice(*given: object, everything: bool) -> None:
    if everything == any(given):
        raise click.UsageError("choose dead letters by --feed, --key or --sequence, or all of them by --all alone")


async def _load(
    config: Config, sink: str | None, selection: Selection, most: int
) -> tuple[Sequence[DeadGroup], Sequence[Undelivered]]:
    from dockbell.admin.replaying import find_sinks_with_dead

    async with opened_command_store(config) as command_store:
        if sink is not None:
            choose_sink(config, sink, await find_sinks_with_dead(command_store))
        return await command_store.count_dead(sink, selection), await command_store.read_dead(sink, selection, most)


async def _load_event(config: Config, found: Undelivered) -> Event | None:
    from dockbell import app

    letter = found.letter
    read_store = await app.open_read_store(config)
    try:
        events = await read_store.read_events(letter.feed, letter.sequence - 1, 1)
    finally:
        await read_store.aclose()
    is_it = events and (events[0].sequence, events[0].key) == (letter.sequence, letter.key)
    return events[0] if is_it else None


async def _retry(config: Config, sink: str, selection: Selection) -> tuple[Retried, SinkState]:
    from dockbell import app
    from dockbell.admin.replaying import find_sinks_with_dead, retry_dead

    async with opened_command_store(config) as command_store:
        choose_sink(config, sink, await find_sinks_with_dead(command_store))
        if sink not in config.sinks:
            raise click.UsageError(f"sink {sink} is not configured any more; its dead letters can only be discarded")
        came = await retry_dead(command_store, sink, config.sinks[sink], selection, app.now())
    return came, await load_sink(config, sink)


async def _discard(config: Config, sink: str, selection: Selection) -> tuple[int, int]:
    from dockbell import app
    from dockbell.admin.replaying import discard_dead, find_sinks_with_dead

    async with opened_command_store(config) as command_store:
        choose_sink(config, sink, await find_sinks_with_dead(command_store))
        return await discard_dead(command_store, sink, selection, app.now())
