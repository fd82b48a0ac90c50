"""Lets an agent work on a feed: what goes wrong is told and stored, and stays with that feed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import anyio

from dockbell.detection.reader import Reader
from dockbell.errors import DockbellError, StoreUnavailable, is_due_to

_RETRY_PAUSE: Final = timedelta(seconds=10)


async def run_guarded(reader: Reader, run_once: Callable[[], Awaitable[object]], *, pause: bool = True) -> None:
    """Run an agent once on a feed; what goes wrong is told and stored, and stays with this feed, after a pause.

    While the store cannot be written nothing is asked of the API; where nobody may wait, it is tried.
    """
    if pause:
        await reader.store.recovered()
    try:
        rest = await _attempt(reader, run_once)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other feeds go on, and so will this one
        reader.telemetry.emit_failure(str(reader.feed), error)
        rest = timedelta(0) if is_due_to(error, StoreUnavailable) else _RETRY_PAUSE
    if pause:
        await anyio.sleep(rest.total_seconds())


async def _attempt(reader: Reader, run_once: Callable[[], Awaitable[object]]) -> timedelta:
    """Run once and store what the operator must mend, or that it is mended; return for how long to rest."""
    agent = getattr(run_once, "__qualname__", "")
    try:
        await reader.state()
        result = await run_once()
    except DockbellError as error:
        reader.blame(error)
        if isinstance(error, StoreUnavailable):  # it concerns all feeds, and nothing can be stored of it
            raise
        return await reader.note_problem(error, agent)
    if result is not None:  # else nothing was asked, so nothing is known to be mended
        await reader.note_mended(agent)
    return timedelta(0)
