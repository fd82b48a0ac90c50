from __future__ import annotations

from itertools import count

import pytest

from dockbell.web.brute_force import REMEMBERED_MOST, BruteForceLimiter

marks = map(str, count())


def guess(limiter: BruteForceLimiter, peer: str, now: float, times: int) -> None:
    """Send so many wrong tokens, each another, as far as they are looked at."""
    for _ in range(times):
        if not limiter.delay(peer, now):
            limiter.note_wrong(peer, next(marks), now)


def test_whoever_guesses_has_to_wait_and_nobody_else() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "192.0.2.1", 0, 9)
    assert limiter.delay("192.0.2.1", 0) == 0
    guess(limiter, "192.0.2.1", 0, 1)
    assert limiter.delay("192.0.2.1", 0) == 6
    assert limiter.delay("192.0.2.1", 5) == pytest.approx(1)
    assert limiter.delay("192.0.2.2", 0) == 0


def test_after_a_minute_all_is_forgiven() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "192.0.2.1", 0, 10)
    guess(limiter, "192.0.2.1", 60, 9)
    assert limiter.delay("192.0.2.1", 60) == 0


def test_many_who_guess_together_have_to_wait_but_not_who_was_right() -> None:
    limiter = BruteForceLimiter()
    limiter.note_right("192.0.2.255")
    for number in range(200):
        guess(limiter, f"198.51.100.{number}", 0, 1)
    assert limiter.delay("203.0.113.1", 0) == pytest.approx(0.6)
    assert limiter.delay("192.0.2.255", 0) == 0


def test_a_whole_network_of_ipv6_is_one_address() -> None:
    limiter = BruteForceLimiter()
    for number in range(10):
        guess(limiter, f"2001:db8::{number}", 0, 1)
    assert limiter.delay("2001:db8::ffff", 0) > 0
    assert limiter.delay("2001:db8:0:1::", 0) == 0


def test_an_ipv4_address_in_ipv6_clothes_is_itself() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "::ffff:192.0.2.1", 0, 10)
    assert limiter.delay("192.0.2.1", 0) > 0
    assert limiter.delay("::ffff:192.0.2.2", 0) == 0


def test_a_peer_without_an_address_is_one_too() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "", 0, 10)
    assert limiter.delay("", 0) > 0


def test_a_clock_that_goes_backwards_harms_nobody() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "192.0.2.1", 100, 10)
    assert limiter.delay("192.0.2.1", 50) == 6


def test_what_was_wrong_is_known() -> None:
    limiter = BruteForceLimiter()
    limiter.note_wrong("192.0.2.1", "mark", 0)
    assert limiter.was_wrong("mark")
    assert not limiter.was_wrong("another")


def test_only_so_much_is_remembered() -> None:
    limiter = BruteForceLimiter()
    for number in range(REMEMBERED_MOST + 5):
        limiter.note_wrong(f"10.0.{number // 256}.{number % 256}", str(number), 0)
        limiter.note_right(f"10.1.{number // 256}.{number % 256}")
    assert not limiter.was_wrong("4")
    assert limiter.was_wrong("5")
    assert all(len(memory._known) == REMEMBERED_MOST for memory in (limiter._buckets, limiter._wrong, limiter._right))
