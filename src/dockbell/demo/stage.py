"""The demo, put together: an API that moves, a dockbell, a broker, two receivers, and who watches them."""

from __future__ import annotations

import logging
import secrets
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
from rich.text import Text

from dockbell import app
from dockbell.app.process import run
from dockbell.config import Config
from dockbell.core.publishing.signature import mint
from dockbell.demo import lines, plan
from dockbell.demo.arrival import HOOK, MQTT
from dockbell.demo.broker import Broker, start_broker
from dockbell.demo.receiver import receive
from dockbell.demo.screen import Screen
from dockbell.demo.subscriber import subscribe
from dockbell.demo.summary import is_clean, write_summary
from dockbell.demo.witness import Witness
from dockbell.errors import ConfigError
from dockbell.host.ownership import PRIVATE, find_intruder, write_draft
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.telemetry import Telemetry

LIMIT: Final = 300
"""Requests that the API allows in a minute (api-spec.md, "Limits"); the sandbox enforces them."""

_KEY: Final = "dockbell"
_VISITOR_KEY: Final = "visitor"
_TICK: Final = 0.1
_RENEW_TICKS: Final = 3
_STATUS_EVERY: Final = 10.0
_LINGER_MOST: Final = 1.2
_CALM_FOR: Final = 0.3
_TRANSIT: Final = timedelta(seconds=1)
"""A reading that ended this shortly before the end proves no loss: what it found may not have arrived yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What can be chosen.

    Attributes:
        seconds: When it ends by itself; None for never.
        activity: Changes a second.
        records: Records at the start.
        seed: The same seed makes the same records and the same activity.
        keep: A folder for configuration and store that stays; None for a temporary one.
    """

    seconds: float | None
    activity: float
    records: int
    seed: int
    keep: Path | None


async def play(options: DemoOptions) -> bool:
    """Run the demo until its time is up or a signal comes; return whether everything was as promised.

    Raises:
        ConfigError: An option cannot be used.
        DockbellError: The daemon cannot run.
    """
    sandbox_options = SandboxOptions(
        seed=options.seed, records=options.records, activity=options.activity, api_keys=(_KEY, _VISITOR_KEY)
    )
    stop = anyio.Event()
    clean = False  # who interrupts the end as well will not know
    async with anyio.create_task_group() as group:
        group.start_soon(_watch_signals, stop, group.cancel_scope)
        async with AsyncExitStack() as stack:
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="dockbell-demo-")))
            home = scratch if options.keep is None else _prepare(options.keep)
            broker = await stack.enter_async_context(start_broker(scratch))
            stage = _Stage(options, Sandbox(sandbox_options), broker, Screen(stop.set))
            clean = await stage.run(home, sandbox_options.counts(), stop)
        group.cancel_scope.cancel()
    return clean


class _Stage:
    def __init__(self, options: DemoOptions, sandbox: Sandbox, broker: Broker | str, screen: Screen) -> None:
        self._options = options
        self._sandbox = sandbox
        self._broker = broker
        self._screen = screen
        sinks = (MQTT, HOOK) if isinstance(broker, Broker) else (HOOK,)
        self._witness = Witness(sinks, sandbox.changes, plan.CONFIRM_AFTER, screen, anyio.current_time)
        self._began = anyio.current_time()
        sandbox.activity.rate = 0

    @property
    def _elapsed(self) -> float:
        return anyio.current_time() - self._began

    async def run(self, home: Path, counts: dict[str, int], stop: anyio.Event) -> bool:
        """Play, and show the summary."""
        witness, secret = self._witness, mint(secrets.token_bytes(32))
        async with AsyncExitStack() as stack:
            base_url = await stack.enter_async_context(serve(self._sandbox))
            hook_url = await stack.enter_async_context(receive(secret, witness.take, witness.refuse))
            broker_url = None
            if isinstance(self._broker, Broker):
                await stack.enter_async_context(subscribe(self._broker, witness.take))
                broker_url = self._broker.url
            path = home / "dockbell.toml"
            text = plan.write_config(
                base_url, _KEY, counts=counts, broker_url=broker_url, hook_url=hook_url, secret=secret
            )
            write_draft(path, text, PRIVATE).replace(path)  # follows no link that others may have put there
            self._introduce(base_url, hook_url, sum(counts.values()))
            stack.enter_context(_log_to(witness))
            stack.enter_context(self._screen)
            until = await self._watch(app.load_config(path), stop)
            balance = witness.balance(until)
        self._screen.show(*write_summary(witness.figures, balance, self._elapsed, LIMIT, self._options.keep))
        return is_clean(witness.figures, balance)

    async def _watch(self, config: Config, stop: anyio.Event) -> datetime:
        """Run the daemon, and end it; return until when its readings count."""
        daemon_stop = anyio.Event()
        async with anyio.create_task_group() as watching:
            watching.start_soon(self._keep_showing)
            watching.start_soon(self._start_activity)
            async with anyio.create_task_group() as running:
                running.start_soon(run, config, Telemetry(self._witness.hear), daemon_stop)
                with anyio.move_on_after(self._options.seconds):
                    await stop.wait()
                self._sandbox.activity.rate = 0
                until = datetime.now(UTC) - _TRANSIT
                await self._linger()
                daemon_stop.set()
            watching.cancel_scope.cancel()
        return until

    async def _start_activity(self) -> None:
        """Let the sandbox live as soon as dockbell has begun to read everything: what came before is no news."""
        await self._witness.has_begun.wait()
        self._sandbox.activity.rate = self._options.activity

    async def _keep_showing(self) -> None:
        status_due = _STATUS_EVERY
        while True:
            for _ in range(_RENEW_TICKS):
                await anyio.sleep(_TICK)
                self._witness.tick()
            figures, now = self._witness.figures, anyio.current_time()
            if self._screen.is_live:
                self._screen.renew(lines.header(figures, now, self._elapsed, LIMIT, self._screen.width))
            elif self._elapsed >= status_due:
                status_due += _STATUS_EVERY
                self._screen.show(*lines.status(figures, now, self._elapsed, LIMIT))

    async def _linger(self) -> None:
        """Give what is in flight the time to arrive."""
        with anyio.move_on_after(_LINGER_MOST):
            while not self._witness.is_calm(_CALM_FOR):  # noqa: ASYNC110  # nothing happens when it is calm
                await anyio.sleep(_TICK)

    def _introduce(self, base_url: str, hook_url: str, records: int) -> None:
        """Show what there is, and how to look at it from another terminal."""
        address, broker = base_url.removeprefix("http://"), self._broker
        activity = f"about {self._options.activity:g} changes a second"
        self._tell("API", f"{base_url}  {records:,} records, {activity}")
        self._tell("", f"curl -H 'Authorization: Bearer {_VISITOR_KEY}' {address}/v1/items", "dim")
        self._tell("dockbell", f"reads it within {LIMIT} requests a minute, and publishes each change")
        if isinstance(broker, Broker):
            self._tell("MQTT", f"{broker.url}  {broker.name}, and a subscriber to all events")
            self._tell("", f"mosquitto_sub -V 5 -p {broker.port} -t 'dockbell/#' -v", "dim")
        else:
            self._tell("MQTT", broker, "yellow")
        self._tell("webhook", f"{hook_url}  a receiver that verifies signatures")
        self._witness.show_heading()

    def _tell(self, name: str, text: str, style: str = "") -> None:
        self._screen.show(Text(f"  {name:<9} ", "bold").append(text, style))


def _prepare(folder: Path) -> Path:
    """Return a folder to keep, made if need be.

    Raises:
        ConfigError: It cannot be made, others could replace what is in it, or it has the store of another demo, whose
            records are not these.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        intruder = find_intruder(folder)
    except OSError as error:
        raise ConfigError(f"--keep {folder}: cannot be made, {(error.strerror or str(error)).lower()}") from error
    if intruder:
        raise ConfigError(f"--keep {folder}: not used, {intruder}")
    if (folder / "dockbell.db").exists():
        raise ConfigError(f"--keep {folder}: holds dockbell.db already; choose another folder, or remove it")
    return folder


_ONE_SIGNAL_SECONDS: Final = 1
"""Who ends a program by its process and its group, as timeout does, sends one wish in two signals."""


async def _watch_signals(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    """Stop at the first signal, at the second without waiting."""
    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        wanted.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*wanted) as signals:
        stopped_at = 0.0
        async for _ in signals:
            if not stop.is_set():
                stopped_at = anyio.current_time()
                stop.set()
            elif anyio.current_time() - stopped_at > _ONE_SIGNAL_SECONDS:
                scope.cancel()


@contextmanager
def _log_to(witness: Witness) -> Iterator[None]:
    """Show the warnings of libraries among the lines."""

    class _Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            witness.warn(record.name, f"{record.name}: {record.getMessage()}", record.levelno)

    root, handler = logging.getLogger(), _Lines(logging.WARNING)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
