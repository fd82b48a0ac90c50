from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.running.circuit_breaker import FAILURES_MOST, PROBE_FIRST, PROBE_MOST, CircuitBreaker

SHIPMENTS, ITEMS, STOCK = COLLECTIONS = ("/v1/shipments", "/v1/items", "/v1/stock")
NOON = timedelta(hours=12)
SECOND = timedelta(seconds=1)


def fail(breaker: CircuitBreaker, *collections: str, now: timedelta = NOON) -> list[bool]:
    return [breaker.failed(collection, f"GET {collection}: HTTP 503", now) for collection in collections]


@pytest.fixture
def breaker() -> CircuitBreaker:
    """Return one that all collections have opened at noon."""
    breaker = CircuitBreaker()
    assert fail(breaker, *COLLECTIONS, SHIPMENTS, ITEMS)[-1]
    return breaker


def test_it_opens_at_the_fifth_failure_in_a_row() -> None:
    breaker = CircuitBreaker()

    assert fail(breaker, SHIPMENTS, SHIPMENTS, ITEMS, SHIPMENTS) == [False] * 4
    assert breaker.admit(SHIPMENTS, NOON)
    assert fail(breaker, ITEMS, ITEMS) == [True, False]

    assert (breaker.opened_at, breaker.reason) == (NOON, "GET /v1/items: HTTP 503")
    assert not breaker.admit(SHIPMENTS, NOON)


def test_any_answer_begins_the_count_anew() -> None:
    breaker = CircuitBreaker()
    fail(breaker, SHIPMENTS, SHIPMENTS, SHIPMENTS, SHIPMENTS)

    assert breaker.answered(ITEMS) is None

    assert fail(breaker, SHIPMENTS, SHIPMENTS, SHIPMENTS, SHIPMENTS) == [False] * 4


def test_probes_go_after_growing_pauses(breaker: CircuitBreaker) -> None:
    sent, now = [], NOON
    while now < NOON + timedelta(minutes=1):
        if breaker.admit(STOCK, now):
            sent.append((now - NOON).total_seconds())
            fail(breaker, STOCK, now=now)
        now += SECOND / 2

    assert sent == [1, 3, 7, 15, 30, 45]
    assert breaker.wait(now) == PROBE_MOST - timedelta(seconds=15)


def test_a_probe_that_hangs_does_not_keep_the_next_from_going(breaker: CircuitBreaker) -> None:
    assert breaker.admit(STOCK, NOON + PROBE_FIRST)

    assert not breaker.admit(ITEMS, NOON + PROBE_FIRST + SECOND)
    assert breaker.admit(ITEMS, NOON + PROBE_FIRST + 2 * SECOND)


def test_an_answer_tells_since_when_requests_had_failed() -> None:
    breaker = CircuitBreaker()
    for number in range(FAILURES_MOST):
        breaker.failed(STOCK, "HTTP 503", NOON + number * SECOND)

    assert breaker.opened_at == NOON + (FAILURES_MOST - 1) * SECOND
    assert breaker.answered(STOCK) == NOON
    assert breaker.answered(STOCK) is None


def test_an_answer_closes_it_for_all(breaker: CircuitBreaker) -> None:
    assert breaker.answered(STOCK) == NOON

    assert breaker.opened_at is None
    assert all(breaker.admit(collection, NOON) for collection in COLLECTIONS)


def test_a_collection_that_was_not_asked_for_yet_does_not_wait() -> None:
    breaker = CircuitBreaker()
    fail(breaker, *[STOCK] * FAILURES_MOST)

    assert not breaker.admit(STOCK, NOON)
    assert breaker.admit(SHIPMENTS, NOON)
    assert not breaker.admit(SHIPMENTS, NOON), "one request tells"


def test_a_collection_that_fails_alone_opens_it_no_more_until_it_is_answered() -> None:
    breaker = CircuitBreaker()
    fail(breaker, *[STOCK] * FAILURES_MOST)
    breaker.answered(SHIPMENTS)

    assert not any(fail(breaker, *[STOCK] * 20))
    breaker.answered(STOCK)
    assert fail(breaker, *[STOCK] * FAILURES_MOST)[-1]


@given(st.lists(st.tuples(st.sampled_from(COLLECTIONS), st.booleans(), st.integers(0, 20)), max_size=80))
def test_no_request_waits_for_longer_than_the_longest_pause(steps: list[tuple[str, bool, int]]) -> None:
    breaker, now = CircuitBreaker(), NOON
    for collection, is_answered, pause in steps:
        now += pause * SECOND
        if breaker.admit(collection, now):
            if is_answered:
                breaker.answered(collection)
            else:
                fail(breaker, collection, now=now)
        assert breaker.wait(now) <= PROBE_MOST
        assert deepcopy(breaker).admit(collection, now + breaker.wait(now))


@given(st.lists(st.sampled_from(COLLECTIONS), min_size=FAILURES_MOST, max_size=80))
def test_an_outage_of_all_opens_it_whatever_failed_alone_before(order: list[str]) -> None:
    breaker = CircuitBreaker()
    fail(breaker, *[STOCK] * FAILURES_MOST)
    breaker.answered(SHIPMENTS)

    fail(breaker, *order)

    others = sum(each != STOCK for each in order)
    assert (breaker.opened_at is not None) == (others >= FAILURES_MOST)
