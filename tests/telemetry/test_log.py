from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO

import pytest
from msgspec import structs

from dockbell.core.model import Delivery, Event, Feed, Outcome, OutcomeKind, RunKind
from dockbell.telemetry import (
    AgentFails,
    DeliverySettled,
    EventDied,
    Fact,
    FeedCleaned,
    FeedFails,
    RunEnded,
    SinkFails,
    SourceWaits,
    Stopping,
    Telemetry,
)
from dockbell.telemetry.log import log_fact, start_log

FEED = Feed("main", "shipments")
STOCK = Feed("main", "stock")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def run_ended(
    *, feed: Feed = FEED, events: int = 2, seconds: float = 1.25, problem: str = "", kind: RunKind = RunKind.PASS
) -> RunEnded:
    return RunEnded(feed, kind, 1, 3, events, timedelta(seconds=seconds), problem)


def write(stream: StringIO, *facts: Fact, verbose: bool = False) -> list[str]:
    start_log(stream, verbose=verbose)
    telemetry = Telemetry(log_fact)
    for fact in facts:
        telemetry.emit(fact)
    return stream.getvalue().splitlines()


def test_a_terminal_gets_a_readable_line() -> None:
    (line,) = write(Terminal(), run_ended())
    assert line[8:] == " main/shipments: pass complete: 1 page, 3 records, 2 events in 1.2 s"


def test_what_needs_attention_is_coloured() -> None:
    (line,) = write(Terminal(), SourceWaits("main", "HTTP 503", timedelta(seconds=2)))
    assert line.startswith("\x1b[33m")


def test_anything_else_gets_an_object_with_the_fields_of_the_fact() -> None:
    (line,) = write(StringIO(), run_ended())
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "info",
        "text": "main/shipments: pass complete: 1 page, 3 records, 2 events in 1.2 s",
        "fact": "RunEnded",
        "feed": "main/shipments",
        "kind": "pass",
        "pages": 1,
        "records": 3,
        "events": 2,
        "elapsed": 1.25,
        "problem": "",
        "asked_at": None,
        "late": None,
        "sent_at": None,
        "is_first": False,
    }


@pytest.mark.parametrize(
    ("fact", "level"),
    [
        (run_ended(kind=RunKind.POLL), logging.DEBUG),
        (run_ended(), logging.INFO),
        (run_ended(events=0), logging.INFO),
        (run_ended(feed=STOCK), logging.INFO),
        (run_ended(feed=STOCK, events=0), logging.DEBUG),
        (run_ended(feed=STOCK, events=0, seconds=10), logging.INFO),
        (structs.replace(run_ended(feed=STOCK, events=0), is_first=True), logging.INFO),
        (run_ended(problem="cut short", kind=RunKind.POLL), logging.WARNING),
        (Stopping(), logging.INFO),
    ],
)
def test_a_poll_that_went_well_is_no_news(fact: Fact, level: int) -> None:
    assert fact.level == level


def test_routine_is_written_only_on_request() -> None:
    quiet = run_ended(kind=RunKind.POLL)
    assert write(StringIO(), quiet) == []
    assert len(write(StringIO(), quiet, verbose=True)) == 1


def test_a_library_whose_warnings_facts_say_better_is_silent() -> None:
    stream = StringIO()
    start_log(stream)
    logging.getLogger("aiormq.connection").error("Unexpected connection close from remote")
    assert stream.getvalue() == ""


def test_records_stay_out_of_the_log() -> None:
    event = Event(FEED, 1, "shp_1", "evt_1", "dockbell.shipment.updated", "updated", 1, b'{"name": "Ada"}')
    fact = DeliverySettled("erp", Delivery(event), Outcome(OutcomeKind.FAILED, "HTTP 500"))
    (line,) = write(StringIO(), fact, verbose=True)
    assert "Ada" not in line
    assert "dockbell.shipment.updated shp_1 #1, attempt 1: failed (HTTP 500)" in json.loads(line)["text"]


@pytest.mark.parametrize("stream", [StringIO(), Terminal()])
def test_an_error_that_nobody_foresaw_is_written_with_its_trace(stream: StringIO) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print(1 / 0)
    text = "\n".join(write(stream, AgentFails("main/stock", caught.value)))
    assert "main/stock: ZeroDivisionError: division by zero" in text
    assert "test_log.py" in text


def test_libraries_are_heard_when_they_warn() -> None:
    stream = StringIO()
    start_log(stream)
    logging.getLogger("apscheduler.executors.default").info("running job")
    logging.getLogger("apscheduler.executors.default").warning("it is late")
    assert [json.loads(line)["text"] for line in stream.getvalue().splitlines()] == ["it is late"]


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_the_words_of_others_are_one_line_that_no_terminal_obeys(stream: type[StringIO]) -> None:
    (line,) = write(
        stream(), SourceWaits("main", "HTTP 503\n12:00:00 all is well\x1b[2J\x9b2J\u2028\u202e", timedelta())
    )
    assert line.removeprefix("\x1b[33m").removesuffix("\x1b[0m").isprintable()
    assert "all is well" in line


def test_a_trace_keeps_its_lines_and_nothing_else_that_is_not_shown() -> None:
    with pytest.raises(ValueError, match="2J") as caught:
        int("\x1b[2J")
    first, *others = write(Terminal(), AgentFails("agent", caught.value))
    assert len(others) > 2
    assert "\x1b[2J" not in "".join((first, *others))


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_a_line_has_an_end_whatever_others_have_to_say(stream: type[StringIO]) -> None:
    (line,) = write(stream(), EventDied("erp", FEED, "k" * 1_000_000, 1, "HTTP 400"))
    assert len(line) < 10_000


@pytest.mark.parametrize(
    ("problem", "level", "text"),
    [
        ("", logging.INFO, "main/shipments: /a, /b dropped from 1 record and 0 events"),
        (
            "it is full",
            logging.WARNING,
            (
                "main/shipments: /a, /b dropped from 1 record and 0 events, but it is full;"
                ' the next pass or "dockbell once" tries again'
            ),
        ),
    ],
)
def test_what_was_dropped_from_the_store_is_told_and_weighs_more_where_traces_are_left(
    problem: str, level: int, text: str
) -> None:
    fact = FeedCleaned(FEED, ("/a", "/b"), 1, 0, problem)
    assert (fact.level, str(fact)) == (level, text)


def test_a_feed_that_cannot_be_read_says_when_it_is_asked_again() -> None:
    fact = FeedFails(FEED, "HTTP 401; the API does not accept the key, check api_key", timedelta(minutes=1))
    assert str(fact).endswith("check api_key; retrying in 60 s")
    assert str(FeedFails(FEED, "HTTP 401")) == "main/shipments: HTTP 401"


def say(stream: StringIO, *said: tuple[float, str, str]) -> list[str]:
    """Have loggers say something, each at a time in seconds; return the texts that are in the log."""
    start_log(stream)
    (handler,) = logging.getLogger().handlers
    for at, name, words in said:
        record = logging.LogRecord(name, logging.ERROR, __file__, 1, words, None, None)
        record.created = 1_800_000_000 + at
        handler.handle(record)
    return [json.loads(line)["text"] for line in stream.getvalue().splitlines()]


def test_what_the_event_loop_repeats_is_told_once_a_minute_with_its_number() -> None:
    shortage = "socket.accept() out of system resource\nsocket: <socket.socket fd={}>"
    said = [(number / 100, "asyncio", shortage.format(number)) for number in range(5_000)]
    told = say(StringIO(), *said, (70, "dockbell", "a line"), (80, "asyncio", shortage), (131, "dockbell", "another"))
    assert told == [
        shortage.format(0),
        "socket.accept() out of system resource (repeated 4999 times, the last 20 s ago)",
        "a line",
        "socket.accept() out of system resource (repeated once, the last 51 s ago)",
        "another",
    ]


def test_what_is_not_the_same_is_all_told() -> None:
    said = [
        (0, "asyncio", "one"),
        (0, "asyncio", "another"),
        (0, "uvicorn.error", "one"),
        (0, "other", "x"),
        (0, "other", "x"),
    ]
    assert say(StringIO(), *said) == ["one", "another", "one", "x", "x"]


def test_what_is_told_apart_has_an_end() -> None:
    said = [(0, "asyncio", f"error {number}") for number in range(1_000)]
    assert len(say(StringIO(), *said, (61, "dockbell", "a line"))) == 1_001


def log_at(stream: StringIO, *facts: tuple[float, Fact]) -> list[str]:
    """Log facts, each at a time in seconds; return the texts that are in the log."""
    start_log(stream)
    (handler,) = logging.getLogger().handlers
    for at, fact in facts:
        record = logging.LogRecord("dockbell", fact.level, __file__, 1, "%s", (fact,), None)
        record.created, record.fact = 1_800_000_000 + at, fact
        handler.handle(record)
    return [json.loads(line)["text"] for line in stream.getvalue().splitlines()]


def test_a_sink_that_fails_for_long_is_told_once_a_minute_and_each_new_reason_at_once() -> None:
    refused, hung = (SinkFails("erp", reason, timedelta(seconds=5)) for reason in ("connection refused", "no answer"))
    said = [*((number * 5.0, refused) for number in range(12)), (60.0, hung), (61.0, refused)]
    assert log_at(StringIO(), *said) == [
        "sink erp: connection refused; retrying in 5 s",
        "sink erp: connection refused (repeated 11 times, the last 5 s ago)",
        "sink erp: no answer; retrying in 5 s",
    ]


def test_an_outage_is_told_once_of_all_feeds_whose_requests_were_not_sent() -> None:
    def end(resource: str, problem: str) -> RunEnded:
        return RunEnded(Feed("main", resource), RunKind.POLL, 0, 0, 0, timedelta(0), problem)

    said = [
        (0, end("stock", "GET /v1/stock: HTTP 503")),
        (1, end("items", "GET /v1/items: HTTP 503")),
        *((2, end(resource, "not sent: GET /v1/stock: HTTP 503")) for resource in ("stock", "items", "packages")),
        (3, end("stock", "not sent: GET /v1/items: HTTP 503")),
    ]
    assert log_at(StringIO(), *said) == [
        "main/stock: poll failed: GET /v1/stock: HTTP 503",
        "main/items: poll failed: GET /v1/items: HTTP 503",
        "main/stock: poll failed: not sent: GET /v1/stock: HTTP 503",
    ]


@pytest.mark.parametrize(("seconds", "words"), [(0, "now"), (0.2, "now"), (1.4, "in 1 s"), (90, "in 90 s")])
def test_a_retry_is_told_in_whole_seconds(seconds: float, words: str) -> None:
    assert str(SinkFails("erp", "no answer", timedelta(seconds=seconds))) == f"sink erp: no answer; retrying {words}"
