from __future__ import annotations

from tests.bench.delays import Changes, Told, Version, Wait, count_invented, find_waits
from tests.bench.servers import Shown

PLACE = ("stock", "stk_1")


def changes() -> Changes:
    """Return two changes of one record, at 10 s and at 20 s."""
    made = Changes()
    made.versions[PLACE] += [Version("A", 10.0, 1), Version("B", 20.0, 2)]
    return made


def told(at: float, stamp: str, content: int) -> Told:
    return Told(at, "main", PLACE, stamp, content)


def find(*events: Told, shown: float | None = None, end: float = 100.0) -> list[Wait]:
    answers = [] if shown is None else [Shown(shown, "main", *PLACE, "B")]
    return list(find_waits(changes(), events, answers, ["main"], end))


def test_each_change_waits_for_its_event() -> None:
    assert [wait.delay for wait in find(told(13.0, "A", 1), told(25.0, "B", 2))] == [3.0, 5.0]


def test_a_superseded_change_waits_for_the_event_that_tells_the_next() -> None:
    waits = find(told(25.0, "B", 2), shown=24.0)
    assert [(wait.delay, wait.from_reading) for wait in waits] == [(15.0, 1.0), (5.0, 1.0)]


def test_a_change_that_was_never_shown_is_open() -> None:
    assert [(wait.delay, wait.is_told, wait.is_lost) for wait in find(told(13.0, "A", 1))] == [
        (3.0, True, False),
        (80.0, False, False),
    ]


def test_a_change_that_was_shown_and_never_told_is_lost() -> None:
    assert [wait.is_lost for wait in find(told(13.0, "A", 1), shown=30.0)] == [False, True]
    assert [wait.is_lost for wait in find(told(13.0, "A", 1), shown=30.0, end=31.0)] == [False, False]


def test_what_never_was_or_was_told_already_is_invented() -> None:
    assert count_invented(changes(), [told(13.0, "A", 1), told(25.0, "B", 2)]) == 0
    assert count_invented(changes(), [told(13.0, "A", 2), told(25.0, "C", 2)]) == 2
    assert count_invented(changes(), [told(13.0, "B", 2), told(25.0, "B", 2), told(26.0, "A", 1)]) == 2
