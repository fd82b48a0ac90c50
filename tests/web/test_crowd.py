from __future__ import annotations

from collections.abc import Sequence

import pytest

from dockbell.web.address import find_network
from dockbell.web.crowd import Crowd, Standing, count_places


class Somebody:
    """Who is connected, from an address of their own unless one is given."""

    number = 0

    def __init__(self, address: str = "") -> None:
        Somebody.number += 1
        self.address = address or f"10.0.{Somebody.number // 250}.{Somebody.number % 250}"
        self.network = find_network(self.address)
        self.takes_its_time = False
        self.has_all = True
        self.is_there = True

    def hang_up(self) -> None:
        self.is_there = False


def come(crowd: Crowd, *guests: Somebody, standing: Standing = Standing.SILENT) -> Sequence[bool]:
    """Let somebody enter, one after the other; return whether each has a place."""
    had = [crowd.enter(guest) for guest in guests]
    for guest in guests:
        crowd.turn(guest, standing)
    return had


def test_whoever_comes_when_all_places_are_taken_takes_that_of_the_first_who_has_said_nothing() -> None:
    crowd = Crowd(3, 1)
    first, second, third, fourth = (Somebody() for _ in range(4))
    assert come(crowd, first, second, third, fourth) == [True] * 4
    assert [each.is_there for each in (first, second, third, fourth)] == [False, True, True, True]
    assert (len(crowd), crowd.count, crowd.last) == (3, 1, first.address)


def test_who_was_refused_leaves_first_then_who_is_silent_then_who_was_answered() -> None:
    crowd = Crowd(4, 1)
    busy, answered, silent, refused = (Somebody() for _ in range(4))
    come(crowd, busy, standing=Standing.BUSY)
    come(crowd, answered, standing=Standing.IDLE)
    come(crowd, silent)
    come(crowd, refused, standing=Standing.REFUSED)
    left = []
    for _ in range(3):
        come(crowd, Somebody(), standing=Standing.BUSY)
        left.append([each.is_there for each in (busy, answered, silent, refused)])
    assert left == [[True, True, True, False], [True, True, False, False], [True, False, False, False]]


def test_where_nobody_is_idle_there_are_spare_places_which_the_newest_have() -> None:
    crowd = Crowd(2, 2)
    come(crowd, Somebody(), Somebody(), standing=Standing.BUSY)
    guests = [Somebody() for _ in range(4)]
    assert come(crowd, *guests) == [False] * 4
    assert [each.is_there for each in guests] == [False, False, True, True]
    assert len(crowd) == 4


def test_one_address_takes_half_of_the_places_at_most() -> None:
    crowd = Crowd(6, 2)
    crowding = [Somebody("2001:db8::1"), Somebody("2001:db8::2"), Somebody("2001:db8::3"), Somebody("2001:db8::4")]
    other = Somebody()
    assert come(crowd, other, *crowding) == [True] * 5
    assert [each.is_there for each in crowding] == [False, True, True, True]
    assert other.is_there
    for each in crowding:
        crowd.turn(each, Standing.BUSY)
    assert come(crowd, Somebody("2001:db8::5"), Somebody("2001:db8:0:1::1")) == [False, True]


def test_a_proxy_that_is_trusted_takes_as_many_as_there_are() -> None:
    crowd = Crowd(4, 1, stands_for_many={"10.9.9.9"}.__contains__)
    guests = [Somebody("10.9.9.9") for _ in range(4)]
    assert come(crowd, *guests, standing=Standing.BUSY) == [True] * 4
    assert all(each.is_there for each in guests)


def test_nobody_is_cut_off_who_is_still_taking_an_answer_unless_that_takes_its_time() -> None:
    crowd = Crowd(2, 1)
    quick, slow = Somebody(), Somebody()
    come(crowd, quick, slow, standing=Standing.IDLE)
    quick.has_all = slow.has_all = False
    assert come(crowd, Somebody()) == [False]
    slow.takes_its_time = True
    assert come(crowd, Somebody(), standing=Standing.BUSY) == [True]
    assert (quick.is_there, slow.is_there) == (True, False)
    quick.takes_its_time = True
    crowd.relieve()
    assert not quick.is_there


def test_whoever_leaves_makes_room() -> None:
    told: list[int] = []
    crowd = Crowd(2, 1, note=lambda: told.append(1))
    for _ in range(10):
        guest = Somebody("10.1.1.1")
        assert come(crowd, guest, standing=Standing.BUSY) == [True]
        crowd.leave(guest)
        crowd.leave(guest)  # also where that is heard again
    assert (len(crowd), crowd.count, told) == (0, 0, [])


@pytest.mark.parametrize(
    ("descriptors", "places", "keep"), [(65_536, 500, 62), (1024, 384, 48), (256, 96, 12), (64, 24, 4), (1, 1, 4)]
)
def test_more_than_half_of_the_file_descriptors_are_kept_for_what_dockbell_does(
    descriptors: int, places: int, keep: int
) -> None:
    assert count_places(descriptors) == (places, keep)
