from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dockbell.demo.arrival import GRACE, Figures, Inbox, Pairing, Requests, Spread
from tests.demo.events import arrival, at, statement


def test_an_inbox_knows_news_from_repetitions_by_the_revision() -> None:
    inbox = Inbox()
    assert inbox.take(arrival(revision=1))
    assert inbox.take(arrival(revision=2))
    assert not inbox.take(arrival(revision=1))
    assert not inbox.take(arrival(revision=2))
    assert (inbox.events, inbox.repeated, inbox.gaps) == (2, 2, 0)


def test_an_inbox_sees_that_a_revision_is_missing() -> None:
    inbox = Inbox()
    inbox.take(arrival(revision=1))
    assert inbox.take(arrival(revision=3))
    assert inbox.gaps == 1
    assert inbox.take(arrival(revision=4))
    assert (inbox.events, inbox.gaps) == (3, 1)


def test_an_inbox_counts_the_revisions_of_each_key_and_resource() -> None:
    inbox = Inbox()
    inbox.take(arrival(revision=1))
    assert inbox.take(arrival(revision=1, key="shp_2"))
    assert inbox.take(arrival(revision=1, resource="packages"))


def test_a_statement_is_told_from_the_news_of_a_record() -> None:
    assert statement("gap").is_statement
    assert not arrival().is_statement


def test_an_event_is_shown_when_the_last_receiver_has_it() -> None:
    pairing = Pairing(("mqtt", "hook"))
    assert pairing.add(arrival("mqtt", seconds=1)) is None
    assert not pairing.is_settled
    sighting = pairing.add(arrival("hook", seconds=1.1))
    assert sighting is not None
    assert (sighting.arrived, sighting.complete_at) == ({"mqtt": at(1), "hook": at(1.1)}, at(1.1))
    assert pairing.is_settled


def test_an_event_waits_for_the_other_receiver_no_longer_than_the_grace() -> None:
    pairing = Pairing(("mqtt", "hook"))
    pairing.add(arrival("hook", seconds=1))
    assert list(pairing.overdue(at(1) + GRACE / 2)) == []
    (sighting,) = pairing.overdue(at(1) + GRACE)
    assert sighting.arrived == {"hook": at(1)}
    assert list(pairing.overdue(at(9))) == []
    assert not pairing.is_settled


def test_what_comes_after_the_grace_is_shown_as_late() -> None:
    pairing = Pairing(("mqtt", "hook"))
    pairing.add(arrival("hook", seconds=1))
    list(pairing.overdue(at(2)))
    sighting = pairing.add(arrival("mqtt", seconds=3))
    assert sighting is not None
    assert sighting.is_late
    assert sighting.arrived == {"mqtt": at(3)}
    assert pairing.is_settled


def test_with_one_receiver_every_event_is_shown_at_once() -> None:
    pairing = Pairing(("hook",))
    assert pairing.add(arrival("hook")) is not None
    assert pairing.is_settled


def test_a_spread_names_mean_median_and_tail() -> None:
    assert Spread.of(range(1, 101)) == Spread(100, 50.5, 51, 99, 100)
    assert Spread.of([3.0]) == Spread(1, 3.0, 3.0, 3.0, 3.0)
    assert Spread.of([]).count == 0


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_the_parts_of_a_spread_are_in_order(delays: list[float]) -> None:
    spread = Spread.of(delays)
    assert min(delays) <= spread.median <= spread.p99 <= spread.longest == max(delays)


def test_requests_are_counted_for_a_minute_and_refusals_for_ever() -> None:
    requests = Requests()
    for second in range(120):
        requests.add(second, 429 if second == 3 else 200)
    assert (requests.total, requests.busiest, requests.refused) == (120, 60, 1)
    assert requests.within_a_minute(150) == 29
    assert requests.within_a_minute(300) == 0


def test_deletions_are_kept_apart_from_other_delays() -> None:
    figures = Figures(("mqtt",))
    figures.add_delay(0, "shipments", 1.0, deletion=False)
    figures.add_delay(1, "stock", 3.0, deletion=False)
    figures.add_delay(2, "stock", 20.0, deletion=True)
    assert figures.delays().mean == 2.0
    assert figures.delays("stock").mean == 3.0
    assert figures.delays(deletions=True).mean == 20.0
    assert figures.delays("items").count == 0
    assert figures.recent_delays(2).mean == 2.0
    assert figures.recent_delays(60.5).mean == 3.0
    assert figures.recent_delays(61.5).count == 0
