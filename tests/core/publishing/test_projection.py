from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core import pointer
from dockbell.core.document import decode, encode
from dockbell.core.model import JSON
from dockbell.core.publishing.projection import Projection

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
PLACES = st.lists(st.lists(TOKENS, min_size=1, max_size=3).map(pointer.join), max_size=4)
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


@given(DOCUMENTS, PLACES, PLACES)
def test_each_value_is_judged_by_where_it_stands(document: JSON, fields: list[str], redact: list[str]) -> None:
    wanted = [
        value
        for at, value in leaves(document)
        if (not fields or any(leads_to(place, at) for place in fields))
        and not any(leads_to(place, at) for place in redact)
    ]
    shown = decode(project(encode(document), fields, redact))
    assert sorted(map(str, wanted)) == sorted(str(value) for _, value in leaves(shown))
