"""Runs the daemon as this process: from the configuration to the signal that ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import anyio

from dockbell.app.agents import assemble
from dockbell.app.daemon import Daemon
from dockbell.app.revisions import Revisions
from dockbell.app.scheduler import Scheduler
from dockbell.app.systemd import Supervisor
from dockbell.config import Config
from dockbell.errors import LeaseLost, StoreUnavailable, find_cause
from dockbell.host.system import raise_limit
from dockbell.ports import Bell
from dockbell.telemetry import MembershipLost, Telemetry

_PAUSE: Final = timedelta(seconds=1)
"""How long a process that has lost all waits before it begins anew, each time that the database does not answer."""


async def run(
    config: Config,
    telemetry: Telemetry,
    stop: anyio.Event,
    *,
    read_again: Callable[[], Config] | None = None,
    reloads: Bell | None = None,
) -> None:
    """Run the daemon until ``stop`` is set; see :class:`Daemon`.

    Where others have taken over what it had, since it was stopped for some seconds or could not reach the database, it
    begins anew.

    Raises:
        ConfigError, StoreError: See :func:`dockbell.app.agents.assemble`; nothing was started.
    """
    supervisor, reloads = Supervisor.from_environment(os.environ), reloads or Bell()
    revisions = Revisions(config, telemetry)
    has_lost = False
    while not (has_lost and stop.is_set()):
        life = Telemetry(telemetry.emit)
        try:
            async with assemble(config, life, shared=True, revisions=revisions) as agents, Scheduler() as scheduler:
                daemon = Daemon(
                    agents,
                    scheduler,
                    config=revisions.followed,
                    read_again=read_again,
                    revisions=revisions,
                    supervisor=supervisor,
                )
                try:
                    await daemon.run(stop, reloads)
                finally:
                    config = revisions.followed = daemon.config
                return
        except Exception as error:
            cause = find_cause(error, LeaseLost)
            if cause is None and has_lost:
                cause = find_cause(error, StoreUnavailable)
            if cause is None:
                raise
            has_lost = True
            telemetry.emit(MembershipLost(str(cause)))
            with anyio.move_on_after(_PAUSE.total_seconds()):
                await stop.wait()


async def run_until_signal(read: Callable[[], Config], telemetry: Telemetry) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second signal ends it without waiting for deliveries.

    SIGHUP has the configuration read again. The process takes as many file descriptors as it is allowed to.

    Raises:
        ConfigError, StoreError: As :func:`run`.
    """
    raise_limit()
    config = read()
    stop, reloads = anyio.Event(), Bell()
    async with anyio.create_task_group() as group:
        group.start_soon(_watch_signals, stop, reloads, group.cancel_scope)
        await run(config, telemetry, stop, read_again=read, reloads=reloads)
        group.cancel_scope.cancel()


async def _watch_signals(stop: anyio.Event, reloads: Bell, scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            if number == signal.SIGHUP:
                reloads.ring()
                continue
            if stop.is_set():
                scope.cancel()
            stop.set()
