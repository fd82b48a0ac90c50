from __future__ import annotations

import pytest

from dockbell.core.model import NOTICES, Change, ChangeKind, Feed, Key, NoticeKind, Statement, Via
from dockbell.core.publishing.event import Composer
from dockbell.core.publishing.statement import notice_key
from dockbell.sinks.alert.text import write_text
from tests.fakes import NOON

COMPOSE = Composer(NOTICES, name="acme", singular="notice", epoch="epoch")


@pytest.mark.parametrize(
    ("kind", "subject", "name", "title", "grave"),
    [
        (NoticeKind.UNREACHABLE, "source", "main", "source main does not answer", True),
        (NoticeKind.UNREACHABLE, "sink", "erp", "sink erp cannot deliver", True),
        (NoticeKind.REFUSED, "feed", "main/stock", "main/stock cannot be read", True),
        (NoticeKind.REFUSED, "source", "main", "feeds of source main cannot be read", True),
        (NoticeKind.HELD, "feed", "main/stock", "changes of main/stock wait for a decision", False),
        (NoticeKind.DEAD_LETTER, "sink", "erp", "sink erp has a dead letter", False),
        (NoticeKind.OVERRUN, "sink", "erp", "sink erp has lost events", True),
        (NoticeKind.PAUSED, "sink", "erp", "sink erp is paused", False),
        (NoticeKind.GAP, "source", "main", "feeds of source main were not read for a while", False),
        (NoticeKind.DIED, "process", "4711", "process 4711 did not shut down cleanly", False),
        (NoticeKind.DISK, "store", "disk", "the disk of the store is nearly full", True),
        (NoticeKind.CROWDED, "server", "web", "the web server has too many connections", False),
    ],
)
def test_each_kind_of_notice_has_a_title_of_its_own(
    kind: NoticeKind, subject: str, name: str, title: str, *, grave: bool
) -> None:
    count = 1 if kind is NoticeKind.DEAD_LETTER else 3
    details = {subject: name, "reason": "something happened", "count": count}
    (event,) = COMPOSE(Statement(NOTICES, kind, NOON, dict(details), notice_key(kind, subject, name)), 1)
    text = write_text(event)
    assert (text.title, text.kind) == (f"dockbell acme: {title}", "failure" if grave else "warning")
    told = "Paused: something happened" if kind is NoticeKind.PAUSED else "something happened"
    assert text.body.splitlines()[0] == told + (" (3 times)" if count > 1 else "")


def test_several_dead_letters_are_counted_in_the_title() -> None:
    details = {"sink": "erp", "reason": "main/stock PAL-12: HTTP 422", "count": 45}
    (event,) = COMPOSE(Statement(NOTICES, NoticeKind.DEAD_LETTER, NOON, dict(details), "dead_letter,sink,erp"), 1)
    text = write_text(event)
    assert text.title == "dockbell acme: sink erp has 45 new dead letters"
    assert text.body.splitlines()[0] == "The last: main/stock PAL-12: HTTP 422"


def test_a_sink_that_an_operator_pauses_is_told_in_one_sentence() -> None:
    details = {"sink": "erp", "reason": "by an operator", "count": 1}
    (event,) = COMPOSE(Statement(NOTICES, NoticeKind.PAUSED, NOON, dict(details), "paused,sink,erp"), 1)
    assert write_text(event).body.splitlines()[0] == "Paused by an operator."


def test_the_name_that_every_dockbell_has_at_first_is_not_repeated() -> None:
    compose = Composer(NOTICES, name="dockbell", singular="notice", epoch="epoch")
    details = {"sink": "erp", "reason": "HTTP 410", "count": 1}
    (event,) = compose(Statement(NOTICES, NoticeKind.PAUSED, NOON, dict(details), "paused,sink,erp"), 1)
    assert write_text(event).title == "dockbell: sink erp is paused"


@pytest.mark.parametrize(
    ("subject", "name", "words", "sentence"),
    [
        ("sink", "erp", "was resumed", "Sink erp was resumed."),
        ("source", "main", "answers again after 4m", "Source main answers again after 4m."),
        ("feed", "main/stock", "is read again", "main/stock is read again."),
        ("store", "disk", "has free space again", "The disk has free space again."),
    ],
)
def test_the_end_of_an_alert_is_a_sentence(subject: str, name: str, words: str, sentence: str) -> None:
    details = {subject: name, "reason": words, "count": 1, "resolves": NoticeKind.UNREACHABLE}
    (event,) = COMPOSE(Statement(NOTICES, NoticeKind.RECOVERED, NOON, dict(details), "key"), 2)
    assert write_text(event).body.splitlines()[0] == sentence


def test_the_end_of_an_alert_has_its_title() -> None:
    details = {"sink": "erp", "reason": "was resumed", "count": 1, "resolves": NoticeKind.PAUSED}
    (event,) = COMPOSE(Statement(NOTICES, NoticeKind.RECOVERED, NOON, dict(details), "paused,sink,erp"), 2)
    text = write_text(event)
    assert (text.title, text.kind) == ("dockbell acme: resolved: sink erp is paused", "success")
    assert text.body.splitlines()[0] == "Sink erp was resumed."


def test_a_change_is_told_as_events_are_printed() -> None:
    feed = Feed("main", "stock")
    compose = Composer(feed, name="acme", singular="stock", epoch="epoch")
    change = Change(
        feed=feed,
        key=Key("PAL-12", "PAL-12"),
        kind=ChangeKind.CREATED,
        revision=1,
        after=b'{"sku":"PAL-12","available":3}',
        changed_between=(None, NOON),
        detected_at=NOON,
        via=Via.PASS,
    )
    (event,) = compose(change, 42)
    text = write_text(event)
    assert (text.title, text.kind) == ("dockbell acme: stock.created main/stock/PAL-12", "info")
    assert "available: 3" in text.body
    assert text.body.splitlines()[-1] == f"main/stock/PAL-12 #42 r1 {event.id}"
