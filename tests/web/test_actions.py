from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dockbell.core.comparing.drift import Decision
from dockbell.core.model import StatementKind
from dockbell.core.publishing.settlement import Blocked, Settlement
from dockbell.ports import CommandKind, CommandOutcome, SinkState
from dockbell.web.actions import Acted
from tests.fakes import NOON, Ear
from tests.stores import pages
from tests.web.sites import Filled, Served, serve
from tests.web.stories import bury_letters

TOKEN = "a-token-of-the-operator"


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
async def acting(tmp_path: Path, ear: Ear) -> AsyncIterator[Served]:
    """Return a site that is asked by somebody who has the token."""
    async with serve(tmp_path, telemetry=ear.telemetry, token={"value": TOKEN}) as site:
        site.client.headers["authorization"] = f"Bearer {TOKEN}"
        yield site


@pytest.fixture
async def filled(acting: Served) -> Filled:
    """Return a feed that is configured, with two events."""
    return await acting.fill("a", "b", resource="shipments")


async def act(served: Served, place: str, body: Any = None) -> httpx.Response:
    return await served.client.post(place, json={} if body is None else body)


async def read_parts(served: Served, sink: str) -> SinkState:
    (state,) = [state for state in await served.read_store.load_sinks() if state.name == sink]
    return state


def told(ear: Ear) -> list[str]:
    return [str(fact) for fact in ear.facts if isinstance(fact, Acted)]


async def test_a_sink_is_paused_and_resumed(acting: Served, filled: Filled, ear: Ear) -> None:
    await acting.store.sink("erp").enroll("beginning")
    answer = await act(acting, "/sinks/erp/pause", {"reason": "moving house"})
    assert answer.json() == {"outcome": "it is paused; its events wait"}
    assert (await read_parts(acting, "erp")).paused == "moving house"
    assert (await act(acting, "/sinks/erp/pause")).json() == {"outcome": "it was already paused"}
    assert (await act(acting, "/sinks/erp/resume")).json() == {
        "outcome": "it is resumed, and gets all events that it is owed"
    }
    assert (await read_parts(acting, "erp")).paused == ""
    assert (await act(acting, "/sinks/erp/resume")).json() == {"outcome": "it was not paused"}
    assert told(ear) == [
        "web: sink erp: paused: moving house, asked by 127.0.0.1",
        "web: sink erp: resumed, asked by 127.0.0.1",
    ]


@pytest.mark.parametrize(
    ("proxies", "who"),
    [([], "127.0.0.1"), (["10.0.0.1"], "127.0.0.1"), (["127.0.0.1", "10.0.0.1"], "203.0.113.9 through 127.0.0.1")],
)
async def test_an_act_is_told_with_who_asked_and_through_which_proxy(
    tmp_path: Path, ear: Ear, proxies: list[str], who: str
) -> None:
    async with serve(tmp_path, telemetry=ear.telemetry, token={"value": TOKEN}, trusted_proxies=proxies) as site:
        said = {"authorization": f"Bearer {TOKEN}", "x-forwarded-for": "the chief, 203.0.113.9, 10.0.0.1"}
        site.client.headers.update(said)
        assert (await act(site, "/sinks/erp/pause")).status_code == 200
    assert told(ear) == [f"web: sink erp: paused: by an operator, asked by {who}"]


async def test_dead_letters_that_are_chosen_are_sent_again(acting: Served, filled: Filled) -> None:
    await bury_letters(acting, "erp", filled.feed, (1, "a"), (2, "b"))
    body = {"letters": [{"feed": "main/shipments", "sequence": 2, "key": "b"}]}
    answer = await act(acting, "/sinks/erp/dead/retry", body)
    assert answer.json() == {"outcome": "1 dead letter will be sent again"}
    state = await read_parts(acting, "erp")
    assert (state.dead, state.replays) == (1, 1)


async def test_an_event_is_sent_again_unless_the_sink_gets_it_anyway(acting: Served, filled: Filled, ear: Ear) -> None:
    await acting.store.sink("erp").enroll("beginning")
    body = {"feed": "main/shipments", "sequence": 1}
    answer = await act(acting, "/sinks/erp/replay", body)
    assert answer.json() == {"outcome": "erp is still owed it, and gets it anyway"}
    await acting.store.sink("erp").settle(Settlement({filled.feed: 2}))
    assert told(ear) == []
    for outcome in ("it is sent again, marked as a replay", "it is already waiting to be sent again"):
        assert (await act(acting, "/sinks/erp/replay", body)).json() == {"outcome": outcome}
        assert told(ear)[-1].startswith(f"web: sink erp: event main/shipments #1: {outcome}, asked by ")
    assert (await read_parts(acting, "erp")).replays == 1
    missing = await act(acting, "/sinks/erp/replay", body | {"sequence": 9})
    assert (missing.status_code, missing.json()["detail"]) == (
        404,
        "event main/shipments #9: is not kept; feed main/shipments: its last event is 2",
    )


async def test_what_waits_is_sent_at_once(acting: Served, filled: Filled, ear: Ear) -> None:
    await acting.store.sink("erp").enroll("beginning")
    blocked = Blocked(filled.feed, "a", 1, 1, pages.later(hours=1))
    await acting.store.sink("erp").settle(Settlement(blocked={(filled.feed, "a"): blocked}))
    answer = await act(acting, "/sinks/erp/retry")
    assert answer.json() == {"outcome": "1 waiting record and 0 waiting replays are due now"}
    ((entry,),) = [(await acting.store.sink("erp").load_queue())[1]]
    assert entry.due <= NOON
    assert told(ear)[0].startswith("web: sink erp: send now: 1 waiting record and")


async def test_all_dead_letters_are_sent_again_but_those_that_cannot(acting: Served, filled: Filled) -> None:
    await bury_letters(acting, "erp", filled.feed, (1, "a"), (2, "b"), (9, "c"))
    answer = await act(acting, "/sinks/erp/dead/retry", {"all": True})
    assert answer.json() == {
        "outcome": "2 dead letters will be sent again, 1 dead letter not sent: no longer kept; discard them"
    }


async def test_dead_letters_are_discarded_also_of_a_sink_that_is_gone(acting: Served, filled: Filled) -> None:
    await bury_letters(acting, "gone", filled.feed, (1, "a"), (2, "b"))
    body = {"letters": [{"feed": "main/shipments", "sequence": 1, "key": "a"}]}
    assert (await act(acting, "/sinks/gone/dead/discard", body)).json() == {"outcome": "discarded 1 dead letter"}
    assert (await act(acting, "/sinks/gone/dead/retry", {"all": True})).status_code == 404
    answer = await act(acting, "/sinks/gone/dead/discard", {"all": True})
    assert answer.json() == {"outcome": "discarded 1 dead letter"}
    assert (await read_parts(acting, "gone")).dead == 0


async def test_records_on_hold_go_on_when_their_dead_letter_is_discarded(acting: Served, filled: Filled) -> None:
    await bury_letters(acting, "erp", filled.feed, (1, "a"))
    held = Blocked(filled.feed, "a", 1, 3, NOON, "HTTP 400", held=True)
    settlement = Settlement(blocked={(filled.feed, "a"): held}, origins={filled.feed: 0})
    await acting.store.sink("erp").settle(settlement)
    answer = await act(acting, "/sinks/erp/dead/discard", {"all": True})
    assert answer.json() == {"outcome": "discarded 1 dead letter, 1 record on hold will continue with the next event"}


async def test_which_dead_letters_must_be_said(acting: Served, filled: Filled) -> None:
    await bury_letters(acting, "erp", filled.feed, (1, "a"))
    letter: dict[str, Any] = {"feed": "main/shipments", "sequence": 1, "key": "a"}
    bodies: tuple[dict[str, Any], ...] = (
        {},
        {"letters": []},
        {"letters": [letter], "all": True},
        {"letters": [letter | {"feed": "shipments"}]},
        {"letters": [letter | {"sequence": -1}]},
        {"letters": [letter] * 201},
        {"everything": True},
    )
    for body in bodies:
        for place in ("/sinks/erp/dead/retry", "/sinks/erp/dead/discard"):
            assert (await act(acting, place, body)).status_code == 400
    assert (await read_parts(acting, "erp")).dead == 1


async def test_what_the_daemon_has_to_do_is_left_for_it(acting: Served, filled: Filled, ear: Ear) -> None:
    answer = await act(acting, "/feeds/main/shipments/reconcile")
    assert (answer.status_code, answer.json()) == (202, {"command": 1})
    (command,) = await acting.store.commands.take()
    assert (command.kind, command.feed) == (CommandKind.RECONCILE, filled.feed)

    async def outcome() -> Any:
        return (await acting.client.get("/commands/1")).json()

    assert await outcome() == {"kind": "reconcile", "feed": "main/shipments", "outcome": None}
    await acting.store.commands.finish(command, CommandOutcome("complete", {"pages": 3}))
    assert await outcome() == {"kind": "reconcile", "feed": "main/shipments", "outcome": "complete: 3 pages"}
    assert told(ear) == ["web: main/shipments: reconcile, asked by 127.0.0.1"]


@pytest.mark.parametrize(("decision", "kind"), [("approve", CommandKind.APPROVE), ("reject", CommandKind.REJECT)])
async def test_held_deletions_are_decided(acting: Served, filled: Filled, decision: str, kind: CommandKind) -> None:
    place, body = "/feeds/main/shipments/deletions", {"decision": decision}
    assert (await act(acting, place, body)).json() == {"outcome": "no deletions are held"}
    statement = pages.a_statement(StatementKind.HELD, reason="mass_deletion", count=1, since="2026-11-21T12:00:00Z")
    await pages.close_pass(acting.store, filled.state, suspected=[1], held=1, statements=[statement])
    assert (await act(acting, place, body)).status_code == 202
    assert [command.kind for command in await acting.store.commands.take()] == [kind]


@pytest.mark.parametrize(("decision", "kind"), [("absorb", CommandKind.ABSORB), ("publish", CommandKind.PUBLISH)])
async def test_held_drift_is_decided(acting: Served, filled: Filled, decision: str, kind: CommandKind) -> None:
    place, body = "/feeds/main/shipments/drift", {"decision": decision}
    assert (await act(acting, place, body)).json() == {"outcome": "no drift is held"}
    await filled.put(*(f"k{n:02}" for n in range(20)))
    await pages.commit(acting.store, filled.state, *({"id": f"k{n:02}", "n": 0, "eta": n} for n in range(20)))
    assert (await act(acting, place, body)).status_code == 202
    assert [command.kind for command in await acting.store.commands.take()] == [kind]
    await acting.store.feed(filled.state.feed).decide_drift(Decision.ABSORB)
    assert (await act(acting, place, body)).json() == {"outcome": "no drift is held"}


async def test_what_cannot_be_done_is_refused(acting: Served, ear: Ear) -> None:
    for place, body, status in (
        ("/sinks/nothing/pause", {}, 404),
        ("/sinks/nothing/dead/discard", {"all": True}, 404),
        ("/feeds/main/nothing/reconcile", {}, 404),
        ("/feeds/main/shipments/reconcile", {}, 503),  # it was never read
        ("/feeds/main/shipments/deletions", {"decision": "perhaps"}, 400),
        ("/feeds/main/shipments/deletions", {}, 400),
        ("/feeds/main/shipments/drift", {"decision": "approve"}, 400),
    ):
        answer = await act(acting, place, body)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
    assert told(ear) == []


async def test_a_command_that_was_never_made_is_not_there(acting: Served) -> None:
    for number, status in (("7", 404), ("x", 400), ("9" * 19, 400)):
        assert (await acting.client.get(f"/commands/{number}")).status_code == status


async def test_what_is_configured_anew_counts_at_once(acting: Served) -> None:
    acting.config = acting.config.model_copy(update={"sinks": {}})
    answer = await act(acting, "/sinks/erp/pause")
    assert answer.json()["detail"] == 'sink "erp": is not known; none is configured'
