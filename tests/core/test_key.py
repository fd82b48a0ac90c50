from __future__ import annotations

import unicodedata
from decimal import Decimal
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dockbell.core import key, pointer
from dockbell.core.model import JSON, Key

COMPONENTS = st.lists(st.text() | st.integers() | st.sampled_from([".", "..", "a,b", "%2F", "\uffff"]), min_size=1)


@pytest.mark.parametrize(
    ("components", "text"),
    [
        (["shp_123"], "shp_123"),
        ([7], "7"),
        ([-7], "-7"),
        (["ABC-1", "wh_2"], "ABC-1,wh_2"),
        (["a,b", "c"], "a%2Cb,c"),
        (["% / + # $ ,"], "%25%20%2F%20%2B%20%23%20%24%20%2C"),
        (["tab\tnul\x00del\x7fc1\x85"], "tab%09nul%00del%7Fc1%C2%85"),
        (["Größe/42", "東京"], "Größe%2F42,東京"),
        (["\ufdd0\U0001ffff"], "%EF%B7%90%F0%9F%BF%BF"),
        (["A&B?=:;@~.'\"\\"], "A&B?=:;@~.'\"\\"),
        (["."], "%2E"),
        ([".."], "%2E%2E"),
        (["..", "."], "..,."),
        ([2**70], "1180591620717411303424"),
    ],
)
def test_a_key_is_written_as_the_contract_says(components: list[JSON], text: str) -> None:
    assert key.encode(components) == text


@given(COMPONENTS)
@example([""])
@example(["", ""])
def test_what_is_encoded_decodes_to_the_same_components(components: list[JSON]) -> None:
    assert key.decode(key.encode(components)) == tuple(map(str, components))


@given(COMPONENTS, COMPONENTS)
def test_two_keys_never_share_a_string(one: list[JSON], other: list[JSON]) -> None:
    assert (key.encode(one) == key.encode(other)) is ([*map(str, one)] == [*map(str, other)])


@given(COMPONENTS)
def test_a_key_string_is_one_safe_level_of_a_topic_and_one_part_of_a_path(components: list[JSON]) -> None:
    text = key.encode(components)
    assert not set("/+#$ ") & set(text)
    assert text not in (".", "..")
    assert all(unicodedata.category(character) not in ("Cc", "Cs") for character in text)
    assert all(ord(character) & 0xFFFE != 0xFFFE and not 0xFDD0 <= ord(character) <= 0xFDEF for character in text)


@given(st.text() | st.integers())
def test_a_component_reads_back_by_any_url_decoder(component: str | int) -> None:
    assert unquote(key.encode([component])) == str(component)


@given(st.text())
def test_a_text_is_a_key_string_or_refused(text: str) -> None:
    try:
        components = key.decode(text)
    except ValueError:
        return
    assert key.encode(components) == text


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a b", "write 'a%20b'"),
        ("a/b", "write 'a%2Fb'"),
        ("a%2fb", "write 'a%2Fb'"),
        ("100%", "write '100%25'"),
        ("%41", "write 'A'"),
        ("..", "write '%2E%2E'"),
        ("%FF", "is not percent-encoded UTF-8"),
        ("\udcff", "is not percent-encoded UTF-8"),
    ],
)
def test_other_spellings_of_a_key_are_refused_with_the_right_one(text: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        key.decode(text)


def find(document: JSON, *places: str) -> Key:
    return key.key_of(document, [pointer.parse(place) for place in places])


def test_a_key_keeps_its_typed_original() -> None:
    assert find({"id": "shp_1"}, "/id") == Key("shp_1", "shp_1")
    assert find({"id": 7}, "/id") == Key("7", 7)
    assert find({"item": {"sku": "A/1"}, "place": 2}, "/item/sku", "/place") == Key("A%2F1,2", ["A/1", 2])


def test_an_integer_and_its_text_are_one_key() -> None:
    assert find({"id": 7}, "/id").text == find({"id": "7"}, "/id").text


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (None, "null"),
        ("", "an empty string"),
        (True, "a boolean"),
        (Decimal("7.0"), "a fraction"),
        (7.0, "a fraction"),
        (["a"], "an array"),
        ({"a": 1}, "an object"),
    ],
)
def test_a_record_without_a_usable_key_is_refused(value: JSON, got: str) -> None:
    with pytest.raises(key.KeyMissing, match=f"^key /a~1b: must be a non-empty string or an integer, got {got}$"):
        find({"id": 1, "a/b": value}, "/id", "/a~1b")


def test_a_record_that_lacks_a_part_of_its_key_is_refused_by_its_pointer() -> None:
    with pytest.raises(key.KeyMissing, match="got nothing") as caught:
        find({"sku": "A"}, "/sku", "/warehouse/id")
    assert caught.value.pointer == "/warehouse/id"
