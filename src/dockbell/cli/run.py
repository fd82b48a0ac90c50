"""``dockbell run``."""

from __future__ import annotations

import sys

import click

from dockbell.cli.options import config_option, read_config, verbose_option


@click.command()
@config_option
@verbose_option
def run(config_path: str | None, *, verbose: bool) -> None:
    """Run the daemon until Ctrl-C or SIGTERM.

    The log goes to standard error: lines on a terminal, otherwise one JSON object a line.

    \b
    Examples:
      dockbell run
      dockbell run --config /etc/dockbell.toml --verbose
    """
    import anyio

    from dockbell.app import run_until_signal
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    config = read_config(config_path)
    start_log(sys.stderr, verbose=verbose)
    anyio.run(run_until_signal, config, Telemetry(log_fact))
