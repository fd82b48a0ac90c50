"""The configuration for an API as it was measured: TOML, a reason on every line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from dockbell.admin.probing.asking import Asker
from dockbell.admin.probing.findings import Finding, State, reread, tell_feed
from dockbell.admin.probing.measuring import Measured
from dockbell.config import SourceSettings, format_duration
from dockbell.config.loading import write_value
from dockbell.config.place import write_keys
from dockbell.core.counting import count_of
from dockbell.core.model import RESOURCES
from dockbell.core.reading.response import clean, read_allowance
from dockbell.core.reading.survey import count_keys, find_total

KEY_VARIABLE: Final = "DOCKBELL_API_KEY"

_COLUMN: Final = 44
# Of the requests that a key has, what reading one feed again and again may cost.
_PASS_SHARE: Final = 0.2
_MINUTE: Final = timedelta(minutes=1)
_STEPS: Final = tuple(
    timedelta(seconds=seconds) for seconds in (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)
)


class Line(msgspec.Struct, frozen=True):
    """One line of a configuration; without a key, only the reason."""

    key: str
    value: object
    reason: str


class Advice(msgspec.Struct, frozen=True):
    """The settings for an account as it was measured: those of its source, and of its feeds by resource."""

    account: Sequence[Line]
    feeds: Mapping[str, Sequence[Line]]

    def write(self, source: str) -> str:
        """Return the tables ``[sources.NAME]`` and ``[sources.NAME.resources.*]``, as TOML."""
        tables = [write_table(("sources", source), self.account)]
        tables += [write_table(("sources", source, "resources", name), lines) for name, lines in self.feeds.items()]
        return "\n".join(tables)


def advise(settings: SourceSettings, asker: Asker, feeds: Iterable[Measured]) -> Advice:
    """Return the settings for what was measured of one source."""
    return Advice(
        tuple(_advise_account(settings, asker)), {each.resource: tuple(_advise_feed(each, settings)) for each in feeds}
    )


def write_table(place: Sequence[str], lines: Iterable[Line]) -> str:
    """Return a table as TOML, a reason on every line; without a place, what stands before all tables."""
    text = f"[{write_keys(place)}]\n" if place else ""
    for line in lines:
        setting = f"{f'{write_keys([line.key])} = {_write_value(line.value)}':<{_COLUMN}} " if line.key else ""
        text += f"{setting}# {clean(line.reason)}\n"
    return text


def _write_value(value: object) -> str:
    return write_value(format_duration(value) if isinstance(value, timedelta) else value)


def _advise_account(settings: SourceSettings, asker: Asker) -> Iterator[Line]:
    answers = f"{len(asker.answers)} of {asker.sent} requests answered"
    yield Line("base_url", settings.base_url, answers)
    key = settings.api_key
    if key.env is not None or key.file is not None:
        yield Line("api_key", {"env": key.env} if key.env is not None else {"file": key.file}, "accepted")
    else:
        yield Line("api_key", {"env": KEY_VARIABLE}, "accepted; set this variable to the key")
    limits = [found.limit for each in asker.answers if (found := read_allowance(each)) is not None]
    limit, why = settings.requests_per_minute, "assumed: no x-ratelimit headers"
    yield Line("requests_per_minute", *((limits[-1], "from x-ratelimit-limit") if limits else (limit, why)))


def _advise_feed(measured: Measured, source: SourceSettings) -> Iterator[Line]:
    if measured.problem:
        if measured.refused:
            yield Line("enabled", value=False, reason=measured.problem)
        else:
            yield Line("", None, f"not measured, all values assumed: {measured.problem}")
        return
    told = {each.what: each for each in tell_feed(measured)}
    yield from _advise_pace(measured, source, told)
    yield from _advise_shape(measured, told)
    yield from _advise_comparing(measured)
    if measured.signal is not None and measured.signal.is_usable:
        yield Line("signal", measured.signal.pair.carrier, measured.signal.describe())
    if query := measured.settings.query:
        yield Line("query", query, _reason(told.get("status=all"), "assumed: as the probe asked"))
    if measured.settings.expand:
        yield Line("expand", measured.settings.expand, "as the probe asked")
    if measured.details:
        yield Line("", None, f"no detail here, but a single shipment has more fields: {', '.join(measured.details)}")


def _reason(finding: Finding | None, otherwise: str) -> str:
    if finding is None:
        return otherwise
    words = f"{finding.found}: {finding.evidence}" if finding.evidence else finding.found
    return f"assumed: {words}" if finding.state is State.UNTOLD else words


def _advise_pace(measured: Measured, source: SourceSettings, told: dict[str, Finding]) -> Iterator[Line]:
    """Yield how often to read: as by default, but no faster than a share of the budget carries."""
    settings, since, polled = measured.settings, told.get("updated_since"), RESOURCES[measured.resource].polled
    pages, is_known = _count_pages_in_all(measured)
    reading_all = f"a full read takes {'' if is_known else 'at least '}{count_of(pages, 'page')}"
    is_whole = not polled or (since is not None and since.state is State.FAILS)
    least = pages * _MINUTE / (source.requests_per_minute * source.share * _PASS_SHARE)

    def lengthen(every: timedelta) -> timedelta:
        return every if every >= least else next((step for step in _STEPS if step >= least), _STEPS[-1])

    if settings.cron is not None:
        yield Line("cron", settings.cron, f"as configured; {reading_all}")
    elif settings.is_auto:
        yield Line("every", "auto", f"as often as the budget allows; {reading_all}")
        if is_whole and settings.at_most is not None and (at_most := lengthen(settings.at_most)) != settings.at_most:
            yield Line("at_most", at_most, f"every read covers the whole list; {reading_all}")
    elif not is_whole:
        how = "updated_since was not measured" if since is None else f"updated_since is {since.found}"
        yield Line("every", settings.every, f"assumed: {how}; a poll takes one page unless much changed")
    else:
        assert isinstance(settings.every, timedelta)
        guess = "" if is_known else "assumed: "
        yield Line("every", lengthen(settings.every), f"{guess}every read covers the whole list; {reading_all}")
    if polled:
        yield Line("reconcile", settings.reconcile, f"assumed: only full reads show deletions; {reading_all}")
        bound = told["bound"].found if "bound" in told else "not known"
        yield Line("lookback", settings.lookback, f"assumed: a probe cannot measure lateness; the bound is {bound}")


def _count_pages_in_all(measured: Measured) -> tuple[int, bool]:
    """Return how many pages the list has at least, and whether that is known to be all."""
    if measured.at_end:
        return len(measured.pages), True
    total = find_total(measured.pages[0].envelope)
    size = max(len(each.records) for each in measured.pages)
    if total is None or not size:
        return len(measured.pages), False
    return max(len(measured.pages), -(-total[1] // size)), True


def _advise_shape(measured: Measured, told: dict[str, Finding]) -> Iterator[Line]:
    if measured.shape is None:
        why = "found no field that identifies the records; set key"
        yield Line("", None, f"no key here: {why if measured.records else 'no records to learn it from'}")
        return
    key = measured.shape.key
    guess = "assumed: " if measured.guessed or not count_keys(measured.records, key).holds else ""
    yield Line("key", key[0] if len(key) == 1 else key, f"{guess}{told['key'].evidence}")
    if measured.shape.updated_at is not None:
        yield Line("updated_at", measured.shape.updated_at, told["updated_at"].evidence)
    else:
        yield Line("", None, f"no updated_at: {told['updated_at'].evidence}")


def _advise_comparing(measured: Measured) -> Iterator[Line]:
    found = reread(measured)
    if found is None:
        yield from (Line(name, [], "assumed: nothing was read twice") for name in ("unordered", "ignore"))
        return
    base = f"{count_of(found.compared, 'record')} read twice"
    unordered = list(dict.fromkeys([*measured.settings.unordered, *found.shuffled]))
    counts = ", ".join(f"{place} in {count}" for place, count in found.shuffled.items())
    why = f"the order differed: {counts} of {base}" if counts else f"no array changed its order in {base}"
    yield Line("unordered", unordered, why)
    volatile = found.volatile()
    ignore = list(dict.fromkeys([*measured.settings.ignore, *volatile]))
    counts = ", ".join(f"{place} in {found.restless[place]}" for place in volatile)
    why = f"changed although the record's timestamp did not: {counts} of {base}"
    yield Line("ignore", ignore, why if counts else f"no field changed by itself in {base}")
