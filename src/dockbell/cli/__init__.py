"""The commands: they parse, call and print; the logic is below."""

from __future__ import annotations

import os

import click

from dockbell import __version__
from dockbell.cli.group import LazyGroup

_HOMES = {
    "demo": "dockbell.cli.demo:demo",
    "run": "dockbell.cli.run:run",
    "check": "dockbell.cli.check:check",
    "once": "dockbell.cli.once:once",
    "status": "dockbell.cli.status:status",
    "events": "dockbell.cli.events:events",
    "why": "dockbell.cli.why:why",
    "reconcile": "dockbell.cli.reconcile:reconcile",
    "deletes": "dockbell.cli.deletes:deletes",
    "drift": "dockbell.cli.drift:drift",
    "replay": "dockbell.cli.replay:replay",
    "dead": "dockbell.cli.dead:dead",
    "pause": "dockbell.cli.pause:pause",
    "resume": "dockbell.cli.pause:resume",
    "catalogue": "dockbell.cli.catalogue:catalogue",
    "test": "dockbell.cli.test:test",
    "secret": "dockbell.cli.secret:secret",
    "sandbox": "dockbell.cli.sandbox:sandbox",
    "probe": "dockbell.cli.probe:probe",
}

_EPILOG = """
\b
First steps:
  dockbell demo                      look around: no configuration, no server
  dockbell sandbox --activity 2      an API to develop against
  dockbell check                     what would fail
  dockbell run                       the daemon

\b
The configuration is looked for at --config PATH, else at $DOCKBELL_CONFIG, else at ./dockbell.toml.

\b
Exit codes: 0 fine, 1 found a problem, 2 wrong usage or configuration.
"""


@click.group(
    cls=LazyGroup,
    homes=_HOMES,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="dockbell %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Turn a polled logistics API into events on MQTT and webhooks.

    dockbell reads shipments, packages, items, stock and warehouses, compares them with what it has stored, and
    publishes every change.
    """
    if os.environ.get("NO_COLOR"):  # https://no-color.org; click does not look for it
        ctx.color = False
