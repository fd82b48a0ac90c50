"""A quiet source, a blind poller and a filter that swallows everything look the same from behind a sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from dockbell.admin.silence import Sifted, Silences, describe_silences, judge_feed_silence, judge_sink_silence, sift
from dockbell.admin.status import FeedStatus, Quiet, Silence, Status
from dockbell.config import SinkSettings
from dockbell.core.model import NOTICES, Feed, RunKind
from dockbell.core.publishing.filters import Filter
from dockbell.host.evaluator import SHARED
from dockbell.ports import Condition, FeedState, Found, RunRecord, SinkState
from dockbell.stores.sqlite import SqliteReadStore, SqliteStore
from tests.fakes import NOON, Clock
from tests.stores import pages

FEED, OTHER = pages.FEED, pages.OTHER
MINUTE = timedelta(minutes=1)
FULL = RunRecord(RunKind.PASS, NOON - MINUTE, None, NOON - MINUTE, pages=1, records=1, events=0)
READ = FeedStatus(FEED, MINUTE, 1, FeedState(1, FEED, full=FULL), NOON + MINUTE)
LONG_AGO = NOON - 90 * MINUTE
STATE = FeedState(1, FEED, full=FULL, passes=2, first_asked_at=LONG_AGO)
SEEN = replace(READ, state=STATE)
"""First read long ago, and read whole lately."""
ERP = SinkState("erp", 0, 0, 0, None, "")
HEARD = Sifted(10, frozenset({"erp"}), frozenset({"erp"}))
SWALLOWED = Sifted(10, frozenset({"erp"}))
LATELY = NOON - MINUTE


@pytest.mark.parametrize(
    ("status", "changed_at", "sifted", "kind", "words"),
    [
        (READ, LATELY, HEARD, "", ""),
        (READ, LONG_AGO, HEARD, "quiet", "no known change for 1h30m; it was last read 1m ago"),
        (SEEN, None, Sifted(), "quiet", "no known change since it was first read 1h30m ago; it was last read 1m ago"),
        (replace(SEEN, state=replace(STATE, first_asked_at=NOON - 59 * MINUTE)), None, Sifted(), "", ""),
        (replace(SEEN, state=replace(STATE, passes=1)), None, Sifted(), "", ""),  # the first pass took so long
        (READ, None, Sifted(), "", ""),
        (
            replace(READ, state=None),
            LATELY,
            HEARD,
            "blind",
            "it was never read completely, so its changes are unknown",
        ),
        (
            replace(READ, expected_at=NOON - MINUTE),
            None,
            HEARD,
            "blind",
            "it was last read completely 1m ago: changes since then are unknown",
        ),
        (
            replace(READ, state=FeedState(1, FEED, full=FULL, problem="HTTP 401")),
            LATELY,
            HEARD,
            "blind",
            "it was last read completely 1m ago: changes since then are unknown",
        ),
        (READ, LATELY, SWALLOWED, "filtered", "filters hold back its last 10 events from every sink"),
        (READ, LATELY, Sifted(1, frozenset({"erp"})), "filtered", "filters hold back its last event from every sink"),
        (READ, LATELY, Sifted(10), "", ""),  # no sink wants it at all: that is what was asked for
        (replace(READ, expected_at=NOON - MINUTE), LATELY, SWALLOWED, "blind", None),  # the worst goes first
    ],
)
def test_why_nothing_is_heard_of_a_feed(
    status: FeedStatus, changed_at: datetime | None, sifted: Sifted, kind: str, words: str | None
) -> None:
    silence = judge_feed_silence(status, changed_at, sifted, NOON)
    assert silence.kind == kind
    assert words in (None, silence.words)


QUIET, BLIND, LOUD = Silence(Quiet.SOURCE), Silence(Quiet.BLIND), Silence()


@pytest.mark.parametrize(
    ("one", "other", "sifted", "kind"),
    [
        (LOUD, LOUD, (HEARD, HEARD), ""),
        (LOUD, LOUD, (HEARD, SWALLOWED), ""),
        (LOUD, LOUD, (SWALLOWED, SWALLOWED), "filtered"),
        (LOUD, LOUD, (SWALLOWED, Sifted(0, frozenset({"erp"}))), "filtered"),
        (LOUD, LOUD, (Sifted(10), Sifted(10)), "filtered"),
        (QUIET, QUIET, (HEARD, HEARD), "quiet"),
        (QUIET, LOUD, (HEARD, HEARD), ""),
        (QUIET, LOUD, (HEARD, Sifted(10)), "quiet"),  # the other one is none of its feeds
        (BLIND, BLIND, (HEARD, HEARD), "blind"),
        (BLIND, LOUD, (HEARD, HEARD), ""),
        (BLIND, QUIET, (HEARD, HEARD), "quiet"),
    ],
)
def test_why_nothing_is_heard_from_a_sink(
    one: Silence, other: Silence, sifted: tuple[Sifted, Sifted], kind: str
) -> None:
    feeds = {FEED: one, OTHER: other}
    assert judge_sink_silence(ERP, feeds, dict(zip(feeds, sifted, strict=True))).kind == kind


def test_what_a_failure_explains_is_not_said_again() -> None:
    def describe(*feeds: FeedStatus, holder: str = "process 1") -> list[str]:
        silences = {"erp": Silence(Quiet.BLIND, "none of its feeds can be read at the moment")}
        return [*describe_silences(Status(NOON, holder, feeds, (ERP,), silences=silences))]

    blind = Silence(Quiet.BLIND, "it was last read completely 1m ago: changes since then are unknown")
    late = replace(READ, expected_at=NOON - MINUTE, silence=blind)
    refused = replace(late, state=FeedState(1, FEED, full=FULL, problem="HTTP 401"))
    quiet = replace(SEEN, feed=OTHER, silence=Silence(Quiet.SOURCE, "no known change for 2h"))
    assert describe(refused) == []
    assert describe(refused, quiet) == [f"{OTHER}: quiet: no known change for 2h"]
    assert describe(late, holder="") == []
    soon = replace(late, expected_at=NOON + MINUTE)
    assert describe(soon) == [
        f"{FEED}: blind: {blind.words}",
        "sink erp: blind: none of its feeds can be read at the moment",
    ]


DOWN = Found(Condition.DOWN, NOON, "connection refused")


@pytest.mark.parametrize("state", [replace(ERP, owed=1), replace(ERP, found=DOWN)], ids=["owing", "down"])
@pytest.mark.parametrize(("feed", "sifted"), [(QUIET, HEARD), (BLIND, HEARD), (LOUD, SWALLOWED), (LOUD, Sifted(1))])
def test_a_sink_that_owes_events_or_cannot_be_reached_is_not_called_silent(
    state: SinkState, feed: Silence, sifted: Sifted
) -> None:
    assert judge_sink_silence(ERP, {FEED: feed}, {FEED: sifted}) != LOUD
    assert judge_sink_silence(state, {FEED: feed}, {FEED: sifted}) == LOUD


# With a store ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=Clock())
    yield store
    await store.aclose()


@pytest.fixture
async def read_store(store: SqliteStore, tmp_path: Path) -> AsyncIterator[SqliteReadStore]:
    read_store = await SqliteReadStore.open(tmp_path / "dockbell.db")
    yield read_store
    await read_store.aclose()


async def listen(
    read_store: SqliteReadStore, silences: Silences, sinks: dict[str, SinkSettings]
) -> tuple[dict[Feed, str], dict[str, str]]:
    """Return which kind of silence there is, by feed and by sink."""
    feeds = [
        replace(SEEN, feed=each.feed, state=replace(each, full=FULL, passes=2, first_asked_at=LONG_AGO))
        for each in await read_store.load_feeds()
    ]
    standing = tuple(replace(ERP, name=name) for name in sinks)
    status = await silences.listen(Status(NOON, "process 1", tuple(feeds), standing), sinks)
    kinds = {feed.feed: str(feed.silence.kind) for feed in status.feeds}
    return kinds, {name: str(each.kind) for name, each in status.silences.items()}


def sink(**settings: object) -> SinkSettings:
    return SinkSettings.model_validate({"type": "stdout"} | settings)


async def test_the_last_events_are_judged_by_the_filters_as_they_are_now(
    store: SqliteStore, read_store: SqliteReadStore
) -> None:
    state = await store.feed(FEED).open()
    await pages.commit(store, state, *({"id": str(number), "n": number} for number in range(30)))
    silences = Silences(read_store)
    swallowing = {"erp": sink(where="after.n > 100")}
    assert await listen(read_store, silences, swallowing) == ({FEED: "filtered"}, {"erp": "filtered"})
    assert await listen(read_store, silences, {"erp": sink(where="after.n > 25")}) == ({FEED: ""}, {"erp": ""})
    await pages.commit(store, state, {"id": "31", "n": 101})
    assert await listen(read_store, silences, swallowing) == ({FEED: ""}, {"erp": ""})


async def test_an_event_that_a_condition_cannot_be_judged_of_is_heard_of_as_a_dead_letter(
    store: SqliteStore, read_store: SqliteReadStore
) -> None:
    state = await store.feed(FEED).open()
    await pages.commit(store, state, {"id": "1"})
    [event] = await read_store.read_events(FEED, 0, 1)
    sifted = await sift(FEED, [event], {"erp": Filter(sink(where="1 / 0 == 1"))}, SHARED)
    assert sifted.passing == {"erp"}


async def test_nothing_is_said_of_filters_before_there_is_an_event(
    store: SqliteStore, read_store: SqliteReadStore
) -> None:
    await store.feed(FEED).open()
    assert await listen(read_store, Silences(read_store), {"erp": sink(changes=["deleted"])}) == (
        {FEED: "quiet"},
        {"erp": "quiet"},
    )


async def test_a_sink_for_notices_is_silent_while_all_is_well(store: SqliteStore, read_store: SqliteReadStore) -> None:
    await store.feed(FEED).open()
    assert (await listen(read_store, Silences(read_store), {"pager": sink(resources=[NOTICES.resource])}))[1] == {
        "pager": ""
    }
