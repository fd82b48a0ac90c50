"""``dockbell events`` and ``catalogue``: the events that were recorded, and the events that there can be."""

from __future__ import annotations

import re
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dockbell.cli.completion import complete_resources, complete_sources
from dockbell.cli.deliveries import print_attempts, tell_delivery
from dockbell.cli.group import NotFound, exit_if
from dockbell.cli.options import ask_store, choose_feeds, config_option, read_followed
from dockbell.cli.printing import print_event, print_json, print_raw, print_table, write_cell

if TYPE_CHECKING:
    from dockbell.admin.events import Choice
    from dockbell.admin.why import EventTrace
    from dockbell.config import Config
    from dockbell.core.model import Event
    from dockbell.core.publishing.catalogue.document import Catalogue
    from dockbell.ports import ReadStore

_SCHEMA_SUFFIX = ".schema.json"


@click.command()
@click.argument("event", required=False)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print each event as it was published, one per line.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing events as they are recorded, until Ctrl-C.")
@click.option(
    "-n", "--last", type=click.IntRange(min=0), default=20, show_default=True, help="Number of latest events to print."
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_sources,
    help="Only events of this source.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_resources,
    help="Only events of this resource: shipments, ...",
)
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only events of the record with this key.")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="Only events of this type: dockbell.item.updated, ..."
)
@click.option(
    "--change", "changes", multiple=True, metavar="CHANGE", help="Only events with this change: created, ...; gap, ..."
)
def events(
    event: str | None, config_path: str | None, *, as_json: bool, follow: bool, last: int, **chosen: tuple[str, ...]
) -> None:
    """Print recorded events, or one EVENT with its deliveries.

    Prints one line per event: time, type, key, and what changed, with old and new values. For an event without a key,
    the line shows what the event says about a whole feed. Works while the daemon runs. If you repeat an option, it
    matches any of its values.

    EVENT is an event id, as receivers get it, or FEED#SEQUENCE. The command prints the whole event, the attempts to
    deliver it, and the receivers' answers. dockbell keeps the last `keep_attempts` attempts, counted over all sinks.

    \b
    Examples:
      dockbell events main/shipments#42
      dockbell events --follow --resource shipments
      dockbell events --last 1000 --change deleted --json | jq .data.key
      dockbell events --last 100 --change gap --change held
    """
    import anyio

    from dockbell.admin.events import CHANGES, Choice, find_types
    from dockbell.config import suggest
    from dockbell.core.model import NOTICES, RESOURCES

    config = read_followed(config_path)
    if event is not None:
        if follow or any(chosen.values()):
            raise click.UsageError("EVENT selects one event; remove the options that select events")
        _print_one(config, event, as_json=as_json)
        return
    sources, resources = [*config.sources, NOTICES.source], [*RESOURCES, NOTICES.resource]
    for option, known in {"sources": sources, "resources": resources, "changes": CHANGES}.items():
        for name in chosen[option]:
            if name not in known:  # no event can have it
                error = NotFound if option == "sources" else click.UsageError  # resources and changes are fixed
                raise error(f'--{option[:-1]}: unknown {option[:-1]} "{name}"; {suggest(name, known)}')
    types = find_types(config)
    for name in chosen["types"]:
        if name not in types:  # there may be some from before, of a named event that is gone
            click.echo(f'--type: the configuration has no event type "{name}"; {suggest(name, types)}', err=True)
    try:
        anyio.run(_print, config, Choice(**chosen), last, follow, as_json)
    except KeyboardInterrupt:
        if not follow:  # else that is how it ends
            raise


def _print_one(config: Config, text: str, *, as_json: bool) -> None:
    import msgspec

    from dockbell.admin.history_as_json import describe_traces
    from dockbell.app import now
    from dockbell.core.moment import format_moment

    told = _find(config, text)
    if told is None:
        missing = f'event {text}: no longer kept, or never recorded; "dockbell events" lists the latest events'
        click.echo(missing, err=True)
        exit_if(missing)
        return
    found = told.event
    if as_json:
        whole = {
            "event": msgspec.Raw(found.body),
            "recorded_at": format_moment(told.recorded_at),
            "deliveries": describe_traces(told.traces),
        }
        print_raw(msgspec.json.format(msgspec.json.encode(whole)))
        return
    print_raw(msgspec.json.format(found.body))
    click.echo(f"\n{found.feed} #{found.sequence}, recorded {write_cell(told.recorded_at)}")
    print_table(("sink", "delivery"), [(trace.sink, tell_delivery(trace, now())) for trace in told.traces])
    print_attempts((trace.sink, each) for trace in told.traces for each in trace.log)


def _find(config: Config, text: str) -> EventTrace | None:
    from dockbell.admin.events import find_by_id
    from dockbell.admin.why import find_event_trace

    feed_name, mark, number = text.replace(" ", "").partition("#")
    if not mark:

        async def find(read_store: ReadStore) -> EventTrace | None:
            found = await find_by_id(read_store, text)
            if found is None:
                return None
            return await find_event_trace(read_store, found.feed, found.sequence, sinks=config.sinks)

        return ask_store(config, find)
    if not re.fullmatch(r"[0-9]{1,18}", number):
        raise click.UsageError(f"EVENT: must be an id, or FEED#SEQUENCE as in main/shipments#42, got {text}")
    stored = [state.feed for state in ask_store(config, lambda read_store: read_store.load_feeds())]
    (feed,) = choose_feeds(config, [feed_name], stored)
    return ask_store(config, lambda read_store: find_event_trace(read_store, feed, int(number), sinks=config.sinks))


async def _print(config: Config, choice: Choice, last: int, follow: bool, as_json: bool) -> None:
    from dockbell import app
    from dockbell.admin import events as operation

    def echo(event: Event) -> None:
        if as_json:
            print_raw(event.body)
        else:
            print_event(event, with_source=len(config.sources) > 1)

    async with aclosing(await app.open_read_store(config)) as read_store:
        found, end = await operation.find_last(read_store, choice, last)
        for event in found:
            echo(event)
        if follow:
            async for event in operation.follow(read_store, choice, end):
                echo(event)


@click.command()
@config_option
@click.option("--format", "form", type=click.Choice(["asyncapi", "schemas"]), default="asyncapi", show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write to this folder: asyncapi.json, or one NAME.schema.json per schema and an index.json.",
)
def catalogue(config_path: str | None, *, form: str, output: Path | None) -> None:
    """Describe what this configuration publishes, and where.

    Prints an AsyncAPI 3.0.0 document with every channel, message and schema, or only the JSON Schemas. dockbell learns
    the schemas of records from the stored records, and uses only the names and types of their fields. Without a store,
    these schemas stay open. Works while the daemon runs.

    \b
    Examples:
      dockbell catalogue > asyncapi.json
      dockbell catalogue --format schemas --output schemas/
    """
    import json

    import anyio

    from dockbell.errors import ConfigError
    from dockbell.host.ownership import OPEN_TO_ALL, write_draft

    found = anyio.run(_find_catalogue, read_followed(config_path))
    if output is None:
        if form == "asyncapi":
            print_json(found.write_document())
        else:
            print_json({"definitions": found.write_schemas(lambda name: f"#/definitions/{name}")})
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in _list_files(found, form).items():
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            # By a rename, which follows no link that others may have put there.
            write_draft(output / name, text, OPEN_TO_ALL).replace(output / name)
    except OSError as error:
        raise ConfigError(f"--output {output}: cannot be written, {(error.strerror or str(error)).lower()}") from error


def _list_files(found: Catalogue, form: str) -> dict[str, dict[str, Any]]:
    """Return what each file holds, by its name; the index says which describes which type, and what each is about."""
    document = found.write_document()
    if form == "asyncapi":
        return {"asyncapi.json": document}
    schemas = found.write_schemas(lambda name: name + _SCHEMA_SUFFIX)
    files = {name + _SCHEMA_SUFFIX: schema for name, schema in schemas.items()}
    types = {
        f"dockbell.{name}": name + _SCHEMA_SUFFIX for name in document["components"]["messages"] if name in schemas
    }
    about = {name: schema.get("title") or schema.get("description", "") for name, schema in files.items()}
    return files | {"index.json": {"types": types, "schemas": about}}


async def _find_catalogue(config: Config) -> Catalogue:
    from dockbell import app
    from dockbell.admin.events import find_catalogue
    from dockbell.errors import StoreError

    try:
        read_store = await app.open_read_store(config)
    except StoreError as error:
        click.echo(f"{error}; the record schemas stay open", err=True)
        return await find_catalogue(config, None)
    async with aclosing(read_store):
        return await find_catalogue(config, read_store)
