"""``dockbell demo``."""

from __future__ import annotations

from pathlib import Path

import click

from dockbell.cli.group import PROBLEM


@click.command()
@click.option("--seconds", type=click.FloatRange(min=0), metavar="N", help="End after N seconds; else at Ctrl-C.")
@click.option("--activity", type=float, default=4.0, show_default=True, help="Changes a second in the API.")
@click.option("--records", type=int, default=1500, show_default=True, help="Records in the API at the start.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed makes other records and changes.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep configuration and store in DIR.")
@click.pass_context
def demo(
    ctx: click.Context, *, seconds: float | None, activity: float, records: int, seed: int, keep: Path | None
) -> None:
    """Show dockbell at work, with everything it needs.

    Brings an API with activity, a broker and receivers. Each line is an event that arrived: by MQTT at a subscriber,
    signed at a webhook receiver. No configuration, no server, nothing left behind. MQTT takes an installed Mosquitto,
    or the broker of the extra "demo".

    Exits with 0 when the account at the end balances, otherwise with 1.

    \b
    Examples:
      dockbell demo
      dockbell demo --seconds 60 --activity 10
      dockbell demo --keep /tmp/look    afterwards: dockbell events --config /tmp/look/dockbell.toml
    """  # \b is click's mark for text that it must not wrap
    click.echo("dockbell demo: starting an API, a broker and receivers on this machine ...")
    import anyio

    from dockbell.demo.stage import DemoOptions, play

    options = DemoOptions(seconds=seconds, activity=activity, records=records, seed=seed, keep=keep)
    if not anyio.run(play, options):
        ctx.exit(PROBLEM)
