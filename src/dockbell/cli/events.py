"""``dockbell events``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dockbell.cli.completing import complete_resources, complete_sources
from dockbell.cli.options import config_option, read_config
from dockbell.cli.printing import format_event, print_raw

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dockbell.admin.events import Choice
    from dockbell.config import Config
    from dockbell.core.model import Event


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print each event as it was published, one a line.")
@click.option("-f", "--follow", is_flag=True, help="Go on with events as they are recorded, until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(min=0), default=20, show_default=True, help="How many to begin with.")
@click.option(
    "--source", "sources", multiple=True, metavar="NAME", shell_complete=complete_sources, help="Only of this source."
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_resources,
    help="Only of this resource: shipments, ...",
)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only of the record with this key.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only of this type: dockbell.item.updated, ...")
@click.option("--change", "changes", multiple=True, metavar="CHANGE", help="Only this change: created, ...; gap, ...")
def events(
    config_path: str | None,
    *,
    as_json: bool,
    follow: bool,
    last: int,
    sources: tuple[str, ...],
    resources: tuple[str, ...],
    keys: tuple[str, ...],
    types: tuple[str, ...],
    changes: tuple[str, ...],
) -> None:
    """Print the recorded events, and follow them.

    Each on one line: time, type, key, what changed from what to what; without a key, what is said of a whole feed.
    Works while the daemon runs. An option that is given several times takes any of its values.

    \b
    Examples:
      dockbell events --follow --resource shipments
      dockbell events --last 1000 --change deleted --json | jq .data.key
      dockbell events --last 100 --change gap --change held
    """
    import anyio

    from dockbell.admin.events import CHANGES, Choice
    from dockbell.core.model import NOTICES, RESOURCES

    config = read_config(config_path)
    _refuse_unknown("source", sources, [*config.sources, NOTICES.source])
    _refuse_unknown("resource", resources, [*RESOURCES, NOTICES.resource])
    _refuse_unknown("change", changes, CHANGES)
    _doubt_unknown_types(config, types)
    choice = Choice(sources, resources, keys, types, changes)
    try:
        anyio.run(_print, config, choice, last, follow, as_json)
    except KeyboardInterrupt:
        if not follow:  # else that is how it ends
            raise


def _refuse_unknown(option: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that no event can have, rather than find nothing."""
    from dockbell.config import suggest

    for name in given:
        if name not in known:
            raise click.UsageError(f'--{option}: "{name}" is not known; {suggest(name, known)}')


def _doubt_unknown_types(config: Config, given: Iterable[str]) -> None:
    """Say of which type there can be no event now; there may be some from before, of a named event that is gone."""
    from dockbell.admin.events import find_types
    from dockbell.config import suggest

    known = find_types(config)
    for name in given:
        if name not in known:
            click.echo(f'--type: there are no events of type "{name}" now; {suggest(name, known)}', err=True)


async def _print(config: Config, choice: Choice, last: int, follow: bool, as_json: bool) -> None:
    import shutil

    from dockbell import app
    from dockbell.admin import events as operation

    def echo(event: Event) -> None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        if as_json:
            print_raw(event.body)
        else:
            click.echo(format_event(event, width=width, with_source=len(config.sources) > 1))

    read_store = await app.open_read_store(config)
    try:
        found, end = await operation.find_last(read_store, choice, last)
        for event in found:
            echo(event)
        if follow:
            async for event in operation.follow(read_store, choice, end):
                echo(event)
    finally:
        await read_store.aclose()
