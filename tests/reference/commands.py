"""``docs/reference/commands.md``: every command as click knows it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click

from dockbell.cli import main
from tests.reference.markdown import code, escape, page, table

_INTRODUCTION: Final = """\
Every command takes `--help`. Commands that print a table take `--json`. All commands work while the daemon runs, unless
their description says that they need the store to themselves. dockbell looks for the configuration at `--config PATH`,
else at `$DOCKBELL_CONFIG`, else at `./dockbell.toml`. [Exit codes](errors.md#exit-codes) are 0, 1 and 2."""

_EXAMPLES: Final = re.compile(r"Examples?:\n")


def write() -> str:
    """Return the page."""
    overview: list[tuple[str, str]] = []
    parts: list[str] = []
    context = click.Context(main, info_name="dockbell")
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        overview.append((f"[`dockbell {name}`](#dockbell-{name})", escape(command.get_short_help_str(200))))
        parts += _describe(command, click.Context(command, info_name=name, parent=context), 2)
    return page("Commands", _INTRODUCTION, table(("command", "what it does"), overview), *parts)


def _describe(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{context.command_path}`"
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    yield f"```text\n{usage}\n```"
    yield from _write_help(command.help or "")
    rows = []
    for each in command.get_params(context):
        record = each.get_help_record(context)
        if record is not None and "--help" not in each.opts:
            rows.append((code(record[0]), escape(record[1])))
    if rows:
        yield table(("option", "meaning"), rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None
            yield from _describe(sub, click.Context(sub, info_name=name, parent=context), level + 1)


def _write_help(text: str) -> Iterator[str]:
    """Yield a help text; what click must not wrap is shown as it is, and examples are commands."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if not paragraph.startswith("\b"):
            yield escape(paragraph)
            continue
        lines = paragraph.removeprefix("\b").strip("\n")
        if _EXAMPLES.match(lines):
            title, _, lines = lines.partition("\n")
            commands = [re.sub(r"(\S) {3,}(\S)", r"\1   # \2", line.strip()) for line in lines.splitlines()]
            language = "sh" if all(line.startswith("dockbell ") for line in commands) else "text"
            yield "\n".join([f"{title}\n", f"```{language}", *commands, "```"])
        else:
            yield f"```text\n{lines}\n```"
