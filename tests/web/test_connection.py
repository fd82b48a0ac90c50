from __future__ import annotations

from collections.abc import Sequence

import pytest

from dockbell.web.client import find_network
from dockbell.web.connection import Activity, ConnectionLimiter, count_connections


class FakeClient:
    """Who is connected, from an address of their own unless one is given."""

    number = 0

    def __init__(self, address: str = "") -> None:
        FakeClient.number += 1
        self.address = address or f"10.0.{FakeClient.number // 250}.{FakeClient.number % 250}"
        self.network = find_network(self.address)
        self.is_stalled = False
        self.has_taken_all = True
        self.is_there = True

    def abort(self) -> None:
        self.is_there = False


def connect(limiter: ConnectionLimiter, *clients: FakeClient, activity: Activity = Activity.SILENT) -> Sequence[bool]:
    """Let somebody enter, one after the other; return whether each has a place."""
    had = [limiter.admit(client) for client in clients]
    for client in clients:
        limiter.note_activity(client, activity)
    return had


def test_whoever_comes_when_all_places_are_taken_takes_that_of_the_first_who_has_said_nothing() -> None:
    limiter = ConnectionLimiter(3, 1)
    first, second, third, fourth = (FakeClient() for _ in range(4))
    assert connect(limiter, first, second, third, fourth) == [True] * 4
    assert [each.is_there for each in (first, second, third, fourth)] == [False, True, True, True]
    assert (len(limiter), limiter.refusals, limiter.last_refused) == (3, 1, first.address)


def test_who_was_refused_leaves_first_then_who_is_silent_then_who_was_answered() -> None:
    limiter = ConnectionLimiter(4, 1)
    busy, answered, silent, refused = (FakeClient() for _ in range(4))
    connect(limiter, busy, activity=Activity.BUSY)
    connect(limiter, answered, activity=Activity.IDLE)
    connect(limiter, silent)
    connect(limiter, refused, activity=Activity.REFUSED)
    left = []
    for _ in range(3):
        connect(limiter, FakeClient(), activity=Activity.BUSY)
        left.append([each.is_there for each in (busy, answered, silent, refused)])
    assert left == [[True, True, True, False], [True, True, False, False], [True, False, False, False]]


def test_who_has_just_connected_is_not_replaced_by_the_next() -> None:
    limiter = ConnectionLimiter(16, 2)
    connect(limiter, *(FakeClient() for _ in range(14)), activity=Activity.BUSY)
    early = [FakeClient(), FakeClient()]
    assert connect(limiter, *early) == [True, True]
    assert connect(limiter, *(FakeClient() for _ in range(9))) == [False] * 9
    assert [each.is_there for each in early] == [True, True]


def test_where_nobody_is_idle_there_are_spare_places_which_the_newest_have() -> None:
    limiter = ConnectionLimiter(2, 2)
    connect(limiter, FakeClient(), FakeClient(), activity=Activity.BUSY)
    clients = [FakeClient() for _ in range(4)]
    assert connect(limiter, *clients) == [False] * 4
    assert [each.is_there for each in clients] == [False, False, True, True]
    assert len(limiter) == 4


def test_in_the_reserve_who_was_answered_or_does_not_read_is_replaced_first() -> None:
    limiter = ConnectionLimiter(1, 3)
    connect(limiter, FakeClient(), activity=Activity.BUSY)
    probe, not_reading, answered = (FakeClient() for _ in range(3))
    connect(limiter, probe, not_reading, activity=Activity.BUSY)
    connect(limiter, answered, activity=Activity.IDLE)
    not_reading.has_taken_all = False
    left = []
    for _ in range(2):
        connect(limiter, FakeClient())
        left.append([each.is_there for each in (probe, not_reading, answered)])
    assert left == [[True, False, True], [True, False, False]]


@pytest.mark.parametrize("crowd", [Activity.SILENT, Activity.BUSY])
def test_in_the_reserve_a_crowd_of_one_kind_does_not_drive_out_the_other(crowd: Activity) -> None:
    limiter = ConnectionLimiter(1, 6)
    connect(limiter, FakeClient(), activity=Activity.BUSY)
    probe = FakeClient()
    connect(limiter, probe, activity=Activity.BUSY if crowd is Activity.SILENT else Activity.SILENT)
    clients = [FakeClient() for _ in range(50)]
    for client in clients:
        connect(limiter, client, activity=crowd)
    assert probe.is_there
    assert sum(client.is_there for client in clients) == 5
    assert all(client.is_there for client in clients[-3:])


def test_one_address_takes_half_of_the_places_at_most() -> None:
    limiter = ConnectionLimiter(6, 2)
    many = [FakeClient("2001:db8::1"), FakeClient("2001:db8::2"), FakeClient("2001:db8::3"), FakeClient("2001:db8::4")]
    other = FakeClient()
    assert connect(limiter, other, *many) == [True] * 5
    assert [each.is_there for each in many] == [False, True, True, True]
    assert other.is_there
    for each in many:
        limiter.note_activity(each, Activity.BUSY)
    assert connect(limiter, FakeClient("2001:db8::5"), FakeClient("2001:db8:0:1::1")) == [False, True]


def test_a_proxy_that_is_trusted_takes_as_many_as_there_are() -> None:
    limiter = ConnectionLimiter(4, 1, is_proxy={"10.9.9.9"}.__contains__)
    clients = [FakeClient("10.9.9.9") for _ in range(4)]
    assert connect(limiter, *clients, activity=Activity.BUSY) == [True] * 4
    assert all(each.is_there for each in clients)


def test_nobody_is_cut_off_who_is_still_taking_an_answer_unless_that_takes_its_time() -> None:
    limiter = ConnectionLimiter(2, 1)
    quick, slow = FakeClient(), FakeClient()
    connect(limiter, quick, slow, activity=Activity.IDLE)
    quick.has_taken_all = slow.has_taken_all = False
    assert connect(limiter, FakeClient()) == [False]
    slow.is_stalled = True
    assert connect(limiter, FakeClient(), activity=Activity.BUSY) == [True]
    assert (quick.is_there, slow.is_there) == (True, False)
    quick.is_stalled = True
    limiter.drop_stalled()
    assert not quick.is_there


def test_whoever_leaves_makes_room() -> None:
    told: list[int] = []
    limiter = ConnectionLimiter(2, 1, on_refusal=lambda: told.append(1))
    for _ in range(10):
        client = FakeClient("10.1.1.1")
        assert connect(limiter, client, activity=Activity.BUSY) == [True]
        limiter.remove(client)
        limiter.remove(client)  # also where that is heard again
    assert (len(limiter), limiter.refusals, told) == (0, 0, [])


@pytest.mark.parametrize(
    ("descriptors", "limit", "keep"), [(65_536, 500, 62), (1024, 384, 48), (256, 96, 12), (64, 24, 4), (1, 1, 4)]
)
def test_more_than_half_of_the_file_descriptors_are_kept_for_what_dockbell_does(
    descriptors: int, limit: int, keep: int
) -> None:
    assert count_connections(descriptors) == (limit, keep)
