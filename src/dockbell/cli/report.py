"""How what a probe found appears on a terminal: in short, or with all that speaks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from dockbell.cli.printing import print_lines, print_table

if TYPE_CHECKING:
    from dockbell.admin.probing import Report

_OF_ALL: Final = ("budget", "clock", "latency")
_IN_SHORT: Final = ("records", "key", "updated_at", "updated_since")


def print_report(report: Report, *, verbose: bool = False) -> None:
    """Print what was found of a source: a row for each feed, and what is worth a look; or every finding."""
    if verbose:
        print_table(
            ("where", "what", "state", "found", "evidence"),
            [(each.subject, each.what, each.state, each.found, each.evidence) for each in report.findings],
        )
        return
    found: dict[str, dict[str, str]] = {}
    for each in report.findings:
        found.setdefault(each.subject, {})[each.what] = each.found
    account = found.pop(report.source)
    words = [f"{report.sent} requests sent", *(f"{name}: {account[name]}" for name in _OF_ALL if name in account)]
    print_lines(f"{report.source}: {'; '.join(words)}\n")
    rows = [(feed, *(told.get(name) for name in _IN_SHORT)) for feed, told in found.items() if "key" in told]
    if rows:
        print_table(("feed", *_IN_SHORT), rows)
    notes = [each for each in report.findings if each.state in ("note", "fails")]
    if notes:
        click.echo()
        print_table(
            ("where", "what", "state", "found", "evidence"),
            [(each.subject, each.what, each.state, each.found, each.evidence) for each in notes],
        )
