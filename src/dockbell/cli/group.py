"""The group of all commands: it imports a command when it is needed, and turns errors into lines and exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

import click

from dockbell.errors import ConfigError, DockbellError

PROBLEM: Final = 1
"""Exit code: something is not as it should be."""
WRONG: Final = 2
"""Exit code: wrong usage or configuration; click's own for usage."""

_INTERRUPTED: Final = 130


class LazyGroup(click.Group):
    """A group whose commands are named by where they are, ``package.module:command``."""

    def __init__(self, homes: Mapping[str, str], **attributes: Any) -> None:
        # The stand-ins are for click's "did you mean".
        super().__init__(**attributes | {"commands": {name: click.Command(name) for name in homes}})
        self._homes = homes

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the commands in the order in which a newcomer meets them."""
        return list(self._homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # same
        """Import and return a command; None when there is none of that name."""
        if cmd_name not in self._homes:
            return None
        module, _, attribute = self._homes[cmd_name].partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))

    def invoke(self, ctx: click.Context) -> None:
        """Run a command; an error that dockbell raises on purpose becomes ``error:`` lines and an exit code."""
        exit_code = 0
        try:
            super().invoke(ctx)
        except* KeyboardInterrupt:
            exit_code = _INTERRUPTED
        except* DockbellError as group:
            exit_code = _tell(group)
        ctx.exit(exit_code)


def _tell(error: BaseException) -> int:
    """Print an error, or each of a group that task groups have nested; return the exit code for it."""
    if isinstance(error, BaseExceptionGroup):
        return max(map(_tell, error.exceptions))
    for line in error.problems if isinstance(error, ConfigError) else [error]:
        click.echo(f"{click.style('error:', fg='red')} {line}", err=True)
    return WRONG if isinstance(error, ConfigError) else PROBLEM
