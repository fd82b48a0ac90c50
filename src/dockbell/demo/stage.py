"""The demo, put together: an API that moves, a dockbell, a broker, two receivers, and a witness of them all."""

from __future__ import annotations

import logging
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import msgspec
from rich.text import Text

from dockbell import app
from dockbell.app.process import run
from dockbell.config import Config, WebSettings
from dockbell.core.publishing.signature import mint
from dockbell.demo import lines
from dockbell.demo.arrival import HOOK, MQTT
from dockbell.demo.lines import Screen, is_clean, write_summary
from dockbell.demo.receivers import HOST, Broker, find_free_port, receive, start_broker, subscribe
from dockbell.demo.witness import Witness
from dockbell.errors import ConfigError
from dockbell.host.ownership import PRIVATE, find_intruder, write_draft
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from dockbell.telemetry import Telemetry

CONFIRM_AFTER: Final = timedelta(seconds=5)
"""Between the two passes that make a deletion, and as long as an answer may be old: the sandbox answers anew."""

LIMIT: Final = 300  # requests that the API allows in a minute (api-spec.md, "Limits"); the sandbox enforces them

QUICKER: Final = (
    "more often than by default, where changes take",
    "0.7 to 2.1 s typically, 80 s for warehouses",
)

_KEY: Final = "dockbell"
_VISITOR_KEY: Final = "visitor"
_TICK: Final = 0.1
_RENEW_TICKS: Final = 3
_STATUS_EVERY: Final = 10.0
_LINGER_MOST: Final = 1.2
_CALM_FOR: Final = 0.3
# ``timeout`` and others signal a process and its group at once: two signals this close are one.
_ONE_SIGNAL_SECONDS: Final = 1
_TRANSIT: Final = timedelta(seconds=1)
"""A reading that ended so shortly before the end proves no loss: its events may not have arrived yet."""
_PAGE: Final = 200
_POLLED_EVERY: Final = {"shipments": 1, "packages": 1, "items": 5}
_WEB_PORT: Final = WebSettings().address[1]
_WEB_PORTS: Final = range(_WEB_PORT, _WEB_PORT + 10)
"""The status page is at the first of these on which nothing listens."""

_HEAD: Final = """\
# Written by "dockbell demo": much quicker than the defaults, so that there is something to see.
name = "demo"

[store]
url = "sqlite:///dockbell.db"

[web]
listen = "{listen}"

[sources.main]
base_url = "{base_url}"
api_key = "{api_key}"
"""
_RESOURCE: Final = """
[resources.{name}]
every = "{every}s"
{polled}confirm_after = "{confirm}s"
stale_window = "{confirm}s"
"""
_POLLED: Final = """\
lookback = "10s"
reconcile = "{reconcile}s"
"""
_MQTT: Final = """
[sinks.mqtt]
type = "mqtt"
url = "{url}"
"""
_HOOK: Final = """
[sinks.hook]
type = "webhook"
url = "{url}"
secret = "{secret}"
"""


def write_config(
    base_url: str,
    api_key: str,
    *,
    listen: str,
    counts: Mapping[str, int],
    broker_url: str | None,
    hook_url: str,
    secret: str,
) -> str:
    """Return the TOML of a dockbell that reads a sandbox and publishes to the demo's receivers.

    It is as quick as the budget allows. Of 300 requests a minute it plans at most 226: polls take 132 and warehouses 4,
    whatever the number of records; passes over stock take 60 at most, those over the polled feeds, each confirmed by a
    second, 30. ``counts`` says how many records each resource has: long lists are passed over less often.
    """
    pages = {resource: ceil(count / _PAGE) + 1 for resource, count in counts.items()}  # + 1: they grow
    reconcile = max(30, 4 * sum(pages[resource] for resource in _POLLED_EVERY))
    text = _HEAD.format(listen=listen, base_url=base_url, api_key=api_key)
    for name, every in (_POLLED_EVERY | {"stock": max(5, pages["stock"]), "warehouses": 15}).items():
        polled = _POLLED.format(reconcile=reconcile) if name in _POLLED_EVERY else ""
        text += _RESOURCE.format(name=name, every=every, polled=polled, confirm=int(CONFIRM_AFTER.total_seconds()))
    if broker_url is not None:
        text += _MQTT.format(url=broker_url)
    return text + _HOOK.format(url=hook_url, secret=secret)


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float | None  # when it ends by itself; None for never
    activity: float  # changes a second
    records: int
    seed: int
    keep: Path | None  # a folder for configuration and store that stays; None for a temporary one


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
    clean = False  # a second signal cancels the end, which would know
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
        self._witness = Witness(sinks, sandbox.changes, CONFIRM_AFTER, screen, anyio.current_time)
        self._began = anyio.current_time()
        self._web_port = find_free_port(*_WEB_PORTS)
        sandbox.activity.rate = 0

    @property
    def _elapsed(self) -> float:
        return anyio.current_time() - self._began

    @property
    def _page_url(self) -> str:
        return f"http://{HOST}:{self._web_port}/"

    async def run(self, home: Path, counts: dict[str, int], stop: anyio.Event) -> bool:
        witness, secret = self._witness, mint(secrets.token_bytes(32))
        async with AsyncExitStack() as stack:
            base_url = await stack.enter_async_context(serve(self._sandbox))
            hook_url = await stack.enter_async_context(receive(secret, witness.take, witness.refuse))
            broker_url = None
            if isinstance(self._broker, Broker):
                await stack.enter_async_context(subscribe(self._broker, witness.take))
                broker_url = self._broker.url
            path = home / "dockbell.toml"
            text = write_config(
                base_url,
                _KEY,
                listen=f"{HOST}:{self._web_port}",
                counts=counts,
                broker_url=broker_url,
                hook_url=hook_url,
                secret=secret,
            )
            write_draft(path, text, PRIVATE).replace(path)  # follows no link that another user may have put there
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
                await self._witness.has_started.wait()
                self._show_page()
                with anyio.move_on_after(self._options.seconds):
                    await stop.wait()
                self._sandbox.activity.rate = 0
                until = datetime.now(UTC) - _TRANSIT
                await self._linger()
                daemon_stop.set()
            watching.cancel_scope.cancel()
        return until

    async def _start_activity(self) -> None:
        """Start the activity when dockbell has begun to read every resource: changes before that are no events."""
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
                self._screen.renew(
                    lines.header(figures, now, self._elapsed, LIMIT, self._screen.width, page_url=self._page_url)
                )
            elif self._elapsed >= status_due:
                status_due += _STATUS_EVERY
                self._screen.show(*lines.status(figures, now, self._elapsed, LIMIT))

    async def _linger(self) -> None:
        """Wait for what is in flight."""
        with anyio.move_on_after(_LINGER_MOST):
            while not self._witness.is_calm(_CALM_FOR):  # noqa: ASYNC110  # nothing happens when it is calm
                await anyio.sleep(_TICK)

    def _introduce(self, base_url: str, hook_url: str, records: int) -> None:
        """Show the addresses, and how to look at them from another terminal."""
        address, broker = base_url.removeprefix("http://"), self._broker
        self._tell("API", f"{base_url}  {records:,} records, about {self._options.activity:g} changes a second")
        self._tell("", f"curl -H 'Authorization: Bearer {_VISITOR_KEY}' {address}/v1/items", "dim")
        self._tell("dockbell", f"reads it within {LIMIT} requests a minute, and publishes each change")
        for line in QUICKER:
            self._tell("", line, "dim")
        if isinstance(broker, Broker):
            self._tell("MQTT", f"{broker.url}  {broker.name}, and a subscriber to all events")
            self._tell("", f"mosquitto_sub -V 5 -p {broker.port} -t 'dockbell/#' -v", "dim")
        else:
            self._tell("MQTT", broker, "yellow")
        self._tell("webhook", f"{hook_url}  a receiver that verifies signatures")

    def _show_page(self) -> None:
        """Show the address of the status page, which answers by now, and the heading of the events to come."""
        remark = ", for your browser" if self._web_port == _WEB_PORT else f"; port {_WEB_PORT} is in use"
        self._tell("page", f"{self._page_url}  the status page{remark}")
        self._witness.show_heading()

    def _tell(self, name: str, text: str, style: str = "") -> None:
        self._screen.show(Text(f"  {name:<9} ", "bold").append(text, style))


def _prepare(folder: Path) -> Path:
    """Return a folder to keep, after making it if need be.

    Raises:
        ConfigError: It cannot be made, others could replace what is in it, or it has the store of another demo, whose
            records are not these.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        intruder = find_intruder(folder)
    except OSError as error:
        raise ConfigError(f"--keep {folder}: cannot be created, {(error.strerror or str(error)).lower()}") from error
    if intruder:
        raise ConfigError(f"--keep {folder}: not used, {intruder}")
    if (folder / "dockbell.db").exists():
        raise ConfigError(f"--keep {folder}: already contains dockbell.db; choose another folder, or remove it")
    return folder


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
