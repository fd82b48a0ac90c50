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


class NotFound(DockbellError):
    """What a command names does not exist."""


def exit_if(problem: object) -> None:
    """End with exit code 1 where there is a problem."""
    if problem:
        raise click.exceptions.Exit(PROBLEM)


class LazyGroup(click.Group):
    """A group that lists its commands, in sections, without importing them.

    Args:
        sections: Each title with its commands in the order in which a newcomer meets them: the module where each is,
            under its own name, and the first sentence of its help.
        attributes: Of any group.
    """

    def __init__(self, sections: Mapping[str, Mapping[str, tuple[str, str]]], **attributes: Any) -> None:
        self.sections = sections
        self._modules = {name: module for commands in sections.values() for name, (module, _) in commands.items()}
        # The stand-ins are for click's "did you mean".
        super().__init__(**attributes | {"commands": {name: click.Command(name) for name in self._modules}})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # same
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        return cast("click.Command", getattr(import_module(module), cmd_name.replace("-", "_")))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # same
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])

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
