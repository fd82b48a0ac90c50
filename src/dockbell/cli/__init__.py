"""The commands: they parse, call and print; the logic is below."""

from __future__ import annotations

import os

import click

from dockbell._version import __version__
from dockbell.cli.group import LazyGroup

# Where each command is, and what it says of itself: here too, so that --help comes without importing it.
_SECTIONS = {
    "Set up": {
        "demo": ("dockbell.cli.sandbox", "Show dockbell at work, with everything it needs."),
        "init": ("dockbell.cli.init", "Write a first configuration that works to PATH."),
        "check": ("dockbell.cli.probe", "Print the configuration, and what would fail."),
        "probe": ("dockbell.cli.probe", "Measure how an API really behaves, and print the TOML for it."),
        "secret": ("dockbell.cli.sinks", "Print a new secret for signing webhooks."),
        "sandbox": ("dockbell.cli.sandbox", "Serve the API with records that move, to develop against."),
        "schema": ("dockbell.cli.schema", "Print the JSON Schema of the configuration, for editors."),
        "completion": ("dockbell.cli.completion", "Print a script that completes commands, options and names."),
    },
    "Run": {
        "run": ("dockbell.cli.run", "Run the daemon until Ctrl-C or SIGTERM."),
        "once": ("dockbell.cli.run", "Read every feed that is due, deliver, and end."),
        "reload": ("dockbell.cli.run", "Make the daemon read its configuration again and apply it."),
        "apply": ("dockbell.cli.apply", "Make all processes on a database follow this configuration."),
        "sources": ("dockbell.cli.sources", "Change the sources of all processes on a database."),
        "backup": ("dockbell.cli.run", "Copy the store to PATH, while the daemon runs or not."),
        "move-store": ("dockbell.cli.move_store", "Move the store from its file into PostgreSQL."),
    },
    "Look": {
        "status": ("dockbell.cli.status", "Print the status of feeds and sinks; for monitoring too."),
        "plan": ("dockbell.cli.plan", "Show how often the budget lets feeds be read, and the delays."),
        "events": (
            "dockbell.cli.events",
            "Print the recorded events, or one EVENT with its deliveries.",
        ),
        "state": ("dockbell.cli.state", "Print the stored records as JSON lines."),
        "why": ("dockbell.cli.records", "Explain why a record has the events that it has, or none."),
        "catalogue": ("dockbell.cli.events", "Describe what this configuration publishes, and where."),
    },
    "Act": {
        "test": ("dockbell.cli.sinks", "Send a marked test event through [sinks.SINK]."),
        "reconcile": ("dockbell.cli.feeds", "Read feeds whole now, to find deletions and misses."),
        "deletes": ("dockbell.cli.feeds", "List held mass deletions, approve or reject them."),
        "drift": ("dockbell.cli.feeds", "List held new or lost fields, absorb or publish them."),
        "replay": ("dockbell.cli.sinks", "Send events that are kept to [sinks.SINK] again."),
        "dead": ("dockbell.cli.dead", "List dead letters, show them, send them again or discard them."),
        "pause": ("dockbell.cli.sinks", "Send nothing to [sinks.SINK] until it is resumed."),
        "purge": ("dockbell.cli.records", "Erase all that is stored of one record's content, for good."),
        "resume": ("dockbell.cli.sinks", "Resume a paused [sinks.SINK]: it gets all that it is owed."),
        "retry": ("dockbell.cli.sinks", "Send to [sinks.SINK] at once what waits for its next attempt."),
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
