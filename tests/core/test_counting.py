from __future__ import annotations

import pytest

from dockbell.core.counting import count_of


@pytest.mark.parametrize(("number", "words"), [(0, "0 dead letters"), (1, "1 dead letter"), (2, "2 dead letters")])
def test_one_thing_is_told_in_the_singular(number: int, words: str) -> None:
    assert count_of(number, "dead letter") == words
