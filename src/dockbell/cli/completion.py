"""``dockbell completion``."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what lets a shell complete commands, options and names.

    Names of sinks, sources and feeds are those of the configuration that the command would use: --config, else
    $DOCKBELL_CONFIG, else ./dockbell.toml.

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
