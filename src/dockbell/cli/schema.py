"""``dockbell schema``: what an editor needs to know of the configuration."""

from __future__ import annotations

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors.

    With the schema, an editor that supports TOML completes keys, explains them, and underlines mistakes. It works in VS
    Code with Even Better TOML, Zed, Helix, Neovim, and every other editor that uses Taplo. Name the schema in the first
    line of the configuration: "#:schema dockbell.schema.json". "dockbell check" finds more: settings that do not fit
    together, and addresses that cannot be reached.

    \b
    Examples:
      dockbell schema > dockbell.schema.json
    """
    from importlib.resources import files

    click.echo((files("dockbell.config") / "config.schema.json").read_text(encoding="utf-8"), nl=False)
