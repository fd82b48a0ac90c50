"""``dockbell run``."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TYPE_CHECKING

import click

from dockbell.cli.options import config_option, read_config, verbose_option
from dockbell.cli.progress import Reading, load_expected, log_stream, showing

if TYPE_CHECKING:
    from dockbell.config import Config
    from dockbell.telemetry import Fact, Telemetry


@click.command()
@config_option
@verbose_option
def run(config_path: str | None, *, verbose: bool) -> None:
    """Run the daemon until Ctrl-C or SIGTERM.

    SIGHUP, or "dockbell reload", makes it read its configuration again. The log goes to standard error: lines on a
    terminal, which shows long passes below them; otherwise one JSON object a line.

    \b
    Examples:
      dockbell run
      dockbell run --config /etc/dockbell.toml --verbose
    """
    from functools import partial

    import anyio

    from dockbell.app.process import run_until_signal
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    start_log(log_stream(), verbose=verbose)
    telemetry = Telemetry(log_fact, _end_without_reader)
    with showing(_read_if_shown(config_path)) as lines:
        if lines.is_shown:
            expected = anyio.run(load_expected, read_config(config_path))
            telemetry.listen(Reading(lines, expected, least=2).hear)
        anyio.run(run_until_signal, partial(_read, config_path, telemetry), telemetry)


def _read(config_path: str | None, telemetry: Telemetry) -> Config:
    """Return the configuration, and tell what others can read or write that they should not."""
    from dockbell.admin.exposure import find_exposed
    from dockbell.config import find
    from dockbell.telemetry import FileExposed

    config = read_config(config_path)
    for problem in find_exposed(config, find(config_path, os.environ)):
        telemetry.emit(FileExposed(problem))
    return config


def _read_if_shown(config_path: str | None) -> Config | None:
    """Return the configuration where it matters for what is shown: on a terminal that events may be written to."""
    return read_config(config_path) if sys.stderr.isatty() and sys.stdout.isatty() else None


def _end_without_reader(fact: Fact) -> None:
    """End well, as by SIGTERM, once nobody reads the pipe that events are written to: ``dockbell run | head``."""
    from dockbell.telemetry import SinkFails

    if isinstance(fact, SinkFails) and fact.reason.startswith("standard output") and _is_broken_pipe():
        signal.raise_signal(signal.SIGTERM)


def _is_broken_pipe() -> bool:
    poll = select.poll()
    poll.register(1, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))
