from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dockbell.sandbox.limits import UNLIMITED, Limits

requests = st.tuples(st.sampled_from("ab"), st.booleans(), st.floats(0, 30))


@given(st.lists(requests, max_size=80))
def test_no_window_of_a_key_ever_admits_more_than_its_limits(asked: list[tuple[str, bool, float]]) -> None:
    limits = Limits(5, 2)
    now = 0.0
    admitted: dict[tuple[str, int, str], int] = {}
    for key, order, pause in asked:
        now += pause
        standing = limits.admit(key, now, order=order)
        assert standing.reset == now // 60 * 60 + 60
        if standing.admitted:
            for scope in ("requests", "orders") if order else ("requests",):
                window = (key, int(now // 60), scope)
                admitted[window] = admitted.get(window, 0) + 1
    assert all(count <= (2 if scope == "orders" else 5) for (_, _, scope), count in admitted.items())


def test_a_request_is_admitted_until_the_window_is_full_and_again_in_the_next() -> None:
    limits = Limits(2, 10)
    standings = [limits.admit("key", now) for now in (60, 119.9, 119.99, 120)]
    assert [(standing.admitted, standing.remaining) for standing in standings] == [
        (True, 1),
        (True, 0),
        (False, 0),
        (True, 1),
    ]


def test_an_order_counts_in_both_windows_and_shows_the_tighter_one() -> None:
    limits = Limits(5, 2)
    assert limits.admit("key", 0, order=True).limit == 2
    assert limits.look("key", 0).remaining == 4
    for _ in range(3):
        limits.admit("key", 0)
    standing = limits.admit("key", 0, order=True)
    assert (standing.admitted, standing.limit, standing.remaining) == (True, 5, 0)


def test_a_refused_order_counts_nowhere() -> None:
    limits = Limits(5, 1)
    limits.admit("key", 0, order=True)
    assert not limits.admit("key", 0, order=True).admitted
    assert limits.look("key", 0).remaining == 4


def test_keys_are_counted_apart() -> None:
    limits = Limits(1, 1)
    assert limits.admit("one", 0).admitted
    assert limits.admit("other", 0).admitted


def test_without_a_limit_the_headers_say_a_very_large_one() -> None:
    standing = Limits(0, 0).admit("key", 0, order=True)
    assert (standing.limit, standing.remaining) == (UNLIMITED, UNLIMITED - 1)
