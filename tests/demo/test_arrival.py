from __future__ import annotations

from dockbell.demo.arrival import Inbox, Novelty
from tests.demo.events import arrival, statement


def test_an_inbox_knows_news_from_repetitions_by_the_revision() -> None:
    inbox = Inbox()
    assert inbox.take(arrival(revision=1)) is Novelty.NEW
    assert inbox.take(arrival(revision=2)) is Novelty.NEW
    assert inbox.take(arrival(revision=1)) is Novelty.REPEATED
    assert inbox.take(arrival(revision=2)) is Novelty.REPEATED
    assert (inbox.events, inbox.repeated, inbox.gaps) == (2, 2, 0)


def test_an_inbox_sees_that_a_revision_is_missing() -> None:
    inbox = Inbox()
    inbox.take(arrival(revision=1))
    assert inbox.take(arrival(revision=3)) is Novelty.GAP
    assert inbox.take(arrival(revision=4)) is Novelty.NEW
    assert (inbox.events, inbox.gaps) == (3, 1)


def test_an_inbox_counts_the_revisions_of_each_key_and_resource() -> None:
    inbox = Inbox()
    inbox.take(arrival(revision=1))
    assert inbox.take(arrival(revision=1, key="shp_2")) is Novelty.NEW
    assert inbox.take(arrival(revision=1, resource="packages")) is Novelty.NEW


def test_a_statement_is_told_from_the_news_of_a_record() -> None:
    assert statement("gap").is_statement
    assert not arrival().is_statement
