from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.running.refusal import PROBE_EVERY, Refusals

SHIPMENTS, STOCK, SHIPMENT = "/v1/shipments", "/v1/stock", "/v1/shipments/{id}"
NOON = timedelta(hours=12)
SECOND = timedelta(seconds=1)


def test_nothing_is_refused_at_first() -> None:
    refusals = Refusals()

    assert refusals.reason(STOCK) == ""
    assert refusals.may_probe(STOCK, NOON)


def test_a_refused_key_closes_everything_for_a_minute() -> None:
    refusals = Refusals()
    refusals.refused(STOCK, "HTTP 401", NOON, key=True)

    assert refusals.reason(SHIPMENTS) == refusals.reason(STOCK) == "HTTP 401"
    assert not refusals.may_probe(SHIPMENTS, NOON + PROBE_EVERY - SECOND)
    assert refusals.may_probe(SHIPMENTS, NOON + PROBE_EVERY)


def test_while_one_probes_nobody_else_does() -> None:
    refusals = Refusals()
    refusals.refused(STOCK, "HTTP 401", NOON, key=True)
    refusals.probing(SHIPMENTS, NOON + PROBE_EVERY)

    assert not refusals.may_probe(STOCK, NOON + PROBE_EVERY + SECOND)
    assert refusals.may_probe(STOCK, NOON + 2 * PROBE_EVERY)


def test_an_accepted_key_opens_everything() -> None:
    refusals = Refusals()
    refusals.refused(STOCK, "HTTP 401", NOON, key=True)
    refusals.accepted(SHIPMENTS, NOON + PROBE_EVERY)

    assert refusals.reason(STOCK) == ""


def test_a_forbidden_collection_is_closed_alone_where_the_key_is_good_for_others() -> None:
    refusals = Refusals()
    refusals.accepted(STOCK, NOON)
    refusals.refused(SHIPMENT, "HTTP 403", NOON + SECOND, key=False)

    assert refusals.reason(SHIPMENT) == "HTTP 403"
    assert refusals.reason(SHIPMENTS) == refusals.reason(STOCK) == ""

    refusals.accepted(STOCK, NOON + 2 * SECOND)
    assert refusals.reason(SHIPMENT) == "HTTP 403"
    refusals.accepted(SHIPMENT, NOON + PROBE_EVERY)
    assert refusals.reason(SHIPMENT) == ""


def test_a_forbidden_collection_closes_everything_where_nothing_else_was_accepted_lately() -> None:
    for others in ({}, {SHIPMENTS: NOON}, {STOCK: NOON - PROBE_EVERY}):
        refusals = Refusals()
        for collection, at in others.items():
            refusals.accepted(collection, at)
        refusals.refused(SHIPMENTS, "HTTP 403", NOON + SECOND, key=False)

        assert refusals.reason(STOCK) == "HTTP 403"


@given(st.lists(st.tuples(st.sampled_from([SHIPMENTS, STOCK, SHIPMENT]), st.floats(0, 40)), max_size=60))
def test_a_key_that_stays_refused_costs_one_request_a_minute(asked: list[tuple[str, float]]) -> None:
    refusals, now, sent = Refusals(), NOON, []
    for collection, pause in asked:
        now += timedelta(seconds=pause)
        if refusals.may_probe(collection, now):
            sent.append(now)
            refusals.probing(collection, now)
            refusals.refused(collection, "HTTP 401", now, key=True)

    assert all(later - earlier >= PROBE_EVERY for earlier, later in pairwise(sent))
    assert bool(sent) == bool(asked)
