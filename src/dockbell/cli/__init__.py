"""The commands: they parse, call and print; the logic is below."""

from __future__ import annotations

import atexit
import gc
import os
import sys

import click

from dockbell._version import __version__
from dockbell.cli.group import LazyGroup

# pydantic would look through all that is installed for plugins of its own, which have no business here: 10 ms.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# A start makes a hundred thousand objects, nearly all of which stay: garbage collection among them takes 25 ms. Later
# each page of records makes a thousand, which are freed without it: Python's own frequency costs 3 % of the CPU.
_FIRST_COLLECTION = 200_000  # new objects
_LATER_COLLECTIONS = 10_000


def _end_start(phase: str, info: object) -> None:  # noqa: ARG001  # Python's signature
    gc.set_threshold(_LATER_COLLECTIONS)
    gc.callbacks.remove(_end_start)


gc.callbacks.append(_end_start)
gc.set_threshold(_FIRST_COLLECTION)
# At exit Python collects garbage among all objects once more, though the memory is given back anyway: 60 ms. In
# development mode it reports what was not closed.
if not sys.flags.dev_mode:
    atexit.register(gc.freeze)

# Where each command is, and what it says of itself: here too, so that --help comes without importing it.
_SECTIONS = {
    "Set up": {
        "demo": ("dockbell.cli.sandbox", "Run a complete demo of dockbell on this machine."),
        "init": ("dockbell.cli.init", "Write a first working configuration to PATH."),
        "check": ("dockbell.cli.probe", "Print the configuration and report what would fail."),
        "probe": ("dockbell.cli.probe", "Measure how an API behaves and print the TOML for it."),
        "secret": ("dockbell.cli.sinks", "Print a new secret for signing webhooks."),
        "sandbox": ("dockbell.cli.sandbox", "Serve a simulated API to develop against."),
        "schema": ("dockbell.cli.schema", "Print the JSON Schema of the configuration, for editors."),
        "completion": ("dockbell.cli.completion", "Print a script that completes commands, options and names."),
    },
    "Run": {
        "run": ("dockbell.cli.run", "Run the daemon until Ctrl-C or SIGTERM."),
        "once": ("dockbell.cli.run", "Read every feed that is due, deliver, and exit."),
        "reload": ("dockbell.cli.run", "Make the daemon reload and apply its configuration."),
        "apply": ("dockbell.cli.apply", "Apply this configuration to all processes on a database."),
        "sources": ("dockbell.cli.sources", "Manage the sources of all processes on a database."),
        "backup": ("dockbell.cli.run", "Copy the store to PATH, even while the daemon runs."),
        "move-store": ("dockbell.cli.move_store", "Move the store from its file into PostgreSQL."),
    },
    "Look": {
        "status": ("dockbell.cli.status", "Print the status of feeds and sinks."),
        "plan": ("dockbell.cli.plan", "Show how often dockbell can read each feed, and the delays."),
        "events": (
            "dockbell.cli.events",
            "Print recorded events, or one EVENT with its deliveries.",
        ),
        "state": ("dockbell.cli.state", "Print the stored records as JSON lines."),
        "why": ("dockbell.cli.records", "Explain why a record has its events, or has none."),
        "catalogue": ("dockbell.cli.events", "Describe what this configuration publishes, and where."),
    },
    "Act": {
        "test": ("dockbell.cli.sinks", "Send a marked test event to [sinks.SINK]."),
        "reconcile": ("dockbell.cli.feeds", "Read whole feeds now to find deletions and missed changes."),
        "deletes": ("dockbell.cli.feeds", "List, approve or reject held mass deletions."),
        "drift": ("dockbell.cli.feeds", "List, absorb or publish held drift."),
        "replay": ("dockbell.cli.sinks", "Send kept events to [sinks.SINK] again."),
        "dead": ("dockbell.cli.dead", "List, show, retry or discard dead letters."),
        "pause": ("dockbell.cli.sinks", "Stop sending to [sinks.SINK] until you resume it."),
        "purge": ("dockbell.cli.records", "Permanently erase the stored content of one record."),
        "resume": ("dockbell.cli.sinks", "Resume a paused [sinks.SINK] and send everything it is owed."),
        "retry": ("dockbell.cli.sinks", "Retry the waiting events of [sinks.SINK] now."),
    },
}

_EPILOG = """
\b
First steps:
  dockbell demo                      see dockbell work; needs no configuration and no server
  dockbell sandbox --activity 2      start an API to develop against
  dockbell init                      answer a few questions to get a configuration
  dockbell check                     see what would fail
  dockbell run                       run the daemon

\b
Configuration file: --config PATH, else $DOCKBELL_CONFIG, else ./dockbell.toml.

\b
Exit codes: 0 success, 1 a problem was found, 2 wrong usage or configuration.
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
