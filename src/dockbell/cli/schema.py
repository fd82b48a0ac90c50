"""``dockbell schema``: what an editor needs to know of the configuration."""

from __future__ import annotations

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors.

    With it an editor that knows TOML completes keys, shows what they mean, and underlines mistakes: VS Code with Even
    Better TOML, Zed, Helix, Neovim, and every other that speaks to Taplo. The first line of the configuration names it,
    as "#:schema dockbell.schema.json". "dockbell check" finds more: what does not fit together, and what cannot be
    reached.

    \b
    Examples:
      dockbell schema > dockbell.schema.json
    """
    from importlib.resources import files

    click.echo((files("dockbell.config") / "config.schema.json").read_text(encoding="utf-8"), nl=False)
