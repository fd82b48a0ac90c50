"""The commands: they parse, call and print; the logic is below."""

from __future__ import annotations

import os

import click

from dockbell._version import __version__
from dockbell.cli.group import LazyGroup

_HOMES = {
    "demo": "dockbell.cli.demo:demo",
    "init": "dockbell.cli.init:init",
    "run": "dockbell.cli.run:run",
    "check": "dockbell.cli.check:check",
    "once": "dockbell.cli.once:once",
    "reload": "dockbell.cli.reload:reload",
    "status": "dockbell.cli.status:status",
    "events": "dockbell.cli.events:events",
    "why": "dockbell.cli.why:why",
    "backup": "dockbell.cli.backup:backup",
    "reconcile": "dockbell.cli.reconcile:reconcile",
    "deletes": "dockbell.cli.deletes:deletes",
    "drift": "dockbell.cli.drift:drift",
    "replay": "dockbell.cli.replay:replay",
    "dead": "dockbell.cli.dead:dead",
    "purge": "dockbell.cli.purge:purge",
    "pause": "dockbell.cli.pause:pause",
    "resume": "dockbell.cli.pause:resume",
    "retry": "dockbell.cli.pause:retry",
    "catalogue": "dockbell.cli.catalogue:catalogue",
    "test": "dockbell.cli.test:test",
    "secret": "dockbell.cli.secret:secret",
    "sandbox": "dockbell.cli.sandbox:sandbox",
    "probe": "dockbell.cli.probe:probe",
    "completion": "dockbell.cli.completion:completion",
}

# As the commands say themselves; here too, so that --help comes without importing them.
_SECTIONS = {
    "Set up": {
        "demo": "Show dockbell at work, with everything it needs.",
        "init": "Write a first configuration that works to PATH.",
        "check": "Print the configuration, and what would fail.",
        "probe": "Measure how an API really behaves, and print the TOML for it.",
        "secret": "Print a new secret for signing webhooks.",
        "sandbox": "Serve the API with records that move, to develop against.",
        "completion": "Print what lets a shell complete commands, options and names.",
    },
    "Run": {
        "run": "Run the daemon until Ctrl-C or SIGTERM.",
        "once": "Read every feed that is due, deliver, and end.",
        "reload": "Have the daemon read its configuration again, and follow it.",
        "backup": "Copy the store to PATH, while the daemon runs or not.",
    },
    "Look": {
        "status": "Print how feeds and sinks stand; for monitoring too.",
        "events": "Print the recorded events, and follow them.",
        "why": "Say why a record has the events that it has, or none.",
        "catalogue": "Describe what this configuration publishes, and where.",
    },
    "Act": {
        "test": "Send a marked test event through [sinks.SINK].",
        "reconcile": "Read feeds whole now, to find deletions and misses.",
        "deletes": "List held mass deletions, approve or reject them.",
        "drift": "List held new or lost fields, absorb or publish them.",
        "replay": "Send events that are kept to [sinks.SINK] again.",
        "dead": "List dead letters, show them, send them again or discard them.",
        "pause": "Send nothing to [sinks.SINK] until it is resumed.",
        "purge": "Erase all that is stored of one record's content, for good.",
        "resume": "Let a paused [sinks.SINK] go on, with all that it is owed.",
        "retry": "Send to [sinks.SINK] at once what waits for its next attempt.",
    },
}

_EPILOG = """
\b
First steps:
  dockbell demo                      look around: no configuration, no server
  dockbell sandbox --activity 2      an API to develop against
  dockbell init                      a configuration, by a few questions
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
    sections=_SECTIONS,
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
