"""Changes whose events wait for the details of their records, over a real store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from dockbell.core.model import Urgency
from dockbell.detection.detail_fetcher import DetailFetcher
from dockbell.errors import SourceRefused, SourceUnavailable
from dockbell.stores.sqlite import SqliteStore
from dockbell.telemetry import AgentFails
from tests.fakes import Clock, FakeSource
from tests.rig import SHIPMENTS, Rig


def answer(_: str) -> None:
    """Answer every request for a detail."""


def fail(_: str) -> None:
    """Answer none."""
    raise SourceUnavailable("HTTP 503")


async def wait_for_nothing() -> None:
    """Let the answer come at once."""


@dataclass
class Shipments(FakeSource):
    """A listing whose records have lines only when they are read alone."""

    lines: dict[str, list[int]] = field(default_factory=dict)
    details: list[tuple[str, tuple[str, ...], Urgency, bool]] = field(default_factory=list)
    meanwhile: Callable[[], Awaitable[None]] = wait_for_nothing
    """What happens while an answer about one shipment, of the state before, is on its way."""
    write: Callable[[dict[str, Any]], Any] = lambda record: record
    """How the answer about one shipment looks."""

    async def read_shipment(
        self, shipment_id: str, *, expand: tuple[str, ...] = (), urgency: Urgency = Urgency.DETAIL, patient: bool = True
    ) -> bytes | None:
        self.details.append((shipment_id, expand, urgency, patient))
        self.before_alone(shipment_id)
        record = self.records.get(shipment_id)
        answer = None if record is None else record | {"lines": self.lines.get(shipment_id, [])}
        await self.meanwhile()
        return None if answer is None else json.dumps(self.write(answer)).encode()


@dataclass
class Dock:
    """A feed with details, its agents, and the clock."""

    rig: Rig
    source: Shipments

    def __post_init__(self) -> None:
        self.detail_fetcher = DetailFetcher(self.rig.tracked)

    def restart(self) -> None:
        """Begin again from what is stored, as after a crash."""
        self.rig.restart()
        self.detail_fetcher = DetailFetcher(self.rig.tracked)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Let details be asked for while the block lasts, ten seconds at the most."""
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                with self.detail_fetcher.task.working_in(group):
                    yield
                group.cancel_scope.cancel()

    def put(self, key: str, lines: list[int], **fields: Any) -> None:
        """Create or change a shipment."""
        self.rig.clock.pass_(1)
        self.source.put(key, **fields)
        self.source.lines[key] = lines

    async def poll(self) -> None:
        assert await self.rig.poll() == ""

    async def change(self, *keys: str) -> None:
        """Change or create shipments, and see it in the list."""
        for key in keys:
            self.put(key, [2], status="packed")
        await self.poll()

    async def last(self) -> Mapping[str, Any]:
        return (await self.rig.bodies())[-1]


@pytest.fixture
async def dock(tmp_path: Path) -> AsyncIterator[Dock]:
    clock = Clock()
    store = await SqliteStore.open(tmp_path / "dockbell.db", now=clock)
    source = Shipments(clock, page_size=200)
    for key in "abcde":
        source.put(key, status="open")
        source.lines[key] = [1]
    rig = Rig(store, clock, source, SHIPMENTS, {"detail": ("lines",)})
    clock.pass_(1)
    await rig.read_whole()
    dock = Dock(rig, source)
    yield dock
    await store.aclose()


async def test_the_first_pass_asks_for_no_detail(dock: Dock) -> None:
    assert not await dock.detail_fetcher.run_once()
    assert dock.source.details == []
    assert await dock.rig.events() == []


async def test_a_change_is_published_with_its_detail(dock: Dock) -> None:
    dock.put("b", [1, 2], status="packed")
    await dock.poll()
    assert await dock.rig.events() == []
    assert not await dock.detail_fetcher.run_once()
    assert dock.source.details == [("b", ("lines",), Urgency.DETAIL, False)]
    assert await dock.rig.events() == ["b updated 1"]
    data = await dock.last()
    assert (data["after"]["lines"], data["after"]["status"], data["via"]) == ([1, 2], "packed", "detail")
    assert "detail_missing" not in data


async def test_the_first_detail_of_a_record_is_no_change_by_itself(dock: Dock) -> None:
    dock.put("b", [1, 2], status="packed")
    await dock.poll()
    await dock.detail_fetcher.run_once()
    first = await dock.last()
    assert (first["changed"], first["before"]["lines"]) == (["/status"], [1, 2])
    dock.put("b", [3], status="shipped")
    await dock.poll()
    await dock.detail_fetcher.run_once()
    assert (await dock.last())["changed"] == ["/lines/0", "/lines/1", "/status"]


async def test_each_event_begins_where_the_last_of_its_record_ended(dock: Dock) -> None:
    for lines in ([1], [1, 2], [2]):
        dock.put("b", lines, status=f"with {len(lines)} and {sum(lines)}")
        await dock.poll()
        await dock.detail_fetcher.run_once()
    first, second, third = await dock.rig.bodies()
    assert (second["before"], third["before"]) == (first["after"], second["after"])
    assert set(third["changed"]) == {"/status", "/lines/0", "/lines/1"} or "/lines/0" in third["changed"]


async def test_what_only_the_detail_shows_is_seen_with_the_next_change_of_the_list(dock: Dock) -> None:
    dock.put("b", [1], status="packed")
    await dock.poll()
    await dock.detail_fetcher.run_once()
    dock.source.lines["b"] = [1, 2, 3]
    await dock.poll()
    assert not await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == ["b updated 1"]


async def test_a_shipment_that_is_not_found_is_asked_for_until_it_has_waited_too_long(dock: Dock) -> None:
    await dock.change("f")
    record = dock.source.records.pop("f")
    assert await dock.detail_fetcher.run_once()
    dock.rig.clock.pass_(299)
    assert await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == []
    dock.rig.clock.pass_(1)
    assert not await dock.detail_fetcher.run_once()
    data = await dock.last()
    assert (data["change"], data["detail_missing"], data["via"]) == ("created", True, "poll")
    assert data["after"] == record
    assert len(dock.source.details) == 2


async def test_a_shipment_that_a_replica_does_not_know_yet_is_published_with_its_detail_later(dock: Dock) -> None:
    await dock.change("f")
    record = dock.source.records.pop("f")
    assert await dock.detail_fetcher.run_once()
    dock.source.records["f"] = record
    assert not await dock.detail_fetcher.run_once()
    assert (await dock.last())["after"] == record | {"lines": [2]}


@pytest.mark.parametrize(
    "write",
    [
        lambda _: {"error": "not found"},
        lambda record: {"error": {"id": record["id"], "message": "not found"}},
        lambda record: record | {"id": "c"},
        lambda record: {"id": "c", "parent": record},
        lambda _: {},
    ],
)
async def test_what_is_not_the_record_is_not_its_detail(dock: Dock, write: Callable[[dict[str, Any]], Any]) -> None:
    await dock.change("b")
    dock.source.write = write
    assert await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == []
    dock.rig.clock.pass_(300)
    assert not await dock.detail_fetcher.run_once()
    data = await dock.last()
    assert (data["after"]["status"], data["detail_missing"]) == ("packed", True)


@pytest.mark.parametrize("name", ["data", "shipment"])
async def test_a_detail_may_stand_in_a_wrapper(dock: Dock, name: str) -> None:
    await dock.change("b")
    dock.source.write = lambda record: {"request": "req_1", name: record}
    assert not await dock.detail_fetcher.run_once()
    assert (await dock.last())["after"]["lines"] == [2]


@pytest.mark.parametrize("error", [SourceUnavailable("HTTP 503"), SourceRefused("HTTP 401")])
async def test_a_change_waits_while_its_detail_does_not_come(dock: Dock, error: Exception) -> None:
    def refuse(_: str) -> None:
        raise error

    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.source.before_alone = refuse
    assert await dock.detail_fetcher.run_once()
    dock.rig.clock.pass_(299)
    assert await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == []
    dock.source.before_alone = answer
    assert not await dock.detail_fetcher.run_once()
    assert (await dock.last())["after"]["lines"] == [2]


async def test_a_change_that_waits_too_long_is_published_without_its_detail(dock: Dock) -> None:
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.source.before_alone = fail
    dock.rig.clock.pass_(300)
    assert not await dock.detail_fetcher.run_once()
    data = await dock.last()
    assert (data["after"]["status"], data["detail_missing"]) == ("packed", True)
    assert await dock.rig.events() == ["b updated 1"]


@pytest.mark.parametrize("step", [-3600, 3600])
async def test_a_change_waits_as_long_whatever_our_clock_is_set_to(dock: Dock, step: float) -> None:
    await dock.change("b")
    dock.source.before_alone = fail
    assert await dock.detail_fetcher.run_once()
    dock.rig.set_clock(step)
    dock.rig.clock.pass_(299)
    assert await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == []
    dock.rig.clock.pass_(1)
    assert not await dock.detail_fetcher.run_once()
    assert (await dock.last())["detail_missing"] is True


async def test_a_change_does_not_wait_for_a_clock_that_was_set_back_before_a_restart(dock: Dock) -> None:
    await dock.change("b")
    dock.source.before_alone = fail
    dock.rig.set_clock(-3600)
    dock.restart()
    dock.rig.clock.pass_(300)
    assert not await dock.detail_fetcher.run_once()
    assert (await dock.last())["detail_missing"] is True


async def test_nothing_is_asked_for_what_has_waited_too_long_however_much_it_is(dock: Dock) -> None:
    keys = [f"n{number:03}" for number in range(450)]
    await dock.change(*keys)
    await dock.poll()
    await dock.poll()
    dock.rig.clock.pass_(300)
    assert not await dock.detail_fetcher.run_once()
    assert dock.source.details == []
    assert await dock.rig.events() == [f"{key} created 1" for key in keys]


async def test_what_has_waited_too_long_is_published_before_the_next_is_asked_for(dock: Dock) -> None:
    def take_long(_: str) -> None:
        dock.rig.clock.pass_(100)
        raise SourceUnavailable("HTTP 503")

    dock.source.before_alone = fail
    await dock.change("a")
    await dock.detail_fetcher.run_once()
    dock.rig.clock.pass_(200)
    await dock.change("b", "c")
    dock.source.before_alone = take_long
    assert await dock.detail_fetcher.run_once()
    assert [key for key, *_ in dock.source.details] == ["a", "b", "c"]
    assert await dock.rig.events() == ["a updated 1"]


async def test_an_answer_is_not_waited_for_longer_than_any_change_may_wait(dock: Dock) -> None:
    dock.source.before_alone = fail
    await dock.change("a")
    await dock.detail_fetcher.run_once()
    dock.rig.clock.pass_(200)
    await dock.change("b")
    dock.source.before_alone, dock.source.meanwhile = answer, anyio.sleep_forever
    dock.rig.clock.pass_(300 - 200 - 1 - 15 - 0.01)
    with anyio.fail_after(10):
        assert await dock.detail_fetcher.run_once()
    dock.source.meanwhile = wait_for_nothing
    dock.rig.clock.pass_(0.01)
    assert not await dock.detail_fetcher.run_once()
    assert [(data["key"], data.get("detail_missing")) for data in await dock.rig.bodies()] == [("a", True), ("b", None)]


async def test_what_failed_before_lets_others_go_first(dock: Dock) -> None:
    dock.source.before_alone = fail
    await dock.change("a", "b")
    await dock.detail_fetcher.run_once()
    await dock.change("c", "d")
    dock.source.before_alone = answer
    dock.restart()
    assert not await dock.detail_fetcher.run_once()
    assert [key for key, *_ in dock.source.details[2:]] == ["c", "d", "a", "b"]


async def test_a_healthy_shipment_does_not_wait_behind_many_that_fail(dock: Dock) -> None:
    def fail_bad(shipment_id: str) -> None:
        if shipment_id.startswith("bad"):
            fail(shipment_id)

    dock.source.before_alone = fail_bad
    await dock.change(*(f"bad{number}" for number in range(50)))
    await dock.detail_fetcher.run_once()
    for _ in range(9):
        await dock.detail_fetcher.run_once()  # each has been tried once
    await dock.change("b")
    asked = len(dock.source.details)
    assert await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == ["b updated 1"]
    assert dock.source.details[asked][0] == "b"


async def test_the_list_is_read_while_a_detail_is_on_its_way(dock: Dock) -> None:
    async def poll() -> None:
        await dock.poll()
        polled.append(len(dock.source.details))

    polled: list[int] = []
    await dock.change("b")
    dock.source.meanwhile = poll
    assert not await dock.detail_fetcher.run_once()
    assert polled == [1]
    assert await dock.rig.events() == ["b updated 1"]


async def test_a_detail_is_asked_for_again_where_the_list_shows_something_else_meanwhile(dock: Dock) -> None:
    async def ship() -> None:
        dock.source.meanwhile = wait_for_nothing
        dock.put("b", [3], status="shipped")
        await dock.poll()

    await dock.change("b")
    dock.source.meanwhile = ship
    assert not await dock.detail_fetcher.run_once()
    assert [key for key, *_ in dock.source.details] == ["b", "b"]
    (data,) = await dock.rig.bodies()
    assert (data["after"]["status"], data["after"]["lines"], data["revision"]) == ("shipped", [3], 1)


async def test_a_detail_that_comes_too_late_for_its_change_is_of_no_use(dock: Dock) -> None:
    async def publish_without() -> None:
        dock.source.meanwhile = wait_for_nothing
        dock.rig.clock.pass_(300)
        await DetailFetcher(dock.rig.tracked).run_once()

    await dock.change("b")
    dock.source.meanwhile = publish_without
    assert not await dock.detail_fetcher.run_once()
    assert [data["detail_missing"] for data in await dock.rig.bodies()] == [True]


async def test_a_crash_keeps_what_waits(dock: Dock) -> None:
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.source.before_alone = fail
    await dock.detail_fetcher.run_once()
    dock.restart()
    dock.source.before_alone = answer
    await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == ["b updated 1"]


async def test_a_record_that_changes_again_while_it_waits_gives_one_event_of_its_last_state(dock: Dock) -> None:
    for status in ("packed", "shipped"):
        dock.put("b", [2], status=status)
        await dock.poll()
    await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == ["b updated 1"]
    assert (await dock.last())["after"]["status"] == "shipped"


async def test_a_record_that_changes_back_while_it_waits_is_told_as_it_is(dock: Dock) -> None:
    for status in ("packed", "open"):
        dock.put("b", [1], status=status)
        await dock.poll()
    await dock.detail_fetcher.run_once()
    told = [data["after"]["status"] for data in await dock.rig.bodies()]
    assert (told or ["open"])[-1] == "open"
    dock.put("b", [1], status="shipped")
    await dock.poll()
    await dock.detail_fetcher.run_once()
    data = await dock.last()
    assert (data["before"]["status"], data["after"]["status"]) == ("open", "shipped")


async def test_what_is_stored_of_a_detail_outlives_a_new_timestamp(dock: Dock) -> None:
    dock.put("b", [1, 2], status="packed")
    await dock.poll()
    await dock.detail_fetcher.run_once()
    dock.put("b", [1, 2])
    await dock.poll()
    assert not await dock.detail_fetcher.run_once()
    dock.put("b", [1, 2], status="shipped")
    await dock.poll()
    await dock.detail_fetcher.run_once()
    first, second = await dock.rig.bodies()
    assert second["before"]["lines"] == first["after"]["lines"]
    assert second["changed"] == ["/status"]


async def test_a_record_that_goes_while_it_waits_is_told_to_have_changed_and_then_to_be_gone(dock: Dock) -> None:
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.source.before_alone = fail
    await dock.detail_fetcher.run_once()
    del dock.source.records["b"]
    await dock.rig.read_whole()
    await dock.rig.read_whole(after=121)
    assert await dock.rig.events() == []
    dock.rig.clock.pass_(300)
    await dock.detail_fetcher.run_once()
    await dock.rig.read_whole(after=121)
    await dock.rig.read_whole(after=121)
    assert await dock.rig.events() == ["b updated 1", "b deleted 2"]


async def test_all_that_waits_is_completed_in_its_order_however_much(dock: Dock) -> None:
    keys = [f"n{number:03}" for number in range(120)]
    for key in keys:
        dock.put(key, [1], status="open")
    await dock.poll()
    assert not await dock.detail_fetcher.run_once()
    assert sorted(await dock.rig.events()) == [f"{key} created 1" for key in keys]


async def test_one_detail_that_does_not_come_does_not_stop_the_others(dock: Dock) -> None:
    def fail_b(shipment_id: str) -> None:
        if shipment_id == "b":
            fail(shipment_id)

    for key in "abc":
        dock.put(key, [2], status="packed")
    await dock.poll()
    dock.source.before_alone = fail_b
    assert await dock.detail_fetcher.run_once()
    assert sorted(await dock.rig.events()) == ["a updated 1", "c updated 1"]


async def test_what_fails_is_asked_for_once_a_run_among_others_that_come(dock: Dock) -> None:
    def fail_bad(shipment_id: str) -> None:
        if shipment_id.startswith("bad"):
            fail(shipment_id)

    await dock.change(*(f"{word}{number}" for number in range(40) for word in ("bad", "good")))
    dock.source.before_alone = fail_bad
    assert await dock.detail_fetcher.run_once()
    assert len(await dock.rig.events()) == 40
    assert len(dock.source.details) == 80


async def test_nothing_more_is_asked_for_while_nothing_comes(dock: Dock) -> None:
    await dock.change(*(f"n{number}" for number in range(120)))
    dock.source.before_alone = fail
    for rounds in (1, 2, 3):
        assert await dock.detail_fetcher.run_once()
        assert len({key for key, *_ in dock.source.details}) == len(dock.source.details) == 5 * rounds


async def test_a_detail_that_cannot_be_compared_has_not_come_and_does_not_stop_the_others(dock: Dock) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    for key in "abc":
        dock.put(key, [2], status="packed")
    dock.source.lines["b"] = deep
    await dock.poll()
    assert await dock.detail_fetcher.run_once()
    assert sorted(await dock.rig.events()) == ["a updated 1", "c updated 1"]
    dock.rig.clock.pass_(301)
    assert not await dock.detail_fetcher.run_once()
    assert (await dock.last())["detail_missing"]


async def test_changes_that_wait_are_told_although_details_are_not_wanted_any_more(dock: Dock) -> None:
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.rig.settings = {}
    dock.restart()
    await dock.detail_fetcher.run_once()
    await dock.rig.read_whole()
    dock.put("b", [2], status="shipped")
    await dock.poll()
    assert await dock.rig.events() == ["b updated 1", "b updated 2"]
    assert [data["after"]["status"] for data in await dock.rig.bodies()] == ["packed", "shipped"]


async def test_changes_that_wait_while_the_service_moves_are_told_when_its_records_are_known_again(dock: Dock) -> None:
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.rig.base_url = "https://new.example.com"
    dock.restart()
    assert not await dock.detail_fetcher.run_once()
    assert dock.source.details == []
    dock.rig.clock.pass_(60)
    await dock.rig.read_whole()
    assert not await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == ["b updated 1"]
    assert await dock.rig.store.feed(dock.rig.feed).load_awaited(10) == []


async def test_changes_that_wait_under_another_key_are_told_by_nobody(dock: Dock) -> None:
    dock.put("b", [2], status="packed", number=7)
    await dock.poll()
    for record in dock.source.records.values():
        record["number"] = len(record["id"]) + ord(record["id"])
    dock.rig.settings |= {"key": "/number"}
    dock.restart()
    await dock.rig.read_whole()
    assert not await dock.detail_fetcher.run_once()
    assert await dock.rig.events() == []


async def heard(dock: Dock, count: int) -> None:
    """Wait for events."""
    rings = dock.rig.store.outbox.rings
    while len(await dock.rig.events()) < count:
        rings = await dock.rig.store.outbox.wait(rings)


async def test_details_are_asked_for_as_soon_as_a_page_shows_changes(dock: Dock) -> None:
    async with dock.at_work():
        for version in range(3):
            dock.put("b", [version], status=str(version))
            await dock.poll()
            await heard(dock, version + 1)
    assert await dock.rig.events() == ["b updated 1", "b updated 2", "b updated 3"]


async def test_a_detail_fetcher_that_fails_says_so_and_goes_on(dock: Dock, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_once(_: str) -> None:
        dock.source.before_alone = answer
        raise RuntimeError("a bug")

    monkeypatch.setattr("dockbell.detection.detail_fetcher._PAUSE_SECONDS", 0.01)
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.source.before_alone = break_once
    async with dock.at_work():
        await heard(dock, 1)
    assert [fact.error.args for fact in dock.rig.ear.facts if isinstance(fact, AgentFails)] == [("a bug",)]


async def test_a_change_that_waits_is_asked_for_again_after_a_while(
    dock: Dock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_once(shipment_id: str) -> None:
        dock.source.before_alone = answer
        fail(shipment_id)

    monkeypatch.setattr("dockbell.detection.detail_fetcher._PAUSE_SECONDS", 0.01)
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.source.before_alone = fail_once
    async with dock.at_work():
        await heard(dock, 1)
    assert [key for key, *_ in dock.source.details] == ["b", "b"]


async def test_what_waits_is_told_as_soon_as_the_first_page_after_a_move_shows_what_identifies_it(dock: Dock) -> None:
    dock.put("b", [2], status="packed")
    await dock.poll()
    dock.rig.base_url = "https://new.example.com"
    dock.restart()
    dock.rig.clock.pass_(60)
    async with dock.at_work():
        await anyio.wait_all_tasks_blocked()
        await dock.rig.read_whole()
        await heard(dock, 1)
    assert await dock.rig.events() == ["b updated 1"]
