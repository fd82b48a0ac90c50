"""``dockbell demo`` and ``sandbox``: dockbell with everything around it, and the API alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from dockbell.cli.group import exit_if
from dockbell.errors import DockbellError
from dockbell.sandbox import SandboxOptions

_Command = TypeVar("_Command", bound=Callable[..., None])
_HINTS: Final = get_type_hints(SandboxOptions)
_SLOW_FROM: Final = 50_000


def sandbox_options(command: _Command) -> _Command:
    """Give a command an option for each field of :class:`SandboxOptions`, which it takes by the field's name."""
    for field in reversed(fields(SandboxOptions)):
        hint = _HINTS[field.name]
        multiple = get_origin(hint) is tuple
        name = field.name.removesuffix("s") if multiple else field.name
        parts = (hint, *get_args(hint))
        kind: Any = next(part for part in parts if get_origin(part) is Literal or isinstance(part, type))
        command = click.option(
            f"--{name.replace('_', '-')}",
            field.name,
            type=click.Choice(get_args(hint)) if get_origin(hint) is Literal else kind,
            multiple=multiple,
            is_flag=kind is bool,
            default=field.default,
            show_default=field.default not in (None, ""),
            help=field.metadata["help"],
        )(command)
    return command


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8480,
    show_default=True,
    help="Port to listen on; 0 for any free port.",
)
@sandbox_options
def sandbox(host: str, port: int, **chosen: Any) -> None:
    """Serve a simulated API to develop against.

    Runs until Ctrl-C or SIGTERM.

    \b
    Examples:
      dockbell sandbox --activity 2
      dockbell sandbox --records 300000 --requests-per-minute 0
      dockbell sandbox --cursors offset --stock-key composite --error-rate 0.05
    """
    import anyio

    anyio.run(_serve, SandboxOptions(**chosen), host, port)


async def _serve(options: SandboxOptions, host: str, port: int) -> None:
    import anyio

    from dockbell.sandbox import Sandbox
    from dockbell.sandbox.sandbox import bind, serve

    records = sum(options.counts().values())
    try:
        listener = bind(host, port)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise DockbellError(f"sandbox: cannot listen on {host}:{port}, {reason}; choose another --port") from error
    if records >= _SLOW_FROM:
        click.echo(f"creating {records} records ...", err=True)
    with listener, anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with serve(Sandbox(options), host, listener=listener) as url:
            click.echo(f"sandbox: {url}, {records} records, {options.activity:g} changes a second")
            click.echo(f"API key: {', '.join(options.api_keys)}")
            click.echo(f'curl -H "Authorization: Bearer {options.api_keys[0]}" "{url}/v1/shipments?limit=2"')
            await anext(aiter(signals))


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(min=0), metavar="N", help="Stop after N seconds; without it, at Ctrl-C."
)
@click.option("--activity", type=float, default=4.0, show_default=True, help="Changes per second in the API.")
@click.option("--records", type=int, default=1500, show_default=True, help="Records in the API at the start.")
@click.option("--seed", type=int, default=1, show_default=True, help="Use another seed for other records and changes.")
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the configuration and the store in DIR."
)
def demo(*, seconds: float | None, activity: float, records: int, seed: int, keep: Path | None) -> None:
    """Run a complete demo of dockbell on this machine.

    Starts an API with activity, a broker and receivers. Each line shows an event that arrived: by MQTT at a subscriber,
    or signed at a webhook receiver. The status page is at http://127.0.0.1:8470/. If that port is in use, the demo
    takes another port and prints it. The demo needs no configuration and no server, and leaves nothing behind. For
    MQTT, it uses an installed Mosquitto, or the broker of the extra "demo".

    Exits with 0 when the account at the end balances, otherwise with 1.

    \b
    Examples:
      dockbell demo
      dockbell demo --seconds 60 --activity 10
      dockbell demo --keep /tmp/look    afterwards: dockbell events --config /tmp/look/dockbell.toml
    """
    click.echo("dockbell demo: starting an API, a broker and receivers on this machine ...")
    import anyio

    from dockbell.demo.stage import DemoOptions, play

    options = DemoOptions(seconds=seconds, activity=activity, records=records, seed=seed, keep=keep)
    exit_if(not anyio.run(play, options))
