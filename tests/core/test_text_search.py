from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.text_search import TextSearch

RECORD = (
    b'{"id": "shp_1", "order": "SO-4711", "lines": [{"sku": "A \\"x\\"", "n": 12.50}],'
    b' "city": "M\\u00fcnchen", "ok": true}'
)


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("so-4711", True),
        ("4711", True),
        ("12.50", True),
        ("12.5", True),
        ("münchen", True),
        ("MÜNCHEN", True),
        ('a "x"', True),
        ("shp", True),
        ("", True),
        ("city", False),
        ("true", False),
        ("4712", False),
        ('": "', False),
    ],
)
def test_a_record_has_the_text_in_a_value_and_not_in_a_name(text: str, is_there: bool) -> None:
    assert TextSearch(text).matches("shp_1", RECORD) is is_there


def test_a_record_without_content_is_found_by_its_key() -> None:
    assert TextSearch("SHP").matches("shp_1", None)
    assert not TextSearch("4711").matches("shp_1", None)


scalars = st.text() | st.integers() | st.booleans() | st.none()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


def list_values(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for each in value.values():
                yield from list_values(each)
        case list():
            for each in value:
                yield from list_values(each)
        case str():
            yield value
        case int() if not isinstance(value, bool):
            yield str(value)


@given(st.dictionaries(st.text(), values, max_size=4), st.text(max_size=3), st.booleans())
def test_it_finds_what_looking_at_each_value_finds(record: dict[str, Any], text: str, is_ascii: bool) -> None:
    body = json.dumps(record, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    expected = any(text.casefold() in value.casefold() for value in list_values(record))
    assert TextSearch(text).matches("\0", body) is (expected or text in ("", "\0"))
