"""``dockbell sandbox``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from dockbell.errors import DockbellError
from dockbell.sandbox import SandboxOptions

_Command = TypeVar("_Command", bound=Callable[..., None])
_HINTS: Final = get_type_hints(SandboxOptions)
_SLOW_FROM: Final = 50_000


def sandbox_options(command: _Command) -> _Command:
    """Give a command an option for each field of :class:`SandboxOptions`, which it takes by the field's name."""
    for field in reversed(fields(SandboxOptions)):
        command = _make_option(field)(command)
    return command


def _make_option(field: Field[Any]) -> Callable[[_Command], _Command]:
    hint = _HINTS[field.name]
    multiple = get_origin(hint) is tuple
    name = field.name.removesuffix("s") if multiple else field.name
    kind: Any = next(part for part in (hint, *get_args(hint)) if get_origin(part) is Literal or isinstance(part, type))
    return click.option(
        f"--{name.replace('_', '-')}",
        field.name,
        type=click.Choice(get_args(hint)) if get_origin(hint) is Literal else kind,
        multiple=multiple,
        is_flag=kind is bool,
        default=field.default,
        show_default=field.default not in (None, ""),
        help=field.metadata["help"],
    )


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen on")
@click.option("--port", type=click.IntRange(0, 65_535), default=8480, show_default=True, help="0 for any free port")
@sandbox_options
def sandbox(host: str, port: int, **chosen: Any) -> None:
    """Serve the API with records that move, to develop against.

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
    from dockbell.sandbox.server import bind, serve

    records = sum(options.counts().values())
    try:
        listener = bind(host, port)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise DockbellError(f"sandbox: cannot listen on {host}:{port}, {reason}; choose another --port") from error
    if records >= _SLOW_FROM:
        click.echo(f"making {records} records ...", err=True)
    with listener, anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with serve(Sandbox(options), host, listener=listener) as url:
            click.echo(f"sandbox: {url}, {records} records, {options.activity:g} changes a second")
            click.echo(f"API key: {', '.join(options.api_keys)}")
            click.echo(f'curl -H "Authorization: Bearer {options.api_keys[0]}" "{url}/v1/shipments?limit=2"')
            await anext(aiter(signals))
