from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.printable import escape_json, printable

VALUES = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.text(), st.sampled_from(["", "\n", "\n\t"]))
def test_nothing_that_a_terminal_obeys_is_left_and_the_rest_is_as_it_was(text: str, keep: str) -> None:
    shown = printable(text, keep=keep)
    assert all(c.isprintable() or c in keep for c in shown)
    assert len(shown) == len(text)
    assert all(one == other for one, other in zip(shown, text, strict=True) if one != "�")


@given(VALUES, st.sampled_from([None, 2]))
def test_json_means_the_same_and_has_no_controls(value: object, indent: int | None) -> None:
    text = escape_json(json.dumps(value, ensure_ascii=False, indent=indent))
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()


def test_marks_of_direction_and_controls_of_eight_bits_are_no_text() -> None:
    assert printable("a\u202eb\x9b2Jc\x1b[0m") == "a�b�2Jc�[0m"
    assert escape_json('"\U000e0001\x9b"') == '"\\udb40\\udc01\\u009b"'
