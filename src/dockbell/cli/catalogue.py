"""``dockbell catalogue``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dockbell.cli.options import config_option, read_config
from dockbell.cli.printing import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dockbell.config import Config
    from dockbell.core.publishing.catalogue.document import Catalogue

_SCHEMA_SUFFIX = ".schema.json"


@click.command()
@config_option
@click.option("--format", "form", type=click.Choice(["asyncapi", "schemas"]), default="asyncapi", show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write asyncapi.json, or NAME.schema.json for each schema with an index.json, into this folder.",
)
def catalogue(config_path: str | None, *, form: str, output: Path | None) -> None:
    """Describe what this configuration publishes, and where.

    An AsyncAPI 3.0.0 document of every channel, message and schema, or the JSON Schemas alone. Those of records are
    learned from the records that are stored, their names and kinds only; without a store they stay open. Works while
    the daemon runs.

    \b
    Examples:
      dockbell catalogue > asyncapi.json
      dockbell catalogue --format schemas --output schemas/
    """
    import anyio

    from dockbell.errors import ConfigError

    found = anyio.run(_find, read_config(config_path))
    if output is None:
        if form == "asyncapi":
            print_json(found.write_document())
        else:
            print_json({"definitions": found.write_schemas(lambda name: f"#/definitions/{name}")})
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, content in _list_files(found, form).items():
            _write(output / name, content)
    except OSError as error:
        raise ConfigError(f"--output {output}: cannot be written, {(error.strerror or str(error)).lower()}") from error


def _list_files(found: Catalogue, form: str) -> dict[str, dict[str, Any]]:
    """Return what each file holds, by its name."""
    if form == "asyncapi":
        return {"asyncapi.json": found.write_document()}
    schemas = found.write_schemas(lambda name: name + _SCHEMA_SUFFIX)
    files = {name + _SCHEMA_SUFFIX: schema for name, schema in schemas.items()}
    return files | {"index.json": _list(schemas, found.write_document())}


def _list(schemas: Mapping[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return which file describes which type of event, and what each file is about."""
    messages = document["components"]["messages"]
    return {
        "types": {f"dockbell.{name}": name + _SCHEMA_SUFFIX for name in messages if name in schemas},
        "schemas": {
            name + _SCHEMA_SUFFIX: schema.get("title") or schema.get("description", "")
            for name, schema in schemas.items()
        },
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    import json

    from dockbell.host.ownership import OPEN_TO_ALL, write_draft

    # By a rename, which follows no link that others may have put there.
    write_draft(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n", OPEN_TO_ALL).replace(path)


async def _find(config: Config) -> Catalogue:
    from dockbell import app
    from dockbell.admin.catalogue import find_catalogue
    from dockbell.errors import StoreError

    try:
        read_store = await app.open_read_store(config)
    except StoreError as error:
        click.echo(f"{error}; the schemas of records stay open", err=True)
        return await find_catalogue(config, None)
    try:
        return await find_catalogue(config, read_store)
    finally:
        await read_store.aclose()
