"""``dockbell check``."""

from __future__ import annotations

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

    Looks at the store, asks one page of each feed, and connects to each sink without delivering. Nothing is changed,
    and a running daemon is not disturbed. Secrets are not printed. Exits with 1 when something would fail.

    \b
    Examples:
      dockbell check
      dockbell check --no-show --config /etc/dockbell.toml
    """
    import anyio

    from dockbell import app
    from dockbell.config import redacted, to_toml
    from dockbell.operations import check as operation
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
        )
    )
    if as_json:
        described = [{"what": each.subject, "fails": each.fails, "detail": each.detail} for each in findings]
        print_json({"config": redacted(config), "findings": described} if show else {"findings": described})
    else:
        rows = [(each.subject, "fails" if each.fails else "ok", each.detail) for each in findings]
        print_table(("what", "state", "detail"), rows)
    if any(each.fails for each in findings):
        ctx.exit(PROBLEM)
