"""How the deliveries of events, and the attempts at them, are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.printing import print_table, write_cell
from dockbell.core.counting import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from dockbell.admin.why import SinkTrace
    from dockbell.core.publishing.settlement import Attempt


def tell_delivery(trace: SinkTrace, at: datetime) -> str:
    """Return how far a sink is with an event now, as ``blocked after 2 attempts: HTTP 503, next at …``."""
    from dockbell.admin.why import Stage

    error = f": {trace.error}" if trace.error else ""
    tried = f" after {count_of(trace.attempts, 'attempt')}" if trace.stage in (Stage.BLOCKED, Stage.DEAD) else ""
    due = ""
    if trace.stage is Stage.BLOCKED:
        is_due = trace.due is not None and trace.due <= at
        due = ", next attempt is due" if is_due else f", next at {write_cell(trace.due)}"
    return f"{trace.stage.value}{tried}{error}{due}"


def print_attempts(attempts: Iterable[tuple[str, Attempt]]) -> None:
    """Print attempts, each with its sink; nothing where there are none."""
    rows = [
        (
            f"#{each.sequence}",
            each.began_at,
            sink,
            f"{each.number}{' (replay)' if each.is_replay else ''}",
            _tell_verdict(each),
            f"{each.took.total_seconds():.3f} s",
            each.answer,
        )
        for sink, each in attempts
    ]
    if rows:
        click.echo("\nattempts")
        print_table(("event", "at", "sink", "attempt", "result", "took", "answer"), rows)


def _tell_verdict(attempt: Attempt) -> str:
    status = f", HTTP {attempt.status}" if attempt.status is not None and not attempt.error else ""
    error = f": {attempt.error}" if attempt.error else ""
    due = f"; next at {write_cell(attempt.next_at)}" if attempt.next_at is not None else ""
    return f"{attempt.verdict.value}{status}{error}{due}"
