from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.running.key_gate import KEY, PROBE_EVERY, KeyGate

SHIPMENTS, STOCK, SHIPMENT = "/v1/shipments", "/v1/stock", "/v1/shipments/{id}"
PACKAGES, ITEMS = "/v1/packages", "/v1/items"
COLLECTIONS = (SHIPMENTS, PACKAGES, ITEMS, STOCK)
NOON = timedelta(hours=12)
SECOND = timedelta(seconds=1)


def test_nothing_is_refused_at_first() -> None:
    refusals = KeyGate()

    assert refusals.reason(STOCK) == ""
    assert refusals.may_probe(STOCK, NOON)


def refuse(refusals: KeyGate, collection: str, now: timedelta) -> None:
    refusals.refused(collection, f"{collection}: HTTP 401", now)


def kill(refusals: KeyGate, now: timedelta) -> None:
    """Refuse two collections, while nothing is accepted."""
    refuse(refusals, SHIPMENTS, now)
    refusals.probing(STOCK, now)
    refuse(refusals, STOCK, now)


def test_a_first_refusal_closes_its_collection_and_lets_another_decide_about_the_key() -> None:
    refusals = KeyGate()
    refuse(refusals, STOCK, NOON)

    assert not refusals.may_probe(STOCK, NOON + PROBE_EVERY - SECOND)
    assert refusals.may_probe(SHIPMENTS, NOON)

    refusals.probing(SHIPMENTS, NOON)
    assert not refusals.may_probe(PACKAGES, NOON)
    refusals.accepted(SHIPMENTS, NOON + SECOND, asked_at=NOON)
    refusals.ended(SHIPMENTS, NOON + SECOND)

    assert refusals.place(PACKAGES) is None
    assert refusals.place(STOCK) == STOCK


def test_a_key_that_is_refused_twice_is_closed_for_a_minute() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)

    for collection in (SHIPMENTS, STOCK, PACKAGES):
        assert refusals.place(collection) == KEY
        assert refusals.reason(collection) == f"{STOCK}: HTTP 401"
        assert not refusals.may_probe(collection, NOON + PROBE_EVERY - SECOND)
    assert refusals.may_probe(PACKAGES, NOON + PROBE_EVERY)


def test_while_one_probes_nobody_else_does() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)
    refusals.probing(PACKAGES, NOON + PROBE_EVERY)

    assert not refusals.may_probe(ITEMS, NOON + PROBE_EVERY + SECOND)
    assert refusals.may_probe(ITEMS, NOON + 2 * PROBE_EVERY)


def test_a_probe_that_proves_nothing_lets_another_go_at_once() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)
    refusals.probing(PACKAGES, NOON + PROBE_EVERY)
    refusals.ended(PACKAGES, NOON + PROBE_EVERY + SECOND)

    assert refusals.may_probe(ITEMS, NOON + PROBE_EVERY + SECOND)


def test_a_refused_probe_does_not_let_another_go_at_once() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)
    refusals.probing(PACKAGES, NOON + PROBE_EVERY)
    refuse(refusals, PACKAGES, NOON + PROBE_EVERY)
    refusals.ended(PACKAGES, NOON + PROBE_EVERY)

    assert not refusals.may_probe(ITEMS, NOON + PROBE_EVERY + SECOND)


def test_an_accepted_key_opens_all_that_was_not_refused_itself_within_the_minute() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)
    refusals.probing(PACKAGES, NOON + PROBE_EVERY)
    refusals.accepted(PACKAGES, NOON + PROBE_EVERY)

    assert refusals.place(ITEMS) is refusals.place(PACKAGES) is None
    assert refusals.may_probe(SHIPMENTS, NOON + PROBE_EVERY)
    assert refusals.may_probe(STOCK, NOON + PROBE_EVERY)


def test_a_refused_collection_is_closed_alone_where_the_key_is_good_for_others() -> None:
    refusals = KeyGate()
    refusals.accepted(STOCK, NOON)
    refuse(refusals, SHIPMENT, NOON + SECOND)

    assert refusals.place(SHIPMENT) == SHIPMENT
    assert refusals.place(SHIPMENTS) is refusals.place(STOCK) is None

    refusals.accepted(STOCK, NOON + 2 * SECOND)
    assert refusals.place(SHIPMENT) == SHIPMENT
    refusals.accepted(SHIPMENT, NOON + PROBE_EVERY)
    assert refusals.place(SHIPMENT) is None


def test_a_collection_that_stays_refused_never_puts_the_key_in_doubt_again() -> None:
    refusals = KeyGate()
    refusals.accepted(STOCK, NOON)
    for minute in range(60):
        at = NOON + minute * PROBE_EVERY + SECOND
        assert refusals.may_probe(SHIPMENTS, at)
        refusals.probing(SHIPMENTS, at)
        refuse(refusals, SHIPMENTS, at)
        assert refusals.place(STOCK) is None


@pytest.mark.parametrize("others", [{}, {SHIPMENTS: NOON}, {STOCK: NOON - PROBE_EVERY}])
def test_a_refusal_puts_the_key_in_doubt_where_nothing_else_was_accepted_lately(others: dict[str, timedelta]) -> None:
    refusals = KeyGate()
    for collection, at in others.items():
        refusals.accepted(collection, at)
    refuse(refusals, SHIPMENTS, NOON + SECOND)

    assert refusals.place(STOCK) == KEY


def test_a_key_that_dies_just_after_others_were_accepted_costs_three_refused_requests() -> None:
    refusals, refused = KeyGate(), 0
    for collection in COLLECTIONS:
        refusals.accepted(collection, NOON)
    for second in range(1, 59):
        for collection in COLLECTIONS:
            at = NOON + second * SECOND
            if refusals.place(collection) is None or refusals.may_probe(collection, at):
                refusals.probing(collection, at)
                refuse(refusals, collection, at)
                refused += 1

    assert refused == 3


def test_what_was_sent_before_the_refused_request_proves_nothing() -> None:
    refusals = KeyGate()
    refusals.refused(SHIPMENTS, "HTTP 401", NOON + SECOND, asked_at=NOON)
    refusals.accepted(STOCK, NOON + 30 * SECOND, asked_at=NOON - SECOND)
    assert refusals.place(STOCK) == KEY

    refusals.accepted(STOCK, NOON + 30 * SECOND, asked_at=NOON + 2 * SECOND)
    assert refusals.place(STOCK) is None


@pytest.mark.parametrize("order", [COLLECTIONS, COLLECTIONS[::-1]])
def test_probes_go_in_turn_though_the_same_always_comes_first(order: tuple[str, ...]) -> None:
    refusals, sent = KeyGate(), []
    for collection in COLLECTIONS:
        refuse(refusals, collection, NOON)
    for minute in range(1, 11):
        for number, collection in enumerate(order):
            at = NOON + minute * PROBE_EVERY + number * SECOND
            if refusals.may_probe(collection, at):
                refusals.probing(collection, at)
                refuse(refusals, collection, at)
                sent.append(collection)

    assert len(sent) >= 8
    assert set(sent) == set(COLLECTIONS)


def test_a_turn_is_lost_by_one_that_does_not_come() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)
    assert not refusals.may_probe(PACKAGES, NOON)
    assert not refusals.may_probe(SHIPMENTS, NOON)

    assert not refusals.may_probe(SHIPMENTS, NOON + PROBE_EVERY)
    assert refusals.may_probe(SHIPMENTS, NOON + 2 * PROBE_EVERY)


def test_a_replaced_key_is_probed_at_once() -> None:
    refusals = KeyGate()
    kill(refusals, NOON)
    assert not refusals.may_probe(STOCK, NOON + SECOND)

    refusals.reopen(NOON + SECOND)

    assert refusals.wait(STOCK, NOON + SECOND) == timedelta(0)
    assert refusals.reason(STOCK)


def test_a_collection_is_alone_while_others_are_accepted() -> None:
    refusals = KeyGate()
    refuse(refusals, STOCK, NOON)
    assert not refusals.is_alone(STOCK)

    refusals.accepted(SHIPMENTS, NOON + SECOND)
    refuse(refusals, STOCK, NOON + 2 * SECOND)
    assert refusals.is_alone(STOCK)


@given(st.lists(st.tuples(st.sampled_from(COLLECTIONS), st.floats(0, 40)), max_size=60))
def test_a_key_that_stays_refused_costs_one_request_a_minute_after_the_second(asked: list[tuple[str, float]]) -> None:
    refusals, now, sent = KeyGate(), NOON, []
    for collection, pause in asked:
        now += timedelta(seconds=pause)
        if refusals.place(collection) is None or refusals.may_probe(collection, now):
            sent.append(now)
            refusals.probing(collection, now)
            refuse(refusals, collection, now)
            refusals.ended(collection, now)

    assert all(later - earlier >= PROBE_EVERY for earlier, later in pairwise(sent[1:]))
    assert bool(sent) == bool(asked)
