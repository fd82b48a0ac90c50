"""What ``reconcile``, ``deletes`` and ``drift`` share: the choice of feeds, the wait for an outcome, its table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dockbell.cli.printing import print_json, print_reasons, print_table
from dockbell.cli.progress import Lines, Reading, load_expected, log_stream, showing, watch_passes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dockbell.config import Config
    from dockbell.core.model import Feed
    from dockbell.ports import Wish, Wished

wait_option = click.option("--wait/--no-wait", default=True, help="Wait for the outcome; default: --wait.")


def choose_feeds(config: Config, names: Iterable[str]) -> tuple[Feed, ...]:
    """Return the configured feeds that are named; all where none is.

    Raises:
        click.UsageError: A name means none of them, or several.
    """
    from dockbell.admin.wishing import UnknownFeed, find_feeds
    from dockbell.core.model import Feed

    try:
        return find_feeds(names, [Feed(each.source, each.resource) for each in config.feeds()])
    except UnknownFeed as error:
        raise click.UsageError(str(error)) from error


def fulfil(config: Config, feeds: Sequence[Feed], wish: Wish, *, wait: bool, as_json: bool) -> bool:
    """Have a wish done for feeds, by the daemon or here, and print what came of it; return whether all is done well."""
    import anyio

    from dockbell.admin.wishing import read_result

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

    if not feeds:
        return []
    with showing() as lines:
        if not app.find_holder(config):
            return await _fulfil_here(config, feeds, wish, lines)
        return await _fulfil_there(config, feeds, wish, lines if wait else None)


async def _fulfil_there(config: Config, feeds: Sequence[Feed], wish: Wish, lines: Lines | None) -> Sequence[Wished]:
    """Leave wishes for the daemon, and wait for it where there are lines to show it by."""
    import anyio

    from dockbell import app
    from dockbell.admin.wishing import await_wishes, leave_wishes

    desk = await app.open_desk(config)
    try:
        wishes = await leave_wishes(desk, feeds, wish, app.now())
        if lines is None:
            return wishes
        waiting = list(feeds)

        def tell(wishes: Sequence[Wished]) -> None:
            left = [wished.feed for wished in wishes if wished.feed is not None]
            for feed in {*waiting} - {*left}:
                lines.end(str(feed))
            waiting[:] = left

        async with anyio.create_task_group() as group:
            if lines.is_shown:
                group.start_soon(watch_passes, config, lines, waiting)
            wishes = await await_wishes(desk, wishes, is_held=lambda: bool(app.find_holder(config)), tell=tell)
            group.cancel_scope.cancel()
        return wishes
    finally:
        await desk.aclose()


async def _fulfil_here(config: Config, feeds: Sequence[Feed], wish: Wish, lines: Lines) -> Sequence[Wished]:
    import logging

    from dockbell import app
    from dockbell.telemetry import Telemetry
    from dockbell.telemetry.log import log_fact, start_log

    start_log(log_stream())
    logging.getLogger().setLevel(logging.WARNING)
    click.echo("no daemon runs: doing it here", err=True)
    reading = Reading(lines, await load_expected(config) if lines.is_shown else None)
    return await app.run_wishes(config, Telemetry(log_fact, reading.hear), [(feed, wish) for feed in feeds])


async def _find_reasons(config: Config, feeds: Sequence[Feed]) -> Sequence[str]:
    """Return what waits for an operator in these feeds after all."""
    from dockbell import app
    from dockbell.admin.status import judge_waiting

    view = await app.open_view(config)
    try:
        states = [state for state in await view.load_feeds() if state.feed in feeds]
    finally:
        await view.aclose()
    return [f"{state.feed}: {reason}" for state in states for reason in judge_waiting(state)]
