"""``dockbell sources``: the sources that several processes share through a database."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dockbell.cli.completion import complete_source_settings
from dockbell.cli.options import all_option, ask_store, config_option, json_option
from dockbell.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dockbell.admin.sources import Edit, ListedSource
    from dockbell.app.source_edits import Written
    from dockbell.config.source_tables import GivenSources

_LISTED: Final = 100
_NAMED: Final = 10
_STDIN: Final = "-"
_SECRET: Final = ("api_key", "proxy")

_look_up_option = click.option(
    "--look-up/--no-look-up",
    "looks_up",
    default=True,
    help="Require the secrets and files of these sources on this machine too; default: --look-up.",
)
_names_argument = click.argument("patterns", nargs=-1, required=True, metavar="NAME...")
_yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@click.group()
def sources() -> None:
    """Manage the sources of all processes on a database.

    The database keeps the sources together with the rest of the shared configuration. dockbell checks each revision as
    a whole, and all processes follow a change within seconds. With a store in SQLite, only the configuration file and
    its included files define sources. Edit these files, then run "dockbell reload".

    KEY is a key of [sources.NAME], with dots for nested keys: base_url, api_key.file, resources.stock.at_most. Write
    VALUE as in TOML, or as plain text. A key that a source does not set comes from [source_defaults]. The database does
    not store secrets, only where they are: in a file or an environment variable of each machine.

    \b
    Examples:
      dockbell sources add acme
      dockbell sources import customers.csv --dry-run
      dockbell sources pause acme
      dockbell sources list 'eu-*' --paused
    """


@sources.command()
@click.argument("name")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_source_settings)
@_look_up_option
@config_option
@json_option
def add(config_path: str | None, *, name: str, settings: tuple[str, ...], looks_up: bool, as_json: bool) -> None:
    """Add the source NAME.

    \b
    Examples:
      dockbell sources add acme
      dockbell sources add globex base_url=https://eu.api.example.com api_key.file=secrets/globex
      dockbell sources add initech requests_per_minute=600 resources.stock.at_most=10m paused=true
    """
    from dockbell.admin import sources as edits
    from dockbell.config.source_tables import GivenSources, read_pairs

    given = GivenSources({name: read_pairs(settings)})
    _write(config_path, edits.add(given), "add", looks_up=looks_up, as_json=as_json)


@sources.command("import")
@click.argument("file", metavar="FILE")
@click.option(
    "--format", "form", type=click.Choice(["toml", "csv"]), help="Format of FILE; default: by its name, else toml."
)
@click.option("--dry-run", is_flag=True, help="Check everything and show what would change, but change nothing.")
@_look_up_option
@config_option
@json_option
def import_(
    config_path: str | None, *, file: str, form: str | None, dry_run: bool, looks_up: bool, as_json: bool
) -> None:
    """Add and change many sources at once: all of FILE, or nothing.

    FILE is TOML with [sources.NAME] tables, or CSV: a header with name and KEYs, then one row per source. An empty cell
    sets nothing. With -, the command reads standard input. An existing source gets exactly the settings that FILE has
    for it, but a paused source stays paused. Sources that FILE does not name stay as they are. Problems are reported
    with their line.

    \b
    Examples:
      dockbell sources import customers.toml --dry-run
      dockbell sources import customers.csv
      dockbell sources import - --format csv < customers.csv
    """
    from dockbell.admin import sources as edits

    given = _read(file, form)
    edit = edits.put(given)
    _write(config_path, edit, "import", looks_up=looks_up, as_json=as_json, is_trial=dry_run)


@sources.command("set")
@click.argument(
    "words", nargs=-1, required=True, metavar="NAME... [KEY=VALUE]...", shell_complete=complete_source_settings
)
@click.option("--unset", multiple=True, metavar="KEY", help="Remove KEY, so that [source_defaults] applies.")
@_look_up_option
@config_option
@json_option
def set_(
    config_path: str | None,
    *,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    looks_up: bool,
    as_json: bool,
) -> None:
    """Change some keys of sources.

    NAME may contain *, ? and […]. The command changes all these sources, or none. Other keys stay as they are.

    \b
    Examples:
      dockbell sources set acme requests_per_minute=600
      dockbell sources set globex 'eu-*' base_url=https://eu.api.example.com
      dockbell sources set acme resources.stock.at_most=10m --unset base_url
    """
    from dockbell.admin import sources as edits
    from dockbell.config.source_tables import read_pairs

    patterns = [word for word in words if "=" not in word]
    settings = [word for word in words if "=" in word]
    if not patterns:
        raise click.UsageError("pass the NAME of at least one source")
    if not settings and not unset:
        raise click.UsageError("pass at least one KEY=VALUE or --unset KEY")
    edit = edits.change(patterns, read_pairs(settings), unset)
    _write(config_path, edit, "set", looks_up=looks_up, as_json=as_json)


@sources.command()
@_names_argument
@config_option
@json_option
def pause(config_path: str | None, *, patterns: tuple[str, ...], as_json: bool) -> None:
    """Stop reading sources until you resume them.

    NAME may contain *, ? and […]. dockbell still delivers events that it recorded before. Nothing is lost: dockbell
    catches up with a source when you resume it. The status, the page and the metrics show that a source is paused, and
    expect nothing from it.

    \b
    Examples:
      dockbell sources pause acme globex
      dockbell sources pause 'eu-*'
    """
    from dockbell.admin import sources as edits

    _write(config_path, edits.pause(patterns, paused=True), "pause", as_json=as_json)


@sources.command()
@_names_argument
@config_option
@json_option
def resume(config_path: str | None, *, patterns: tuple[str, ...], as_json: bool) -> None:
    """Read paused sources again.

    NAME may contain *, ? and […].

    \b
    Examples:
      dockbell sources resume acme
      dockbell sources resume '*'
    """
    from dockbell.admin import sources as edits

    _write(config_path, edits.pause(patterns, paused=False), "resume", as_json=as_json)


@sources.command()
@_names_argument
@_yes_option
@config_option
@json_option
def remove(config_path: str | None, *, patterns: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove sources from the configuration.

    NAME may contain *, ? and […]. dockbell stops reading these sources. Their records and events stay in the store:
    events for keep_events ([store]), records permanently, except those that you "dockbell purge". Events that sinks
    have not taken yet wait until you add the source again. To deliver them, pause the source first, and remove it when
    "dockbell status" shows nothing owed. A source that you add again under its name continues where it was.

    \b
    Examples:
      dockbell sources remove acme
      dockbell sources remove 'test-*' --yes
    """
    import anyio

    from dockbell.admin import sources as edits
    from dockbell.app.source_edits import load_shared_table

    edit = edits.remove(patterns)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("remove cannot ask for confirmation without a terminal; add --yes")
        names = edit(anyio.run(load_shared_table, _find(config_path))).removed
        click.confirm(f"remove {_name(names)}? Records and events stay in the store", abort=True, err=True)
    _write(config_path, edit, "remove", as_json=as_json)


@sources.command("list")
@click.argument("patterns", nargs=-1, metavar="[NAME]...")
@click.option(
    "--paused/--not-paused", "paused", default=None, help="List only sources that are paused, or that are not."
)
@click.option("--process", default="", metavar="TEXT", help="List only sources of processes with TEXT in their names.")
@all_option
@config_option
@json_option
def list_(
    config_path: str | None,
    *,
    patterns: tuple[str, ...],
    paused: bool | None,
    process: str,
    everything: bool,
    as_json: bool,
) -> None:
    """List the sources with base URL, pause state, process and own settings.

    NAME may contain *, ? and […]. On a terminal, the command lists at most 100 sources without --all. It also works
    with a store in SQLite.

    \b
    Examples:
      dockbell sources list
      dockbell sources list 'eu-*' --paused
      dockbell sources list --json | jq -r '.sources[] | select(.process == null).source'
    """
    import anyio

    from dockbell.admin.sources import list_sources
    from dockbell.app import load_place
    from dockbell.app.source_edits import load_shared_table
    from dockbell.errors import StoreMissing

    path = _find(config_path)
    shared = anyio.run(load_shared_table, path)
    try:
        holders = ask_store(load_place(path), lambda read_store: read_store.load_holders())
    except StoreMissing:
        holders = {}
    found = list(list_sources(shared, holders, patterns, paused=paused, process=process))
    if as_json:
        print_json({"sources": list(map(_describe, found)), "total": len(found)})
        return
    shown = found if everything or not sys.stdout.isatty() else found[:_LISTED]
    if shown:
        print_table(("source", "base URL", "paused", "process", "own settings"), list(map(_row, shown)))
        click.echo()
    if len(shown) < len(found):
        click.echo(f"and {len(found) - len(shown):,} more; narrow down with NAME, or list all with --all")
    count = sum(each.is_paused for each in found)
    click.echo(f"{_count(len(found))}, {count:,} paused")


# What they share -----------------------------------------------------------------------------------------------------


def _find(config_path: str | None) -> Path:
    from dockbell.config import find

    return find(config_path, os.environ)


def _read(file: str, form: str | None) -> GivenSources:
    """Return the sources of a file, or of standard input."""
    from dockbell.config.source_tables import read_rows, read_tables
    from dockbell.config.toml_file import decode_text
    from dockbell.errors import ConfigError

    label = "standard input" if file == _STDIN else file
    try:
        content = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{label}: cannot be read, {(error.strerror or str(error)).lower()}") from error
    read = read_rows if (form or Path(file).suffix.lstrip(".").lower()) == "csv" else read_tables
    return read(decode_text(content, label), label)


def _write(
    config_path: str | None,
    edit: Edit,
    command: str,
    *,
    as_json: bool,
    looks_up: bool = False,
    is_trial: bool = False,
) -> None:
    """Change the sources, and say what was changed."""
    import anyio

    from dockbell.app.source_edits import edit_sources

    async def write() -> Written:
        path = _find(config_path)
        return await edit_sources(path, edit, label=f"sources {command}", looks_up=looks_up, is_trial=is_trial)

    written = anyio.run(write)
    _tell(written, command, as_json=as_json, is_trial=is_trial)


def _tell(written: Written, command: str, *, as_json: bool, is_trial: bool) -> None:
    edited = written.edited
    told: Mapping[str, Sequence[str]] = {
        "added": edited.added,
        "changed": edited.changed,
        "unchanged": edited.unchanged,
        "removed": edited.removed,
    }
    if as_json:
        print_json(
            {"revision": written.revision or None, "dry_run": is_trial}
            | {key: list(names) for key, names in told.items()}
        )
        return
    done = {"pause": "paused", "resume": "resumed"}.get(command, "changed")
    verbs = {"added": "added", "changed": done, "unchanged": "unchanged", "removed": "removed"}
    for key, names in told.items():
        if names:
            click.echo(f"{verbs[key]}: {_name(names)}")
    if is_trial:
        click.echo("nothing was written")
    elif written.revision:
        click.echo(f"revision {written.revision}; all processes follow it within seconds")
    else:
        click.echo("nothing changed")


def _name(names: Sequence[str]) -> str:
    """Return sources by name, many of them by their number and the first."""
    told = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return told if more <= 0 else f"{len(names):,} sources, {told} and {more:,} more"


def _count(number: int) -> str:
    return f"{number:,} source{'' if number == 1 else 's'}"


def _row(each: ListedSource) -> tuple[object, ...]:
    return each.name, each.base_url, "yes" if each.is_paused else "", each.process, ", ".join(_list_keys(each.own))


def _list_keys(own: Mapping[str, Any]) -> Iterator[str]:
    for key, value in own.items():
        if key == "resources" and isinstance(value, dict):
            yield from (f"{key}.{name}" for name in value)
        else:
            yield key


def _describe(each: ListedSource) -> dict[str, Any]:
    return {
        "source": each.name,
        "base_url": each.base_url,
        "paused": each.is_paused,
        "process": each.process or None,
        "settings": {key: _conceal(value) if key in _SECRET else value for key, value in each.own.items()},
    }


def _conceal(secret: Any) -> Any:
    """Return where a secret is, and nothing of one that a file has written out."""
    return secret if isinstance(secret, dict) and secret.keys() <= {"env", "file"} else "***"
