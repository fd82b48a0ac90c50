"""``dockbell pause``, ``dockbell resume`` and ``dockbell retry``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.asking import choose_sink, find_obstacles, load_sink, opened_command_store, write_time
from dockbell.cli.completing import complete_sinks
from dockbell.cli.options import config_option, json_option, read_config
from dockbell.cli.printing import print_json, print_lines

if TYPE_CHECKING:
    from dockbell.config import Config
    from dockbell.ports import Hurried, SinkState


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@click.option("--reason", default="by an operator", show_default=True, metavar="TEXT", help="Why; status shows it.")
@config_option
@json_option
def pause(config_path: str | None, *, sink: str, reason: str, as_json: bool) -> None:
    """Send nothing to [sinks.SINK] until it is resumed.

    What is in flight is finished; all else waits, and is owed. A daemon that runs stops within a second, and the sink
    stays paused when it is started again. A sink that was answered "410 Gone" has paused itself.

    \b
    Examples:
      dockbell pause erp --reason "moving house"
      dockbell resume erp
    """
    import anyio

    if not reason.strip():
        raise click.UsageError("--reason: must not be empty")
    config = read_config(config_path)
    choose_sink(config, sink)
    is_new, state = anyio.run(_pause, config, sink, reason)
    if as_json:
        print_json({"sink": sink, "paused": state.paused, "paused_at": state.paused_at, "changed": is_new})
    elif is_new:
        click.echo(f'sink {sink} is paused; its events wait for "dockbell resume {sink}"')
    else:
        print_lines(f"sink {sink} is paused already, since {write_time(state.paused_at)}: {state.paused}")


async def _pause(config: Config, sink: str, reason: str) -> tuple[bool, SinkState]:
    from dockbell import app

    async with opened_command_store(config) as command_store:
        is_new = await command_store.pause(sink, reason, app.now())
    return is_new, await load_sink(config, sink)


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@config_option
@json_option
def resume(config_path: str | None, *, sink: str, as_json: bool) -> None:
    """Let a paused [sinks.SINK] go on, with all that it is owed.

    A daemon that runs begins within a second, also with what waited for its next attempt.

    \b
    Example:
      dockbell resume erp
    """
    import anyio

    from dockbell import app

    config = read_config(config_path)
    choose_sink(config, sink)
    was_paused, state = anyio.run(_resume, config, sink)
    holder = app.find_holder(config)
    if as_json:
        print_json({"sink": sink, "changed": was_paused, "owed": state.owed, "daemon": holder or None})
    elif not was_paused:
        click.echo(f'sink {sink} is not paused; "dockbell retry {sink}" sends at once what waits for its next attempt')
    else:
        click.echo(f"sink {sink} goes on; {state.owed} events are owed")
        if not holder:
            click.echo('no daemon runs: they will be sent when one does, "dockbell run"')


async def _resume(config: Config, sink: str) -> tuple[bool, SinkState]:
    from dockbell import app

    async with opened_command_store(config) as command_store:
        was_paused = await command_store.resume(sink, app.now())
    return was_paused, await load_sink(config, sink)


@click.command()
@click.argument("sink", shell_complete=complete_sinks)
@config_option
@json_option
def retry(config_path: str | None, *, sink: str, as_json: bool) -> None:
    """Send to [sinks.SINK] at once what waits for its next attempt.

    For a receiver that is well again: nothing waits for the next time of its schedule any more, nor until the end of a
    pause that the receiver has asked for. Attempts go on being counted. A daemon that runs begins within a second.
    Dead letters are sent by "dockbell dead retry".

    \b
    Example:
      dockbell retry erp
    """
    import anyio

    from dockbell import app

    config = read_config(config_path)
    choose_sink(config, sink)
    hurried, state = anyio.run(_retry, config, sink)
    holder = app.find_holder(config)
    if as_json:
        told = {"sink": sink, "keys": hurried.keys, "replays": hurried.replays}
        print_json(told | {"paused": state.paused or None, "daemon": holder or None})
        return
    click.echo(f"sink {sink}: {hurried.keys} records and {hurried.replays} replays that waited are due now")
    for obstacle in find_obstacles(config, state):
        print_lines(obstacle)


async def _retry(config: Config, sink: str) -> tuple[Hurried, SinkState]:
    from dockbell import app

    async with opened_command_store(config) as command_store:
        hurried = await command_store.hurry(sink, app.now())
    return hurried, await load_sink(config, sink)
