from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.config import SinkSettings
from dockbell.core import pointer
from dockbell.core.diff import apply, touched
from dockbell.core.document import decode, encode
from dockbell.core.model import JSON, ChangeKind, Event, Feed
from dockbell.core.publishing.rendering import Projection, Rendering
from dockbell.subscriber import Effect, State, parse
from tests.core.publishing.test_event import CHANGES, EVENTS, GONE, STATEMENTS, UPDATED, VALIDATOR, make, write

STATE_URL: Final = "http://127.0.0.1:8470"
CONTENT: Final = ("before", "after", "patch", "changed")


def render_by(state_url: str = "", unordered: Collection[Feed] = (), **settings: Any) -> Rendering:
    return Rendering(SinkSettings.model_validate({"type": "stdout"} | settings), state_url, unordered)


def data_of(event: Event) -> Any:
    return decode(event.body)["data"]


def content(event: Event) -> list[str]:
    """Return what is still there of an event's content."""
    data = data_of(event)
    return [name for name in CONTENT if data.get(name) is not None]


def update(before: JSON, after: JSON) -> Event:
    return write(make(ChangeKind.UPDATED, encode({"id": 7, **before}), encode({"id": 7, **after})))


# Payload -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVENTS)
def test_in_full_an_event_is_what_the_outbox_holds(name: str) -> None:
    assert render_by().is_plain
    assert render_by().event(EVENTS[name]) is EVENTS[name]


@pytest.mark.parametrize(
    ("payload", "name", "left", "omitted"),
    [
        ("patch", "created", ["after"], None),
        ("patch", "updated", ["patch", "changed"], ["before", "after"]),
        ("patch", "named", ["patch", "changed"], ["before", "after"]),
        ("patch", "updated_without_before", ["after"], None),
        ("patch", "deleted_left", [], ["before"]),
        ("patch", "restored", ["after"], None),
        ("patch", "snapshot", ["after"], None),
        ("thin", "created", [], ["after"]),
        ("thin", "updated", ["changed"], ["before", "after", "patch"]),
        ("thin", "updated_without_before", [], ["after"]),
        ("thin", "deleted_left", [], ["before"]),
        ("thin", "restored", [], ["after"]),
        ("thin", "snapshot", [], ["after"]),
    ],
)
def test_what_the_payload_leaves_out_is_absent_and_listed(
    payload: str, name: str, left: list[str], omitted: list[str] | None
) -> None:
    rendering = render_by(payload=payload)
    rendered = rendering.event(EVENTS[name])
    assert not rendering.is_plain
    assert (content(rendered), data_of(rendered).get("omitted")) == (left, omitted)
    VALIDATOR.validate(json.loads(rendered.body))


@pytest.mark.parametrize("payload", ["patch", "thin"])
@pytest.mark.parametrize("name", [*STATEMENTS, "test"])
def test_what_is_not_about_a_record_has_one_form(payload: str, name: str) -> None:
    assert render_by(payload=payload, fields=["/id"]).event(EVENTS[name]) is EVENTS[name]


def test_nothing_but_the_data_of_an_event_changes() -> None:
    event = EVENTS["updated"]
    rendered = render_by(payload="thin", redact=["/status"]).event(event)
    assert dataclasses.replace(rendered, body=event.body) == event
    one, other = decode(event.body), decode(rendered.body)
    assert [name for name in one | other if one.get(name) != other.get(name)] == ["data"]


# Fields --------------------------------------------------------------------------------------------------------------


def test_fields_and_redact_hold_for_the_record_its_patch_and_what_changed() -> None:
    before = {"a": {"x": 1, "y": 1}, "b": 1, "lines": [{"sku": "A", "note": "n"}]}
    after = {"a": {"x": 2, "y": 2}, "b": 2, "lines": [{"sku": "A", "note": "m"}, {"sku": "B", "note": "o"}]}
    data = data_of(render_by(fields=["/a", "/lines"], redact=["/a/y", "/lines/*/note"]).event(update(before, after)))
    assert data["before"] == {"a": {"x": 1}, "lines": [{"sku": "A"}]}
    assert data["after"] == {"a": {"x": 2}, "lines": [{"sku": "A"}, {"sku": "B"}]}
    assert data["patch"] == [
        {"op": "replace", "path": "/a/x", "value": 2},
        {"op": "add", "path": "/lines/1", "value": {"sku": "B"}},
    ]
    assert data["changed"] == ["/a/x", "/lines/1"]
    assert "omitted" not in data


def test_a_patch_leads_from_what_is_shown_to_what_is_shown_where_a_place_on_the_way_became_an_object() -> None:
    event = update({"a": "secret"}, {"a": {"b": 1, "c": "secret"}})
    data = data_of(render_by(fields=["/a/b"]).event(event))
    assert (data["before"], data["after"]) == ({}, {"a": {"b": 1}})
    assert data["patch"] == [{"op": "add", "path": "/a", "value": {"b": 1}}]


def test_what_changed_leaves_out_what_is_ignored_as_it_does_in_full() -> None:
    event = write(replace(UPDATED, changed=["/status"]))  # the timestamp differs too, and is in the patch
    data = data_of(render_by(redact=["/tracking_number"]).event(event))
    assert [operation["path"] for operation in data["patch"]] == ["/status", "/updated_at"]
    assert data["changed"] == ["/status"]


def test_a_change_of_which_nothing_is_shown_is_an_event_all_the_same() -> None:
    data = data_of(render_by(redact=["/a"]).event(update({"a": 1}, {"a": 2})))
    assert (data["patch"], data["changed"]) == ([], [])


def test_a_record_of_which_nothing_is_shown_is_an_empty_object() -> None:
    assert data_of(render_by(redact=["/status"], fields=["/status"]).event(EVENTS["created"]))["after"] == {}


def test_numbers_and_text_that_are_shown_are_the_api_s_own() -> None:
    raw = b'{"id":7,"price":1.50,"big":18446744073709551617,"e":1e3,"zero":-0,"s":"\\u00e9\\/","secret":1}'
    rendering = render_by(redact=["/secret"])
    body = rendering.event(write(make(ChangeKind.CREATED, None, raw))).body
    shown = raw.replace(b',"secret":1', b"")
    assert b'"after":' + shown + b"," in body
    assert rendering.state(raw) == shown


def test_state_is_shown_as_the_events_show_it_and_whatever_the_payload() -> None:
    raw = b'{ "id": 7, "a": {"b": 1.0, "c": 2} }'
    assert render_by(payload="thin").state(raw) == raw
    assert render_by(payload="thin", fields=["/a"], redact=["/a/c"]).state(raw) == b'{"a":{"b":1.0}}'


def test_the_key_is_never_redacted() -> None:
    rendered = render_by(redact=["/id"]).event(EVENTS["updated"])
    assert (decode(rendered.body)["subject"], data_of(rendered)["id"]) == ("shp_123", "shp_123")


# Size ----------------------------------------------------------------------------------------------------------------

LARGE: Final = update({"a": "x" * 5000, "b": "y" * 3000}, {"a": "x" * 5000, "b": "z" * 2000})


@pytest.mark.parametrize(
    ("size_max", "left", "omitted"),
    [
        (18_000, ["before", "after", "patch", "changed"], None),
        (16_000, ["after", "patch", "changed"], ["before"]),
        (9_000, ["patch", "changed"], ["before", "after"]),
        (2_500, [], ["before", "after", "patch", "changed"]),
    ],
)
def test_what_is_too_large_loses_before_then_after_then_all(
    size_max: int, left: list[str], omitted: list[str] | None
) -> None:
    rendered = render_by(max_event_size=size_max).event(LARGE)
    assert (content(rendered), data_of(rendered).get("omitted")) == (left, omitted)
    assert "dataref" not in decode(rendered.body)
    VALIDATOR.validate(json.loads(rendered.body))


@pytest.mark.parametrize(
    ("size_max", "left"), [(18_000, list(CONTENT)), (16_000, ["after", "patch", "changed"]), (9_000, [])]
)
def test_where_arrays_have_no_order_the_patch_alone_tells_nothing(size_max: int, left: list[str]) -> None:
    rendering = render_by(STATE_URL, unordered=[LARGE.feed], max_event_size=size_max)
    rendered = rendering.event(LARGE)
    assert content(rendered) == left
    assert ("dataref" in decode(rendered.body)) is (not left)
    assert rendering.event(rendered) == rendered
    other = render_by(STATE_URL, unordered=[Feed("main", "stock")], max_event_size=9_000)
    assert content(other.event(LARGE)) == ["patch", "changed"]


def test_a_copy_is_not_made_wrong_by_a_patch_after_an_array_changed_its_order_without_an_event() -> None:
    first = {"id": 7, "tags": ["a", "b"], "big": "x" * 5000}
    stored = first | {"tags": ["b", "a"]}  # by now, and no event told of it
    state = State()
    place = str(parse(write(make(ChangeKind.UPDATED, encode(first), encode(stored))).body).partitionkey)
    state.put(place, revision=1, sequence=1, record=first)
    event = write(make(ChangeKind.UPDATED, encode(stored), encode(first | {"tags": ["a"]}), revision=2))
    taken = state.apply(parse(render_by(STATE_URL, unordered=[event.feed], max_event_size=2000).event(event).body))
    assert (taken.effect, state.stale) == (Effect.INCOMPLETE, {place})


def test_an_event_without_content_says_where_the_record_is() -> None:
    odd = write(make(ChangeKind.CREATED, None, encode({"id": "a/b ü", "a": "x" * 5000}), revision=1))
    for event, place in ((LARGE, "7"), (odd, "a%252Fb%2520%C3%BC")):
        body = decode(render_by(STATE_URL, max_event_size=2000).event(event).body)
        assert body["dataref"] == f"{STATE_URL}/state/main/shipments/{place}"
        VALIDATOR.validate(body)


def test_there_is_nothing_to_be_read_of_a_record_that_is_gone() -> None:
    large = write(replace(GONE, before=encode({"id": "shp_123", "a": "x" * 5000})))
    body = decode(render_by(STATE_URL, max_event_size=2000).event(large).body)
    assert "dataref" not in body
    assert body["data"]["omitted"] == ["before"]


def test_the_size_is_that_of_what_the_sink_may_see() -> None:
    rendered = render_by(redact=["/a"], max_event_size=9000).event(LARGE)
    assert content(rendered) == list(CONTENT)


@pytest.mark.parametrize("name", ["held_drift", "test", "updated"])
def test_an_event_that_fits_in_no_form_is_refused(name: str) -> None:
    event = EVENTS[name]
    if name == "updated":
        event = write(make(ChangeKind.UPDATED, encode({"id": "k" * 1000}), encode({"id": "k" * 1000, "a": 1})))
    else:
        event = dataclasses.replace(event, body=event.body + b" " * 1024)
    with pytest.raises(
        ValueError, match=r"^event evt_\w+: has \d+ bytes in its smallest form, got max_event_size = 1024$"
    ):
        render_by(max_event_size=1024).event(event)


# Whatever the record and the settings --------------------------------------------------------------------------------

SECRET: Final = "s3cr3t"
NAMES = st.sampled_from(["a", "b", "c", "0", "a/b"])
VALUES = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["x", "y" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=4)
# No indices: leaving out the second element of what has lost its second leaves out the third.
PLACES = st.lists(st.sampled_from(["a", "b", "c", "a/b", "*"]), min_size=1, max_size=3).map(pointer.join)
SETTINGS = st.fixed_dictionaries(
    {
        "payload": st.sampled_from(["full", "patch", "thin"]),
        "fields": st.lists(PLACES, max_size=3),
        "redact": st.lists(PLACES, max_size=3),
        "max_event_size": st.sampled_from([1024, 1500, 65_536]),
    }
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(ChangeKind))
    before, after = (encode({"id": 7, **draw(RECORDS)}) for _ in range(2))
    if kind is ChangeKind.DELETED:
        return write(replace(GONE, before=before))
    if kind is ChangeKind.SNAPSHOT:
        return write(replace(CHANGES["snapshot"], after=after))
    known = before if kind is ChangeKind.UPDATED and draw(st.booleans()) else None
    return write(make(kind, known, after))


@given(events(), SETTINGS, st.sampled_from(["", STATE_URL]))
def test_every_form_is_valid_fits_and_is_final(event: Event, settings: dict[str, Any], state_url: str) -> None:
    rendering = render_by(state_url, **settings)
    try:
        rendered = rendering.event(event)
    except ValueError as error:
        assert "in its smallest form" in str(error)  # noqa: PT017  # either is right; this holds for errors
        assert settings["max_event_size"] == 1024
        return
    VALIDATOR.validate(json.loads(rendered.body))
    assert rendered.id == event.id
    assert len(rendered.body) <= settings["max_event_size"]
    assert rendering.event(rendered) == rendered
    full, data = data_of(event), data_of(rendered)
    left_out = [name for name in CONTENT if full.get(name) is not None and name not in data]
    assert data.get("omitted", []) == left_out
    if "patch" in data and "before" in data:
        assert encode(apply(data["before"], data["patch"])) == encode(data["after"])
        assert set(data["changed"]) >= {place for place in touched(data["patch"]) if place in full["changed"]}


def hide(value: JSON, tokens: pointer.Tokens) -> JSON:
    """Return a value in which whatever stands at a place holds a secret."""
    if not tokens:
        return [SECRET, {SECRET: SECRET}, value]
    if isinstance(value, dict) and tokens[0] in value:
        return value | {tokens[0]: hide(value[tokens[0]], tokens[1:])}
    if isinstance(value, list) and tokens[0] == "*":
        return [hide(element, tokens[1:]) for element in value]
    return value


@given(RECORDS, RECORDS, SETTINGS, PLACES, st.booleans())
def test_no_redacted_value_is_anywhere(
    before: JSON, after: JSON, settings: dict[str, Any], place: str, one_side: bool
) -> None:
    tokens = pointer.parse(place)
    event = update(before if one_side else hide(before, tokens), hide(after, tokens))
    settings |= {"redact": [*settings["redact"], place], "max_event_size": 65_536}
    rendering = render_by(STATE_URL, **settings)
    assert SECRET.encode() not in rendering.event(event).body
    assert SECRET.encode() not in rendering.state(encode(hide(after, tokens)))


# The schema ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "name", "path", "value"),
    [
        ("patch", "updated", "/data/before", {}),
        ("patch", "updated", "/data/after", None),
        ("thin", "updated", "/data/patch", []),
        ("thin", "updated", "/data/omitted", ["before", "after"]),
        ("thin", "updated", "/data/omitted", ["before", "after", "patch", "changed"]),
        ("thin", "updated", "/data/omitted", ["before", "after", "patch", "key"]),
        ("thin", "updated", "/data/omitted", []),
        ("thin", "created", "/data/omitted", ["after", "patch"]),
        ("thin", "deleted_left", "/data/omitted", ["before", "after"]),
        ("thin", "updated_without_before", "/data/omitted", ["after", "changed"]),
        ("thin", "created", "/dataref", "http:/state"),
        ("patch", "updated", "/data/omitted", None),
        ("patch", "created", "/dataref", "http://127.0.0.1/state/main/shipments/1"),
        ("full", "snapshot", "/data/via", "push"),
        ("full", "gap", "/dataref", "http://127.0.0.1/state/main/shipments/1"),
    ],
)
def test_a_form_that_breaks_the_contract_is_refused(payload: str, name: str, path: str, value: object) -> None:
    body = decode(render_by(payload=payload).event(EVENTS[name]).body)
    VALIDATOR.validate(body)
    assert not VALIDATOR.is_valid(apply(body, [{"op": "add", "path": path, "value": value}]))


def test_a_snapshot_of_what_is_stored_has_the_revision_of_the_record() -> None:
    body = decode(EVENTS["snapshot"].body)
    stored: list[dict[str, JSON]] = [
        {"op": "add", "path": "/data/via", "value": "state"},
        {"op": "add", "path": "/data/revision", "value": 9},
    ]
    VALIDATOR.validate(apply(body, stored))
    assert not VALIDATOR.is_valid(apply(body, stored[1:]))


NOTICE: Final = {
    "specversion": "1.0",
    "id": f"evt_{7:032x}",
    "source": "dockbell://acme/dockbell/notices",
    "type": "dockbell.notice.dead_letter",
    "time": "2026-11-21T02:30:00.123Z",
    "datacontenttype": "application/json",
    "dataschema": "urn:dockbell:schema:notice:1",
    "partitionkey": "dockbell/notices/dead_letter,sink,erp",
    "sequence": "00000000000000000001",
    "data": {
        "resource": "notices",
        "statement": "dead_letter",
        "through_sequence": 0,
        "detected_at": "2026-11-21T02:30:00.123Z",
        "sink": "erp",
        "reason": "HTTP 422",
        "count": 1,
    },
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/subject", "shp_1"),
        ("/type", "dockbell.notice.made_up"),
        ("/partitionkey", "main/shipments"),
        ("/partitionkey", "dockbell/notices"),
        ("/source", "dockbell://acme/main/shipments"),
        ("/dataschema", "urn:dockbell:schema:feed:1"),
        ("/data/resource", "shipments"),
        ("/data/statement", "reconciled"),
        ("/data/resolves", "unreachable"),
        ("/data/extra", 1),
        ("/data/feed", "main/shipments"),
        ("/data/count", 0),
        ("/data/count", "1"),
    ],
)
def test_a_notice_is_an_event_of_its_own_feed(path: str, value: object) -> None:
    VALIDATOR.validate(NOTICE)
    assert not VALIDATOR.is_valid(apply(NOTICE, [{"op": "add", "path": path, "value": value}]))


RECORD = (
    b'{"id":"shp_1","price":1.50,"address":{"city":"K\\u00f6ln","geo":{"lat":1e3}},"to":null,'
    b'"lines":[{"sku":"A","lots":["x","y"]},7,{"sku":"B","lots":[]}]}'
)


def project(raw: bytes, fields: Sequence[str] = (), redact: Sequence[str] = ()) -> bytes:
    shown = Projection([pointer.parse(each) for each in fields] or None, [pointer.parse(each) for each in redact])
    cut = shown.cut(msgspec.Raw(raw))
    assert cut is not None
    return bytes(cut)


def shows(place: str, fields: Sequence[str] = (), redact: Sequence[str] = ()) -> bool:
    shown = Projection([pointer.parse(each) for each in fields] or None, [pointer.parse(each) for each in redact])
    return shown.shows(pointer.parse(place))


@pytest.mark.parametrize(
    ("fields", "redact", "left"),
    [
        (["/id"], [], b'{"id":"shp_1"}'),
        (["/price", "/id"], [], b'{"id":"shp_1","price":1.50}'),
        (["/address/geo"], [], b'{"address":{"geo":{"lat":1e3}}}'),
        (["/address/geo", "/address"], ["/address/geo/lat"], b'{"address":{"city":"K\\u00f6ln","geo":{}}}'),
        (["/lines/*/sku"], [], b'{"lines":[{"sku":"A"},{"sku":"B"}]}'),
        (["/lines/2", "/lines/*/sku"], [], b'{"lines":[{"sku":"A"},{"sku":"B","lots":[]}]}'),
        (["/lines/0"], ["/lines/*/lots/*"], b'{"lines":[{"sku":"A","lots":[]}]}'),
        (["/id"], ["/id"], b"{}"),
        (["/to", "/absent", "/id/deep", "/price/0"], [], b'{"to":null}'),
        (["/to/name"], [], b"{}"),
        ([], ["/address", "/lines", "/to"], b'{"id":"shp_1","price":1.50}'),
        (
            [],
            ["/address/city", "/price", "/lines/*/lots/0", "/lines/1", "/id/0"],
            b'{"id":"shp_1","address":{"geo":{"lat":1e3}},"to":null,"lines":[{"sku":"A","lots":["y"]},{"sku":"B","lots":[]}]}',
        ),
        (["/*"], [], b"{}"),
    ],
)
def test_only_fields_are_shown_and_what_is_redacted_never(fields: list[str], redact: list[str], left: bytes) -> None:
    assert project(RECORD, fields, redact) == left


def test_what_is_shown_whole_is_the_same_text() -> None:
    raw = b'{ "a" : [ 1.50, -0, 1e3, {"b":"\\u00e9"} ], "c" : {"x":1, "x":2} , "d":1}'
    assert project(raw, ["/a", "/c"]) == b'{"a":[ 1.50, -0, 1e3, {"b":"\\u00e9"} ],"c":{"x":1, "x":2}}'


def test_a_member_that_comes_twice_or_is_written_otherwise_is_redacted_all_the_same() -> None:
    assert (
        project(b'{"a":{"b":1},"\\u0061":{"b":2,"c":3},"\\u0061\\u002f":4}', redact=["/a/b", "/a~1"])
        == b'{"a":{"c":3}}'
    )


@pytest.mark.parametrize(
    ("place", "fields", "redact", "shown"),
    [
        ("/a", [], ["/a"], False),
        ("/a/b/c", [], ["/a"], False),
        ("/a", [], ["/a/b"], True),
        ("/a/c", [], ["/a/b"], True),
        ("/b", [], ["/a"], True),
        ("/lines/2/sku", [], ["/lines/*/sku"], False),
        ("/lines/2/qty", [], ["/lines/*/sku"], True),
        ("/lines/2", [], ["/lines/*/sku"], True),
        ("/lines/2/sku", [], ["/lines/2"], False),
        ("/lines/3/sku", [], ["/lines/2"], True),
        ("/lines/x/sku", [], ["/lines/*/sku"], True),
        ("/a", ["/a"], [], True),
        ("/a/b", ["/a"], [], True),
        ("/a", ["/a/b"], [], True),
        ("/a/c", ["/a/b"], [], False),
        ("/b", ["/a"], [], False),
        ("/lines/2/sku", ["/lines/*/sku"], [], True),
        ("/lines/2/qty", ["/lines/*/sku"], [], False),
        ("/a/b", ["/a"], ["/a/b"], False),
        ("", ["/a"], [], True),
    ],
)
def test_a_place_is_shown_where_something_may_be_seen_at_it_or_below(
    place: str, fields: list[str], redact: list[str], shown: bool
) -> None:
    assert shows(place, fields, redact) is shown


TOKENS = st.sampled_from(["a", "b", "c", "0", "1", "*"])
PLACE_LISTS = st.lists(st.lists(TOKENS, min_size=1, max_size=3).map(pointer.join), max_size=4)
DOCUMENTS = st.dictionaries(
    st.sampled_from("abc0"),
    st.recursive(
        st.none() | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc0"), inner, max_size=3),
        max_leaves=8,
    ),
)


def leaves(value: JSON, at: tuple[tuple[str, bool], ...] = ()) -> list[tuple[tuple[tuple[str, bool], ...], JSON]]:
    """Return what stands where; each token with whether it is an index."""
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves(each, (*at, (name, False)))]
    if isinstance(value, list):
        return [leaf for index, each in enumerate(value) for leaf in leaves(each, (*at, (str(index), True)))]
    return [(at, value)]


def leads_to(place: str, at: tuple[tuple[str, bool], ...]) -> bool:
    """Tell whether something stands at a place or below it."""
    tokens = pointer.parse(place)
    return len(tokens) <= len(at) and all(
        token == name or (token == "*" and is_index) for token, (name, is_index) in zip(tokens, at, strict=False)
    )


@given(DOCUMENTS, PLACE_LISTS, PLACE_LISTS)
def test_each_value_is_judged_by_where_it_stands(document: JSON, fields: list[str], redact: list[str]) -> None:
    wanted = [
        value
        for at, value in leaves(document)
        if (not fields or any(leads_to(place, at) for place in fields))
        and not any(leads_to(place, at) for place in redact)
    ]
    shown = decode(project(encode(document), fields, redact))
    assert sorted(map(str, wanted)) == sorted(str(value) for _, value in leaves(shown))
