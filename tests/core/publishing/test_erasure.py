from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing.canon import Canon
from dockbell.core.diff import apply
from dockbell.core.document import decode, encode
from dockbell.core.model import ChangeKind
from dockbell.core.publishing.erasure import Erasure, empty_event
from tests.core.publishing.test_event import EVENTS, VALIDATOR, make, write

EPOCH: Final = "0123456789abcdef"
CANARY: Final = "canary@example.com"
DROP: Final = ("/recipient/email", "/packages/*/phone", "/notes/1", "/a~1b")

UNLIKE: Final = ("test", "updated_purged")

NAMES: Final = st.sampled_from(["recipient", "email", "packages", "phone", "notes", "a/b", "id", "é"])
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
RECORDS: Final = st.dictionaries(NAMES, VALUES, max_size=5)


def erase(raw: bytes, *drop: str) -> bytes:
    return Erasure(drop or DROP, EPOCH).record(raw)


# Records -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (b'{"id":1}', b'{"id":1}'),
        (b'{"id":"a","recipient":{"email":"x","name":"N"}}', b'{"id":"a","recipient":{"name":"N"}}'),
        (b'{"recipient":{"email":"x"}}', b'{"recipient":{}}'),
        (b'{"packages":[{"phone":1,"n":1.0},7,{"n":1}]}', b'{"packages":[{"n":1.0},7,{"n":1}]}'),
        (b'{"notes":["a","b",["c"]]}', b'{"notes":["a",["c"]]}'),
        (b'{"notes":{"1":"b"},"a/b":{"deep":1}}', b'{"notes":{}}'),
        (b'{"packages":{"*":{"phone":1}}}', b'{"packages":{"*":{}}}'),
        (b'{"recipient":null,"packages":"phone"}', b'{"recipient":null,"packages":"phone"}'),
    ],
)
def test_what_is_dropped_is_gone_and_what_stays_is_the_api_s_text(raw: bytes, left: bytes) -> None:
    assert erase(raw) == left


def test_numbers_stay_to_the_digit() -> None:
    numbers = b'"n":[18446744073709551617,1.0,1,-0,1e3,0.10000000000000000000000001]'
    assert erase(b'{"recipient":{"email":1,%s},%s}' % (numbers, numbers)) == b'{"recipient":{%s},%s}' % (
        numbers,
        numbers,
    )


@pytest.mark.parametrize(
    "raw",
    [
        '{"recipient":{"email":"%s"},"recipient":{"email":"y"}}',
        '{"recipient":{"email":"y"},"recipient":{"email":"%s","email":"z"}}',
        '{"recipient":{"email":"%s"},"recipient":{}}',
        '{"recipient":{"email":"%s"},"recipient":null}',
        '{"recipient" : { "\\u0065mail":"%s" } }',
        '{"packages":[{"phone":"%s"}],"packages":[]}',
    ],
)
def test_members_that_come_twice_or_are_written_otherwise_are_gone_each_time(raw: str) -> None:
    assert CANARY.encode() not in erase((raw % CANARY).encode())


@given(RECORDS)
def test_it_leaves_what_a_comparison_without_it_looks_at(record: dict[str, Any]) -> None:
    raw = json.dumps(record).encode()
    left = erase(raw)
    assert encode(decode(left)) == encode(Canon(ignore=DROP).form(decode(raw)))
    assert erase(left) == left or "notes" in record  # where another element of an array is the second then


@given(RECORDS, st.permutations(DROP))
def test_the_order_of_pointers_and_members_makes_no_difference(record: dict[str, Any], drop: Sequence[str]) -> None:
    raw, turned = (json.dumps(dict(items)).encode() for items in (record.items(), reversed(record.items())))
    assert encode(decode(erase(raw, *drop))) == encode(decode(erase(turned)))


@pytest.mark.parametrize("raw", [b'{"recipient":', b'{"recipient":{"\\ud800":1}}', b'{"recipient":{"\xff":1}}'])
def test_of_a_record_that_cannot_be_read_nothing_is_kept(raw: bytes) -> None:
    with pytest.raises(ValueError, match="nothing of it is kept"):
        erase(raw)
    erasure = Erasure(DROP, EPOCH)
    unreadable, sound = erasure.page([raw, b'{"id":1}'])
    assert sound == b'{"id":1}'
    with pytest.raises(ValueError, match="JSON is malformed"):
        decode(unreadable)
    assert erasure.stored(raw) == b"{}"


def test_records_that_cannot_be_read_are_told_apart_by_who_knows_the_store_alone() -> None:
    pages = [Erasure(DROP, epoch).page([b"{1", b"{2", b"{1"]) for epoch in ("a", "a", "b")]
    assert pages[0] == pages[1]
    assert pages[0][0] == pages[0][2] != pages[0][1]
    assert not set(pages[0]) & set(pages[2])


# Events --------------------------------------------------------------------------------------------------------------


def record(status: str, mail: str) -> bytes:
    packages = [{"phone": mail, "n": 1}]
    return json.dumps({"id": "x", "status": status, "recipient": {"email": mail}, "packages": packages}).encode()


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (ChangeKind.CREATED, None, record("new", CANARY)),
        (ChangeKind.UPDATED, record("new", "b" + CANARY), record("old", CANARY)),
        (ChangeKind.UPDATED, record("new", "b" + CANARY), record("new", CANARY)),
        (ChangeKind.UPDATED, None, record("new", CANARY)),
        (ChangeKind.RESTORED, None, record("new", CANARY)),
    ],
)
def test_an_event_loses_what_is_dropped_and_stays_what_it_is(
    kind: ChangeKind, before: bytes | None, after: bytes | None
) -> None:
    event = write(make(kind, before, after))
    left = Erasure(DROP, EPOCH).event(event.body)
    body = json.loads(left)
    VALIDATOR.validate(body)
    assert CANARY.encode() not in left
    assert (body["id"], int(body["sequence"])) == (event.id, event.sequence)
    if "patch" in body["data"]:
        assert apply(body["data"]["before"], body["data"]["patch"]) == body["data"]["after"]
        assert body["data"]["changed"] == (["/status"] if body["data"]["after"]["status"] == "old" else [])


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_holds_nothing_of_it_is_the_same_text(name: str) -> None:
    if "before" in json.loads(EVENTS[name].body)["data"]:
        assert Erasure(DROP, EPOCH).event(EVENTS[name].body) == EVENTS[name].body


@pytest.mark.parametrize("name", [name for name, each in EVENTS.items() if each.key and name not in UNLIKE])
def test_an_emptied_event_keeps_its_place_and_says_what_it_held(name: str) -> None:
    whole, body = json.loads(EVENTS[name].body), json.loads(empty_event(EVENTS[name].body))
    VALIDATOR.validate(body)
    held = [each for each in ("before", "after", "patch", "changed") if whole["data"].get(each) is not None]
    assert body["data"].get("omitted", []) == held
    assert body["data"].get("purged", False) is bool(held)
    assert {member: value for member, value in body.items() if member != "data"} == {
        member: value for member, value in whole.items() if member != "data"
    }
    left = {member: value for member, value in whole["data"].items() if member not in held}
    assert {each: value for each, value in body["data"].items() if each not in ("omitted", "purged")} == left
    assert empty_event(json.dumps(body).encode()) == json.dumps(body).encode()
