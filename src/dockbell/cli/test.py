"""``dockbell test``."""

from __future__ import annotations

import click

from dockbell.cli.completing import complete_sinks
from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, read_config
from dockbell.cli.printing import print_lines


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@config_option
@click.pass_context
def test(ctx: click.Context, sink: str, config_path: str | None) -> None:
    """Send a marked test event through [sinks.SINK].

    Says what came of it, and exits with 1 when it was not delivered. Nothing is stored, and a running daemon is not
    disturbed.

    \b
    Example:
      dockbell test erp
    """
    import secrets

    import anyio

    from dockbell.admin.trial import try_sink
    from dockbell.app import now, open_sink
    from dockbell.config import suggest
    from dockbell.core.model import OutcomeKind
    from dockbell.core.publishing.event import test_event
    from dockbell.telemetry import Telemetry

    config = read_config(config_path)
    if sink not in config.sinks:
        known = suggest(sink, config.sinks) if config.sinks else "none is configured"
        raise click.UsageError(f'no sink "{sink}"; {known}')
    event = test_event(config.name, sink, now(), secrets.token_hex(8))
    outcome = anyio.run(try_sink, open_sink(config, sink, Telemetry(), aside=True), event)
    reason = f": {outcome.reason}" if outcome.reason else ""
    print_lines(f"{event.id} {outcome.kind}{reason}")
    if outcome.kind is not OutcomeKind.DELIVERED:
        ctx.exit(PROBLEM)
