"""Lets an agent work on a feed: what goes wrong is reported and stored, and stays with that feed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import anyio

from dockbell.detection.feed import TrackedFeed
from dockbell.errors import DockbellError, LeaseLost, StoreUnavailable, is_due_to

_RETRY_PAUSE: Final = timedelta(seconds=10)


async def run_guarded(feed: TrackedFeed, run_once: Callable[[], Awaitable[object]], *, pause: bool = True) -> None:
    """Run an agent once on a feed, and rest when something went wrong; other feeds go on.

    While the store cannot be written nothing is asked of the API.

    Args:
        feed: What the agent works on.
        run_once: The agent; it returns None where it asked nothing.
        pause: Wait for the store, and rest; otherwise the agent is run at once, and nothing is waited for.
    """
    if pause:
        await feed.health.recovered()
    try:
        rest = await _attempt(feed, run_once)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other feeds go on, and so will this one
        feed.telemetry.emit_failure(str(feed.feed), error)
        rest = timedelta(0) if is_due_to(error, StoreUnavailable) else _RETRY_PAUSE
    if pause:
        await anyio.sleep(rest.total_seconds())


async def _attempt(feed: TrackedFeed, run_once: Callable[[], Awaitable[object]]) -> timedelta:
    """Run once and store what the operator must mend, or that it is mended; return for how long to rest."""
    agent = getattr(run_once, "__qualname__", "")
    try:
        await feed.state()
        result = await run_once()
    except DockbellError as error:
        feed.gaps.blame(error)
        if isinstance(error, StoreUnavailable):  # it concerns all feeds, and nothing can be stored of it
            raise
        return await _note_problem(feed, error, agent)
    if result is not None:  # else nothing was asked, so nothing is known to be mended
        await _note_mended(feed, agent)
    return timedelta(0)


async def _note_problem(feed: TrackedFeed, problem: DockbellError, agent: str) -> timedelta:
    rest, is_due = feed.problems.note(problem, agent, feed.clocks.steady())
    if is_due:
        feed.report_problem(str(problem), max(rest, getattr(problem, "retry_after", None) or rest))
        if not isinstance(problem, LeaseLost):  # then the store takes nothing of this feed from this process
            await feed.save_problem(str(problem))
    return rest


async def _note_mended(feed: TrackedFeed, agent: str) -> None:
    left = feed.problems.mend(agent)
    if left != (await feed.state()).problem:
        feed.problems.report_all_again()
        feed.report_problem(left)
        await feed.save_problem(left)
