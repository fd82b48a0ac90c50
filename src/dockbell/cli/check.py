"""``dockbell check``."""

from __future__ import annotations

import os
from functools import partial

import click

from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_table


@click.command()
@config_option
@json_option
@click.option("--show/--no-show", default=True, help="Print the configuration in effect first; default: --show.")
@click.pass_context
def check(ctx: click.Context, config_path: str | None, *, as_json: bool, show: bool) -> None:
    """Print the configuration, and what would fail.

    Looks at the store, tries the address of [web] unless the store is held, asks one page of each feed, and connects to
    each sink without delivering. Nothing is changed, and a running daemon is not disturbed. Secrets are not printed.
    Exits with 1 when something would fail; that others can read or write a file that they should not is a warning, and
    so is a pointer of drop, ignore, unordered, fields or redact that leads to nothing in the records.

    \b
    Examples:
      dockbell check
      dockbell check --no-show --config /etc/dockbell.toml
    """
    import anyio

    from dockbell import app
    from dockbell.admin import check as operation
    from dockbell.config import find, redacted, to_toml
    from dockbell.telemetry import Telemetry

    config = read_config(config_path)
    if show and not as_json:
        click.echo(to_toml(redacted(config)))
    findings = anyio.run(
        partial(
            operation.check,
            config,
            probe_store=partial(app.probe_store, config),
            open_source=partial(app.open_source, config),
            open_sink=lambda name: app.open_sink(config, name, Telemetry()),
            probe_web=None if config.web is None else partial(app.probe_web, config, config.web),
            path=find(config_path, os.environ),
        )
    )
    if as_json:
        described = [
            {"what": each.subject, "fails": each.fails, "warns": each.warns, "detail": each.detail} for each in findings
        ]
        print_json({"config": redacted(config), "findings": described} if show else {"findings": described})
    else:
        rows = [(each.subject, each.state, each.detail) for each in findings]
        print_table(("what", "state", "detail"), rows)
    if any(each.fails for each in findings):
        ctx.exit(PROBLEM)
