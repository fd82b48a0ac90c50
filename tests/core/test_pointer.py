from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core import pointer
from dockbell.core.model import JSON

# https://www.rfc-editor.org/rfc/rfc6901#section-5
RFC_DOCUMENT = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}
TOKENS = st.lists(st.text() | st.sampled_from(["", "~", "/", "~1", "~0", "0", "-"])).map(tuple)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("", RFC_DOCUMENT),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_the_examples_of_the_rfc_resolve(place: str, value: JSON) -> None:
    assert pointer.resolve(RFC_DOCUMENT, pointer.parse(place)) == value


@pytest.mark.parametrize("text", ["id", "id/x", "/a~", "/a~2", "/~~0", "#/id", " /id"])
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pointer: must be like"):
        pointer.parse(text)


@given(TOKENS)
def test_every_sequence_of_tokens_has_one_pointer(tokens: pointer.Tokens) -> None:
    assert pointer.parse(pointer.join(tokens)) == tokens


def test_an_escaped_tilde_before_a_one_is_not_a_slash() -> None:
    assert pointer.parse("/~01") == ("~1",)


@pytest.mark.parametrize(
    "token", ["2", "-", "-1", "00", "01", "+1", "1.0", "1e0", " 1", "", "x", "\N{ARABIC-INDIC DIGIT ZERO}", "9" * 5000]
)
def test_what_is_no_index_of_an_element_leads_nowhere(token: str) -> None:
    assert pointer.resolve(["a", "b"], (token,)) is pointer.MISSING


def test_null_is_not_missing() -> None:
    assert pointer.resolve({"a": None}, ("a",)) is None


@pytest.mark.parametrize("place", ["/b", "/a/b", "/s/0", "/n/0", "/list/0/0"])
def test_a_path_through_what_is_no_container_leads_nowhere(place: str) -> None:
    document = {"a": None, "s": "text", "n": 12, "list": [1]}
    assert pointer.resolve(document, pointer.parse(place)) is pointer.MISSING


def test_an_object_may_have_a_member_named_like_an_index() -> None:
    assert pointer.resolve({"01": {"-": 1}}, pointer.parse("/01/-")) == 1
