"""How far a pass has come, in the form that outlives a crash."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from dockbell.core.model import RunKind
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.request import LIMITS
from dockbell.core.reading.silence import Silence, Silences
from dockbell.detection.run import Run
from dockbell.detection.run_summary import RunSummary
from dockbell.ports import Checkpoint, Tally


class _Kept(msgspec.Struct):
    """How far a pass has come, as stored JSON; times are microseconds since 1970."""

    began_at: int | None
    asked_at: int
    pages: int
    records: int
    events: int
    collisions: int
    tally: dict[str, int]
    newest: int | None
    bad: list[str]
    level: int
    lag: float | None = None  # in seconds
    age: float = 0  # in seconds
    most: int = LIMITS[0]
    answered_at: int | None = None
    silences: list[Silence] = []


def make_checkpoint(run: Run, now: datetime) -> Checkpoint:
    """Return how far a pass has come that has read a page, and has another to read."""
    summary = run.summary
    assert run.cursor is not None
    assert summary.asked_at is not None
    kept = _Kept(
        began_at=None if summary.began_at is None else to_micros(summary.began_at),
        asked_at=to_micros(summary.asked_at),
        pages=summary.pages,
        records=summary.records,
        events=summary.events,
        collisions=summary.collisions,
        tally={name: getattr(summary.tally, name) for name in Tally.__struct_fields__},
        newest=None if summary.newest is None else to_micros(summary.newest),
        lag=None if summary.lag is None else summary.lag.total_seconds(),
        age=summary.age.total_seconds(),
        bad=summary.bad[:1],
        level=run.level,
        most=run.most,
        answered_at=None if run.silences.answered_at is None else to_micros(run.silences.answered_at),
        silences=list(run.silences.keep()),
    )
    return Checkpoint(run.cursor, msgspec.json.encode(kept), summary.rows, summary.rows, now)


def resume(checkpoint: Checkpoint) -> Run:
    """Return an interrupted pass where its last checkpoint left it.

    Raises:
        ValueError: The checkpoint is another version's.
    """
    kept = msgspec.json.decode(checkpoint.run, type=_Kept)
    if not kept.tally.keys() <= set(Tally.__struct_fields__) or not 0 <= kept.level < len(LIMITS):
        raise ValueError("checkpoint: counts what this dockbell does not know")
    answered_at = checkpoint.saved_at if kept.answered_at is None else from_micros(kept.answered_at)
    summary = RunSummary(
        RunKind.PASS,
        checkpoint.rows,
        began_at=None if kept.began_at is None else from_micros(kept.began_at),
        asked_at=from_micros(kept.asked_at),
        pages=kept.pages,
        records=kept.records,
        events=kept.events,
        collisions=kept.collisions,
        tally=Tally(**kept.tally),
        newest=None if kept.newest is None else from_micros(kept.newest),
        lag=None if kept.lag is None else timedelta(seconds=kept.lag),
        age=timedelta(seconds=kept.age),
        bad=kept.bad,
    )
    return Run(
        summary,
        level=kept.level,
        most=kept.most,
        cursor=checkpoint.cursor,
        silences=Silences(kept.silences, answered_at=answered_at),
    )
