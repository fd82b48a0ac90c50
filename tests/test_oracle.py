from __future__ import annotations

from typing import Any

from tests.oracle import Account, Story


def event(revision: int = 1, **data: Any) -> dict[str, Any]:
    known = {"resource": "stock", "key": "a", "revision": revision, "before": None, "after": {"n": revision}}
    return {"id": f"evt_{revision}", "type": "t", "data": known | data}


def statement(number: int = 1, **data: Any) -> dict[str, Any]:
    return {"id": f"evt_s{number}", "type": "s", "data": {"resource": "stock", "statement": "gap"} | data}


STORY = Story({}, ())
STORY.versions["stock", "a"] = [None, {"n": 1}]


def test_statements_and_named_events_are_heard_once_each_and_belong_to_no_chain() -> None:
    account = Account()
    named = event(name="low") | {"id": "evt_n"}
    for each in (event(), named, statement(1), statement(2), statement(1), named, event()):
        account.hear(each)
    assert account.statements == [statement(1), statement(2)]
    assert account.named == [named]
    assert account.deliveries == 7
    assert account.judge(STORY) == []


def test_a_statement_that_changes_under_its_id_is_a_problem() -> None:
    account = Account()
    account.hear(event())
    account.hear(statement())
    account.hear(statement(reason="down"))
    assert account.judge(STORY) == ["s came with two contents under one id"]


def test_an_id_that_a_statement_shares_with_an_event_is_a_problem() -> None:
    account = Account()
    account.hear(event())
    account.hear(statement() | {"id": "evt_1"})
    assert account.judge(STORY) == ["two events share an id"]
