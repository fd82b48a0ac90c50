"""``dockbell once``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.group import PROBLEM
from dockbell.cli.options import config_option, json_option, read_config, verbose_option
from dockbell.cli.printing import print_json, print_table
from dockbell.cli.progress import Delivering, Reading, load_expected, log_stream, showing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dockbell.admin.tally import Tally
    from dockbell.config import Config
    from dockbell.ports import SinkState


@click.command()
@config_option
@json_option
@verbose_option
@click.pass_context
def once(ctx: click.Context, config_path: str | None, *, as_json: bool, verbose: bool) -> None:
    """Read every feed that is due, deliver, and end.

    Delivers what can be delivered now. Exits with 0 when all was read and nothing is owed, otherwise with 1. Refuses
    while a daemon holds the store. With a stdout sink the report goes to standard error.

    \b
    Examples:
      dockbell once
      */15 * * * *  dockbell once --config /etc/dockbell.toml
    """
    import logging

    import anyio

    from dockbell.admin.tally import Tally
    from dockbell.app.once import run_once
    from dockbell.core.model import Feed
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    config = read_config(config_path)
    start_log(log_stream(), verbose=verbose)
    if not verbose:
        logging.getLogger().setLevel(logging.WARNING)
    tally = Tally((Feed(each.source, each.resource) for each in config.feeds()), config.sinks)
    with showing(config) as lines:
        reading = Reading(lines, anyio.run(load_expected, config) if lines.is_shown else None)
        telemetry = Telemetry(log_fact, tally.hear, reading.hear, Delivering(lines).hear)
        settled = anyio.run(run_once, config, telemetry)
    err = any(sink.type == "stdout" for sink in config.sinks.values())
    states = anyio.run(_load_sinks, config)
    if as_json:
        print_json({"settled": settled} | _describe(tally, states), err=err)
    else:
        _print(tally, states, err=err)
    if not settled:
        ctx.exit(PROBLEM)


async def _load_sinks(config: Config) -> Mapping[str, SinkState]:
    from dockbell.app import open_read_store

    read_store = await open_read_store(config)
    try:
        return {state.name: state for state in await read_store.load_sinks()}
    finally:
        await read_store.aclose()


def _describe(tally: Tally, states: Mapping[str, SinkState]) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "feeds": [{"feed": str(feed)} | asdict(each) for feed, each in tally.feeds.items()],
        "sinks": [
            {"sink": name} | asdict(each) | {"owed": states[name].owed, "blocked": states[name].blocked}
            for name, each in tally.sinks.items()
        ],
    }


def _print(tally: Tally, states: Mapping[str, SinkState], *, err: bool) -> None:
    print_table(
        ("feed", "read", "pages", "records", "events", "problem"),
        [
            (str(feed), " + ".join(each.runs), each.pages, each.records, each.events, each.problem)
            for feed, each in tally.feeds.items()
        ],
        err=err,
    )
    if tally.sinks:
        click.echo(err=err)
        print_table(
            ("sink", "delivered", "failed", "dead", "owed", "blocked", "problem"),
            [
                (name, each.delivered, each.failed, each.dead, states[name].owed, states[name].blocked, each.problem)
                for name, each in tally.sinks.items()
            ],
            err=err,
        )
