"""What ``reconcile``, ``deletes`` and ``drift`` share: the choice of feeds, the wait for an outcome, its table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from dockbell.cli.printing import print_json, print_reasons, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import Wish, Wished
    from dockbell.telemetry import Fact

wait_option = click.option("--wait/--no-wait", default=True, help="Wait for the outcome; default: --wait.")


def choose_feeds(config: Config, names: Iterable[str]) -> tuple[Feed, ...]:
    """Return the configured feeds that are named; all where none is.

    Raises:
        click.UsageError: A name means none of them, or several.
    """
    from dockbell.core.model import Feed
    from dockbell.operations.wishing import UnknownFeed, find_feeds

    try:
        return find_feeds(names, [Feed(each.source, each.resource) for each in config.feeds()])
    except UnknownFeed as error:
        raise click.UsageError(str(error)) from error


def fulfil(config: Config, feeds: Sequence[Feed], wish: Wish, *, wait: bool, as_json: bool) -> bool:
    """Have a wish done for feeds, by the daemon or here, and print what came of it; return whether all is done well."""
    import anyio

    from dockbell.operations.wishing import read_result

    wishes = anyio.run(_fulfil, config, feeds, wish, wait)
    results = [read_result(wished) for wished in wishes]
    reasons = anyio.run(_find_reasons, config, feeds)
    if as_json:
        found = [
            {"feed": str(each.feed), "outcome": each.verdict, "counts": each.counts, "detail": each.detail}
            for each in results
        ]
        print_json({"wish": wish.value, "results": found, "reasons": reasons})
    else:
        names = list(dict.fromkeys(name for each in results for name in each.counts))
        print_table(
            ("feed", "outcome", *names, "detail"),
            [(each.feed, each.verdict, *(each.counts.get(name) for name in names), each.detail) for each in results],
        )
        print_reasons(reasons)
    return all(each.is_done or (each.verdict == "waiting" and not wait) for each in results)


async def _fulfil(config: Config, feeds: Sequence[Feed], wish: Wish, wait: bool) -> Sequence[Wished]:
    from dockbell import app
    from dockbell.operations.wishing import await_wishes, leave_wishes

    ticker = Ticker()
    if not feeds:
        return []
    if not app.find_holder(config):
        return await _fulfil_here(config, feeds, wish, ticker)
    desk = await app.open_desk(config)
    try:
        wishes = await leave_wishes(desk, feeds, wish, app.now())
        if wait:
            wishes = await await_wishes(
                desk, wishes, is_held=lambda: bool(app.find_holder(config)), tell=ticker.tell_waiting
            )
        return wishes
    finally:
        ticker.end()
        await desk.aclose()


async def _fulfil_here(config: Config, feeds: Sequence[Feed], wish: Wish, ticker: Ticker) -> Sequence[Wished]:
    import logging

    from dockbell import app
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    start_log(sys.stderr)
    logging.getLogger().setLevel(logging.WARNING)
    click.echo("no daemon runs: doing it here", err=True)
    try:
        return await app.run_wishes(config, Telemetry(log_fact, ticker.hear), [(feed, wish) for feed in feeds])
    finally:
        ticker.end()


async def _find_reasons(config: Config, feeds: Sequence[Feed]) -> Sequence[str]:
    """Return what waits for an operator in these feeds after all."""
    from dockbell import app
    from dockbell.operations.status import judge_waiting

    view = await app.open_view(config)
    try:
        states = [state for state in await view.load_feeds() if state.feed in feeds]
    finally:
        await view.aclose()
    return [f"{state.feed}: {reason}" for state in states for reason in judge_waiting(state)]


class Ticker:
    """One line on a terminal that says what is waited for, and for how long already."""

    def __init__(self) -> None:
        import time

        self._clock = time.monotonic
        self._began = self._clock()
        self._width = 0
        self._requests = 0

    def tell_waiting(self, wishes: Sequence[Wished]) -> None:
        """Say which feeds the daemon has not read yet."""
        self._write("waiting for " + ", ".join(str(wished.feed) for wished in wishes))

    def hear(self, fact: Fact) -> None:
        """Count the requests that are made here; a listener of :class:`dockbell.telemetry.Telemetry`."""
        from dockbell.telemetry import RequestSent

        if isinstance(fact, RequestSent):
            self._requests += 1
            self._write(f"{self._requests} requests made")

    def _write(self, words: str) -> None:
        if not sys.stderr.isatty():
            return
        line = f"{words}, {self._clock() - self._began:.0f} s"
        click.echo(f"\r{line:<{self._width}}", nl=False, err=True)
        self._width = len(line)

    def end(self) -> None:
        """Wipe the line."""
        if self._width:
            click.echo(f"\r{' ' * self._width}\r", nl=False, err=True)
