"""The group of all commands: it imports a command when it is needed, and turns errors into lines and exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

import click

from dockbell.errors import ConfigError, DockbellError

PROBLEM: Final = 1
"""Exit code: something is not as it should be."""
WRONG: Final = 2
"""Exit code: wrong usage or configuration; click's own for usage."""

_INTERRUPTED: Final = 130
_OTHERS: Final = "Others"
_SUMMARY_MOST: Final = 200


class LazyGroup(click.Group):
    """A group that lists its commands, in sections, without importing them.

    Args:
        homes: Where each command is, ``package.module:command``.
        sections: Each title with its commands, and the first sentence of the help of each.
        attributes: Of any group.
    """

    def __init__(
        self, homes: Mapping[str, str], *, sections: Mapping[str, Mapping[str, str]] | None = None, **attributes: Any
    ) -> None:
        # The stand-ins are for click's "did you mean".
        super().__init__(**attributes | {"commands": {name: click.Command(name) for name in homes}})
        self._homes = homes
        self._sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Return the commands in the order in which a newcomer meets them."""
        listed = [name for commands in self._sections.values() for name in commands if name in self._homes]
        return list(dict.fromkeys([*listed, *self._homes]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # same
        """Import and return a command; None when there is none of that name."""
        if cmd_name not in self._homes:
            return None
        module, _, attribute = self._homes[cmd_name].partition(":")
        return cast("click.Command", getattr(import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section, each command on its line."""
        for title, commands in self.summaries(ctx).items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def summaries(self, ctx: click.Context) -> Mapping[str, Mapping[str, str]]:
        """Return each section's title with its commands, and what each does."""
        found = {title: {name: said for name, said in commands.items() if name in self._homes}
                 for title, commands in self._sections.items()}  # fmt: skip
        others = dict(self._summarise(ctx, {name for commands in found.values() for name in commands}))
        return found | ({_OTHERS: others} if others else {})

    def _summarise(self, ctx: click.Context, listed: set[str]) -> Iterator[tuple[str, str]]:
        for name in self._homes:
            if name not in listed and (command := self.get_command(ctx, name)) is not None:
                yield name, command.get_short_help_str(_SUMMARY_MOST)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command; an error that is raised on purpose becomes ``error:`` lines and an exit code.

        With ``--json`` it becomes one JSON object on standard output, like anything else that the command would say.
        """
        as_json = "--json" in ctx.args
        exit_code = 0
        try:
            try:
                super().invoke(ctx)
            except click.UsageError as error:
                if not as_json:
                    raise
                exit_code = _tell_in_json(error.exit_code, [error.format_message()])
        except* KeyboardInterrupt:
            exit_code = _INTERRUPTED
        except* DockbellError as group:
            exit_code, lines = _gather(group)
            if as_json:
                _tell_in_json(exit_code, lines)
            else:
                for line in lines:
                    click.echo(f"{click.style('error:', fg='red')} {line}", err=True)
        ctx.exit(exit_code)


def _gather(error: BaseException) -> tuple[int, list[str]]:
    """Return the exit code and the lines for an error, or for a group of them that task groups have nested."""
    if isinstance(error, BaseExceptionGroup):
        found = [_gather(each) for each in error.exceptions]
        return max(code for code, _ in found), [line for _, lines in found for line in lines]
    if isinstance(error, ConfigError):
        return WRONG, [str(line) for line in error.problems]
    return PROBLEM, [str(error)]


def _tell_in_json(exit_code: int, lines: list[str]) -> int:
    import json

    click.echo(json.dumps({"error": "\n".join(lines), "exit_code": exit_code}, ensure_ascii=False))
    return exit_code
