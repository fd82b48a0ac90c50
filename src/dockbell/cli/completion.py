"""``dockbell completion``, and what a shell offers for the names in a configuration: read from its text alone, at once.

Whatever goes wrong, nothing is offered: a shell that completes is no place for errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

RESOURCES: Final = ("shipments", "packages", "items", "stock", "warehouses")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and names.

    The script completes the names of sinks, sources and feeds from the configuration that the command would use:
    --config, else $DOCKBELL_CONFIG, else ./dockbell.toml.

    \b
    Examples:
      dockbell completion bash > ~/.local/share/bash-completion/completions/dockbell
      dockbell completion zsh > ~/.zfunc/_dockbell
      dockbell completion fish > ~/.config/fish/completions/dockbell.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "dockbell", "_DOCKBELL_COMPLETE").source())


def complete_sinks(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _choose(_read(ctx).get("sinks"), incomplete)


def complete_sources(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _choose(_read(ctx).get("sources"), incomplete)


def complete_resources(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    return _choose(dict.fromkeys(feed.partition("/")[2] for feed in _find_feeds(_read(ctx))), incomplete)


def complete_feeds(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the feeds that begin so: ``source/resource``, and resources alone."""
    return [*complete_resources(ctx, parameter, incomplete), *_choose(_find_feeds(_read(ctx)), incomplete)]


def complete_feed_values(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the feeds that begin so, each with the sign that its value follows."""
    return [f"{feed}=" for feed in complete_feeds(ctx, parameter, incomplete)]


def complete_settings(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the settings that "plan --what-if" takes."""
    feeds = [f"{feed}.{key}=" for feed in _find_feeds(_read(ctx)) for key in ("every", "at_most", "weight")]
    of_resources = dict.fromkeys(feed.partition("/")[2] for feed in feeds)
    return _choose([*of_resources, *feeds, "requests_per_minute=", "share="], incomplete)


def complete_source_settings(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001  # click's signature
    """Return the keys of a source that begin so, each with the sign that its value follows."""
    from dockbell.config import SourceSettings

    secrets = [f"api_key.{kind}=" for kind in ("file", "env")]
    others = [f"{key}=" for key in SourceSettings.model_fields if key not in ("api_key", "resources")]
    return _choose([*secrets, *others], incomplete)


def _read(ctx: click.Context) -> dict[str, Any]:
    """Return the configuration as it is written; nothing where it cannot be read."""
    import tomllib

    path = ctx.params.get("config_path") or os.environ.get("DOCKBELL_CONFIG") or "dockbell.toml"
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError):
        return {}


def _find_feeds(table: dict[str, Any]) -> Iterator[str]:
    try:
        shared = table.get("resources", {})
        for source, settings in table.get("sources", {}).items():
            own = settings.get("resources", {})
            for resource in RESOURCES:
                if resource in own or resource in shared or not shared:
                    yield f"{source}/{resource}"
    except (AttributeError, TypeError):  # it is no configuration
        return


def _choose(names: Iterable[str] | None, incomplete: str) -> list[str]:
    if not isinstance(names, Iterable):
        return []
    return [name for name in names if isinstance(name, str) and name.startswith(incomplete)]
