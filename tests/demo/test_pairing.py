from __future__ import annotations

from dockbell.demo.pairing import GRACE, Pairing
from tests.demo.events import arrival, at


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
