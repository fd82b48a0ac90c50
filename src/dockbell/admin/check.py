"""What would fail if the daemon ran: store, address, API, sinks; each is asked once, and nothing is changed.

A sink can also be given one test event.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

import anyio
import msgspec

from dockbell.admin.exposure import find_exposed
from dockbell.admin.quantities import format_age
from dockbell.config import Answer, Config, Expression, Facts, FeedSettings
from dockbell.core import pointer
from dockbell.core.document import decode
from dockbell.core.key import key_of
from dockbell.core.model import JSON, RESOURCES, ClockSource, Delivery, Event, Feed, Outcome, OutcomeKind, Page, Urgency
from dockbell.core.publishing.filters import Filter
from dockbell.core.reading.request import MAX_LIMIT
from dockbell.core.reading.shape import is_own_id, learn_shape
from dockbell.errors import DockbellError, SchemaMismatch, SinkRejected, SourceUnavailable, drop_subject
from dockbell.host.evaluator import SHARED
from dockbell.ports import Sink, Source
from dockbell.telemetry import Fact, RequestSent, SourceWaits, Telemetry

_NO_SINKS: Final = "no sinks: dockbell records events, and clients can only pull them; add [sinks.NAME]"
_LOOKS_AT_ONCE: Final = 64
"""Of sources, sinks and others, so that thousands do not take all file descriptors."""
_PATIENCE: Final = timedelta(minutes=1)
_TRIAL_PATIENCE: Final = timedelta(minutes=2)
_PROVISIONAL: Final = "provisional, because learned: no {missing} until a complete pass proves it unique"
_LOOKED_AT: Final = 25
_ANY: Final = "*"
_SKEW_TOLD: Final = timedelta(seconds=2)
_NO_DATE: Final = {
    ClockSource.RESET: "no reliable Date: dockbell takes the time from x-ratelimit-reset",
    ClockSource.LOCAL: "no reliable Date: dockbell takes the time from the local clock",
}


class Finding(msgspec.Struct, frozen=True):
    """What was found about one thing that a daemon needs."""

    subject: str  # ``store``, ``main/shipments``, ``sink erp``
    fails: bool
    detail: str  # what was found, or why it fails and what to do
    warns: bool = False  # nothing would fail, but the operator should look

    @property
    def state(self) -> str:
        return "fails" if self.fails else "warns" if self.warns else "ok"


async def check(
    config: Config,
    *,
    probe_store: Callable[[], Awaitable[str]],
    open_source: Callable[[str, Telemetry], Source],
    open_sink: Callable[[str], Sink],
    probe_web: Callable[[], Awaitable[str]] | None = None,
    path: Path | None = None,
) -> Sequence[Finding]:
    """Look at files, store and address, ask one page of each feed, connect to each sink; return what was found.

    What probes says what it found; ``probe_web`` is None where nothing is to listen. ``path`` is the configuration's.
    """
    exposed = [Finding("files", fails=False, detail=each, warns=True) for each in find_exposed(config, path)]
    included = [_count_included(config)] if config.include else []
    seen: dict[Feed, Sequence[JSON]] = {}
    feeds = {name: tuple(each) for name, each in groupby(config.feeds(), key=lambda each: each.source)}
    looks = [
        partial(_find, "store", probe_store),
        *([] if probe_web is None else [partial(_find, "web", probe_web)]),
        *(partial(_check_source, config, name, feeds.get(name, ()), open_source, seen) for name in config.sources),
        *(partial(_find, f"sink {name}", partial(_probe_sink, config, name, open_sink)) for name in config.sinks),
    ]
    found: dict[int, Sequence[Finding]] = {}

    waiting = enumerate(looks)

    async def look_on() -> None:
        for place, look in waiting:
            found[place] = await look()

    async with anyio.create_task_group() as group:
        for _ in range(min(len(looks), _LOOKS_AT_ONCE)):
            group.start_soon(look_on)
    sinks = [] if config.sinks else [Finding("sinks", fails=False, detail=_NO_SINKS, warns=True)]
    told = [finding for place in sorted(found) for finding in found[place]]
    return [*exposed, *included, *told, *sinks, *_judge_pointers(config, seen)]


def _count_included(config: Config) -> Finding:
    origins = config.origins
    files, sources = len(origins.included), len(origins.sources)
    of_all = f"{_count(len(config.sources), 'source')} in total"
    if not files:
        return Finding("include", fails=False, detail=f"no file matches; {of_all}", warns=True)
    detail = f"{_count(files, 'file')} with {_count(sources, 'source')}; {of_all}"
    return Finding("include", fails=False, detail=detail)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


async def _probe_sink(config: Config, name: str, open_sink: Callable[[str], Sink]) -> str:
    sink = open_sink(name)
    if rivals := _find_rivals(config, name):
        raise SinkRejected(rivals)
    return await sink.probe()


def _find_rivals(config: Config, name: str) -> str:
    """Return what is wrong where another sink claims what this one needs for itself alone; empty where none does."""
    claims = {other: settings.owned_by(config.name, other).claim() for other, settings in config.sinks.items()}
    rivals = [other for other, claim in claims.items() if claim and claim == claims[name] and other != name]
    return f"sink {rivals[0]} also uses {claims[name]}, and they disconnect each other" if rivals else ""


async def _check_source(
    config: Config,
    name: str,
    feeds: Sequence[FeedSettings],
    open_source: Callable[[str, Telemetry], Source],
    seen: dict[Feed, Sequence[JSON]],
) -> Sequence[Finding]:
    if config.sources[name].paused:
        return [Finding(f"source {name}", fails=False, detail="paused, not checked")]
    ear = _Ear()
    try:
        source = open_source(name, Telemetry(ear.hear))
    except DockbellError as error:
        return [Finding(f"source {name}", fails=True, detail=str(error))]
    found: list[Finding] = []
    alike: dict[str, list[tuple[FeedSettings, Finding]]] = {}  # why feeds cannot be read: often all by one cause
    try:
        for each in feeds:
            told, *judged = await _check_feed(source, each, ear, _find_conditions(config, each), seen)
            if told.fails:
                alike.setdefault(drop_subject(told.detail), []).append((each, told))
            else:
                found.append(told)
            found += judged
    finally:
        await source.aclose()
    return [*(_join(name, failures, len(feeds)) for failures in alike.values()), *found]


def _join(source: str, failures: Sequence[tuple[FeedSettings, Finding]], feeds: int) -> Finding:
    """Return one finding of what fails one feed, or several of a source."""
    told = failures[0][1]
    if len(failures) == 1:
        return told
    resources = ", ".join(each.resource for each, _ in failures)
    which = "no feed can" if len(failures) == feeds else f"{resources} cannot"
    return Finding(f"source {source}", fails=True, detail=f"{which} be read: {told.detail}")


class _Ear:
    """A listener: notes the outcome of the one request under way, and ends it where the source would retry."""

    def __init__(self) -> None:
        self.answer: RequestSent | None = None
        self.problem = ""
        self.scope = anyio.CancelScope()

    def hear(self, fact: Fact) -> None:
        match fact:
            case RequestSent():
                self.answer = fact
            case SourceWaits():
                self.problem = fact.reason
                self.scope.cancel()


async def _find(subject: str, probe: Callable[[], Awaitable[str]]) -> Sequence[Finding]:
    try:
        with anyio.fail_after(_PATIENCE.total_seconds()):
            return [Finding(subject, fails=False, detail=await probe())]
    except DockbellError as error:
        return [Finding(subject, fails=True, detail=str(error))]
    except TimeoutError:
        return [Finding(subject, fails=True, detail="no answer within a minute")]


async def _check_feed(
    source: Source,
    each: FeedSettings,
    ear: _Ear,
    conditions: Mapping[str, Expression],
    seen: dict[Feed, Sequence[JSON]],
) -> Sequence[Finding]:
    judged: list[Finding] = []

    async def ask() -> str:
        settings = each.settings
        with anyio.CancelScope() as ear.scope:
            page = await source.read_page(
                each.resource,
                limit=_LOOKED_AT if settings.key else MAX_LIMIT,  # a key is learned from the whole first page
                query=settings.query,
                expand=settings.expand,
                urgency=Urgency.OPERATOR,
            )
            said = ", ".join([*_describe_answer(page, ear.answer), _describe_shape(page, each)])
            judged.extend([finding async for finding in _judge_conditions(page, each, conditions)])
            seen[Feed(each.source, each.resource)] = [decode(record) for record in page.records]
            return said
        raise SourceUnavailable(ear.problem)

    return [*await _find(str(Feed(each.source, each.resource)), ask), *judged]


# Conditions ----------------------------------------------------------------------------------------------------------


def _find_conditions(config: Config, each: FeedSettings) -> Mapping[str, Expression]:
    """Return what is asked of the changes of a feed, by who asks."""
    named = {f"{each.source}/{each.resource} event {event.name}": event.when for event in each.settings.events}
    feed = Feed(each.source, each.resource)
    wheres = {
        f"sink {name} where": settings.where
        for name, settings in config.sinks.items()
        if settings.where is not None and Filter(settings).wants(feed)
    }
    return {subject: Expression(text) for subject, text in (named | wheres).items()}


async def _judge_conditions(
    page: Page, each: FeedSettings, conditions: Mapping[str, Expression]
) -> AsyncIterator[Finding]:
    """Say what conditions give of a record as it is, as if it had been updated without another form."""
    if not page.records:
        return
    record = page.records[0]
    others = {"change": "updated", "changed": [], "resource": each.resource, "source": each.source}
    key = _write_key(record, each)
    for subject, condition in conditions.items():
        facts = Facts(condition.looks_at, before=record, after=record, others=others | {"key": key})
        answer = await SHARED.evaluate_aside(condition, facts)
        said = answer.value if answer.is_plain or answer is Answer.COSTLY else condition.find_obstacle(facts)
        is_doubtful = answer in (Answer.MISSING, Answer.COSTLY)  # of other records it may say something else
        fails, detail = not (answer.is_plain or is_doubtful), f"for {each.resource} {key}: {said}"
        yield Finding(subject, fails=fails, detail=detail, warns=is_doubtful)


def _write_key(record: bytes, each: FeedSettings) -> str:
    resource = RESOURCES[each.resource]
    decoded = decode(record)
    shape = learn_shape(resource.singular, [decoded], key=each.settings.key, updated_at=each.settings.updated_at)
    return key_of(decoded, [pointer.parse(part) for part in shape.key]).text


# Pointers ------------------------------------------------------------------------------------------------------------


def _judge_pointers(config: Config, seen: Mapping[Feed, Sequence[JSON]]) -> Iterator[Finding]:
    """Say which configured pointers lead to nothing in any record: misspelt, they would hide and ignore nothing."""
    feeds = {Feed(each.source, each.resource): each.settings for each in config.feeds()}
    for feed, settings in feeds.items():
        for key in ("drop", "ignore", "unordered"):
            yield from _find_unmet(str(feed), key, getattr(settings, key), seen.get(feed, ()), settings.detail)
    for name, sink in config.sinks.items():
        wanted = [feed for feed in feeds if Filter(sink).wants(feed)]
        records = [record for feed in wanted for record in seen.get(feed, ())]
        detail = [member for feed in wanted for member in feeds[feed].detail]
        for key in ("fields", "redact"):
            yield from _find_unmet(f"sink {name}", key, getattr(sink, key), records, detail)


def _find_unmet(
    subject: str, key: str, places: Iterable[str], records: Sequence[JSON], detail: Iterable[str]
) -> Iterator[Finding]:
    """Return a finding for each place that no record has; what a detail brings, a list does not show."""
    looked = "the one record checked does not have it"
    if len(records) > 1:
        looked = f"none of the {len(records)} records checked has it"
    unlisted = {(member,) for member in detail}
    for place in places if records else ():
        tokens = pointer.parse(place)
        if tokens[:1] not in unlisted and not any(_has(each, tokens) for each in records):
            yield Finding(subject, fails=False, detail=f'{key} "{place}": {looked}; check the spelling', warns=True)


def _has(value: JSON, tokens: pointer.Tokens) -> bool:
    """Return whether something stands at a place, in which ``*`` is any element of an array."""
    if _ANY not in tokens:
        return pointer.resolve(value, tokens) is not pointer.MISSING
    at = tokens.index(_ANY)
    there, rest = pointer.resolve(value, tokens[:at]), tokens[at + 1 :]
    if isinstance(there, dict):  # of which it may be a member's name
        return _ANY in there and _has(there[_ANY], rest)
    return isinstance(there, list) and any(_has(each, rest) for each in there)


def _describe_answer(page: Page, answer: RequestSent | None) -> Iterator[str]:
    assert answer is not None
    yield f"HTTP {answer.status} in {answer.round_trip / timedelta(milliseconds=1):.0f} ms"
    yield f'records in "{page.envelope}"'
    yield "no rate limit headers" if answer.remaining is None else f"{answer.remaining} requests left"
    if page.clock is ClockSource.DATE:
        if page.asked_at - page.received_at > _SKEW_TOLD:
            yield f"API clock {format_age(page.asked_at - page.received_at)} ahead of the local clock"
        elif page.received_at - page.answered_at > _SKEW_TOLD:
            yield f"API clock {format_age(page.received_at - page.answered_at)} behind the local clock"
    else:
        yield _NO_DATE[page.clock]


def _describe_shape(page: Page, each: FeedSettings) -> str:
    """Say what identifies and dates the records, as the first page will show it.

    Raises:
        SchemaMismatch: Nothing identifies them.
    """
    if not page.records:
        return "no records"
    settings, resource = each.settings, RESOURCES[each.resource]
    try:
        records = [decode(record) for record in page.records]
        shape = learn_shape(resource.singular, records, key=settings.key, updated_at=settings.updated_at)
        key_of(records[0], [pointer.parse(part) for part in shape.key])
    except ValueError as error:
        raise SchemaMismatch(f"{error}; set key in [resources.{resource.name}]") from error
    missing = "deletions" if is_own_id(shape.key, resource.name) else "events"
    provisional = "" if settings.key else f" ({_PROVISIONAL.format(missing=missing)})"
    return f"key {' + '.join(shape.key)}{provisional}, timestamp {shape.updated_at or 'none'}"


# A test event --------------------------------------------------------------------------------------------------------


async def try_sink(sink: Sink, event: Event) -> Outcome:
    """Deliver an event in a single attempt, beside whatever a daemon delivers; return what came of it."""
    outcomes: list[Outcome] = []
    send, receive = anyio.create_memory_object_stream[Delivery](1)
    send.send_nowait(Delivery(event))
    send.close()  # the one delivery is still received; a sink that sees the end goes on trying no longer
    with receive, anyio.move_on_after(_TRIAL_PATIENCE.total_seconds()):
        await sink.run(receive, lambda _, outcome: outcomes.append(outcome))
    late = Outcome(OutcomeKind.UNREACHABLE, f"no outcome within {_TRIAL_PATIENCE.total_seconds():g} s")
    return outcomes[0] if outcomes else late
