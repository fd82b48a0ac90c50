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
        (NoticeKind.HELD, "feed", "main/stock", "changes of main/stock wait for a decision", False),
        (NoticeKind.DEAD_LETTER, "sink", "erp", "sink erp has a dead letter", False),
        (NoticeKind.OVERRUN, "sink", "erp", "sink erp has lost events", True),
        (NoticeKind.PAUSED, "sink", "erp", "sink erp is paused", False),
        (NoticeKind.GAP, "source", "main", "source main was not read for a while", False),
        (NoticeKind.DIED, "process", "4711", "process 4711 did not shut down cleanly", False),
        (NoticeKind.DISK, "store", "disk", "the disk of the store is nearly full", True),
        (NoticeKind.CROWDED, "server", "web", "the web server has too many connections", False),
    ],
)
def test_each_kind_of_notice_has_a_title_of_its_own(
    kind: NoticeKind, subject: str, name: str, title: str, *, grave: bool
) -> None:
    details = {subject: name, "reason": "something happened", "count": 3}
    (event,) = COMPOSE(Statement(NOTICES, kind, NOON, dict(details), notice_key(kind, subject, name)), 1)
    text = write_text(event)
    assert (text.title, text.kind) == (f"dockbell acme: {title}", "failure" if grave else "warning")
    assert text.body.splitlines()[0] == "something happened (3 times)"


def test_the_end_of_an_alert_has_its_title() -> None:
    details = {"sink": "erp", "reason": "works again", "count": 1, "resolves": NoticeKind.PAUSED}
    (event,) = COMPOSE(Statement(NOTICES, NoticeKind.RECOVERED, NOON, dict(details), "paused,sink,erp"), 2)
    text = write_text(event)
    assert (text.title, text.kind) == ("dockbell acme: resolved: sink erp is paused", "success")
    assert text.body.splitlines()[0] == "Works again."


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
