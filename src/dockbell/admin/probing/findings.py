"""Findings: what the measurements say in words, each with its evidence; of a whole source, and of each feed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Final, TypeAlias

import msgspec

from dockbell.admin.probing.asking import Asker
from dockbell.admin.probing.measuring import Bound, Measured
from dockbell.admin.quantities import format_age
from dockbell.core import pointer
from dockbell.core.counting import count_of
from dockbell.core.model import RESOURCES
from dockbell.core.moment import EPOCH
from dockbell.core.reading.request import MAX_LIMIT
from dockbell.core.reading.rereading import Rereading, compare_readings
from dockbell.core.reading.response import NOT_FOUND, excerpt, read_allowance
from dockbell.core.reading.survey import (
    clock_offset,
    count_foreign,
    count_keys,
    end_of_list,
    find_orders,
    find_times,
    find_total,
    guess_cursor,
)

_SKEW_TOLD: Final = timedelta(seconds=2)
_SHOWN_MOST: Final = 5
_NOT_MODIFIED: Final = 304
_BROKEN: Final = 500
# An updated_since that an API cuts before it compares: from the finest to the coarsest.
_GRAINS: Final = {
    "milliseconds": timedelta(milliseconds=1),
    "seconds": timedelta(seconds=1),
    "minutes": timedelta(minutes=1),
    "days": timedelta(days=1),
}


class State(StrEnum):
    """What a finding means for dockbell."""

    OK = "ok"
    NOTE = "note"  # dockbell copes with it
    FAILS = "fails"  # an operator must act
    UNTOLD = "untold"  # could not be measured


class Finding(msgspec.Struct, frozen=True):
    subject: str  # the source or the feed, ``main`` or ``main/shipments``
    what: str  # what was measured, ``key``
    found: str  # what it is, ``/id``
    evidence: str = ""  # what it was concluded from
    state: State = State.OK


def tell_source(name: str, asker: Asker) -> Iterator[Finding]:
    """Yield the findings of all answers of an account: its clock, its budget, its speed."""
    answers = asker.answers
    yield Finding(name, "requests", f"{asker.sent} sent", f"{len(answers)} answered")
    if asker.stopped:
        yield Finding(name, "stopped", "yes", asker.stopped, State.FAILS if asker.failed else State.NOTE)
    if not answers:
        return
    yield _tell_clock(name, asker)
    allowance = next((found for each in answers if (found := read_allowance(each)) is not None), None)
    if allowance is None:
        evidence = f"no x-ratelimit headers in {len(answers)} answers; requests_per_minute is assumed"
        yield Finding(name, "budget", "unknown", evidence, State.NOTE)
    else:
        yield Finding(name, "budget", f"{allowance.limit} requests per window", "x-ratelimit-limit")
        if (foreign := count_foreign(answers)) is None:
            yield Finding(name, "other users", "unknown", "needs two answers in a window", State.UNTOLD)
        else:
            state = State.NOTE if foreign else State.OK
            yield Finding(name, "other users", count_of(foreign, "request"), "counted by x-ratelimit-remaining", state)
    trips = [(each.received_at - each.sent_at) / timedelta(milliseconds=1) for each in answers]
    evidence = f"median of {len(trips)}, longest {max(trips):.0f} ms"
    yield Finding(name, "latency", f"{median(trips):.0f} ms", evidence)
    zipped = sum(each.headers.get("content-encoding", "").lower() in {"gzip", "x-gzip"} for each in answers)
    yield Finding(name, "gzip", "yes" if zipped else "no", f"{zipped} of {len(answers)} answers")


def _tell_clock(name: str, asker: Asker) -> Finding:
    offset = clock_offset(asker.answers)
    if offset is None:
        evidence = "no Date in any answer: dockbell uses x-ratelimit-reset or the local clock, with a longer lookback"
        return Finding(name, "clock", "no Date", evidence, State.NOTE)
    least, most = offset
    evidence = f"Date is ahead of the local clock by {least.total_seconds():.1f} to {most.total_seconds():.1f} s"
    if least > _SKEW_TOLD:
        return Finding(name, "clock", f"{format_age(least)} ahead of the local clock", evidence, State.NOTE)
    if most < -_SKEW_TOLD:
        return Finding(name, "clock", f"{format_age(-most)} behind the local clock", evidence, State.NOTE)
    return Finding(name, "clock", "matches the local clock", evidence)


# Of a feed -----------------------------------------------------------------------------------------------------------

_Row: TypeAlias = tuple[str, str, str, State]
"""Of a :class:`Finding`: what, found, evidence, state."""


def tell_feed(measured: Measured) -> Iterator[Finding]:
    """Yield the findings of a feed, the most important first."""
    if measured.problem:
        yield Finding(str(measured.feed), "reading", "none", measured.problem, State.FAILS)
        return
    for what, found, evidence, state in _tell(measured):
        yield Finding(str(measured.feed), what, found, evidence, state)
    for what, reason in measured.unmeasured.items():
        yield Finding(str(measured.feed), what, "unknown", reason, State.UNTOLD)


def _tell(measured: Measured) -> Iterator[_Row]:
    first = measured.pages[0]
    yield "reading", f'records in "{first.page.envelope}"', f"HTTP {first.response.status}", State.OK
    yield from _tell_size(measured)
    if measured.records:
        yield from _tell_key(measured)
    if measured.shape is not None:
        yield from _tell_times(measured)
        yield from _tell_order(measured)
    yield from _tell_cursor(measured)
    yield from _tell_since(measured)
    yield from _tell_rereading(measured)
    yield from _tell_filters(measured)
    yield from _tell_signal(measured)
    yield from _tell_shipment(measured)
    if measured.conditional is not None:
        answered = "304 when unchanged" if measured.conditional == _NOT_MODIFIED else f"HTTP {measured.conditional}"
        yield "ETag", answered, "requested the first page with its own ETag", State.OK
    elif first.response.headers.get("etag") is None:
        yield "ETag", "none", "on the first page", State.OK
    else:
        yield "ETag", "given", "on the first page; conditional requests not tried", State.UNTOLD


def _tell_size(measured: Measured) -> Iterator[_Row]:
    sizes = [len(each.records) for each in measured.pages]
    pages = f"{count_of(len(sizes), 'page')} read"
    if (total := find_total(measured.pages[0].envelope)) is not None:
        yield "records", str(total[1]), f'from "{total[0]}"; {pages}', State.OK
    elif measured.at_end:
        yield "records", str(sum(sizes)), f"{pages}, the whole list", State.OK
    else:
        yield "records", f"more than {sum(sizes)}", pages, State.OK
    followed = sizes[:-1] if measured.at_end else sizes
    if not followed:
        yield "page size", "unknown", f"all {sizes[0]} records came on one page", State.OK
    elif min(followed) == MAX_LIMIT:
        yield "page size", str(MAX_LIMIT), f"asked for {MAX_LIMIT}, on {count_of(len(followed), 'page')}", State.OK
    else:
        found = f"{min(followed)} to {max(followed)}" if min(followed) < max(followed) else str(followed[0])
        yield "page size", found, f"asked for {MAX_LIMIT}: a short page does not end the list here", State.NOTE


def _tell_key(measured: Measured) -> Iterator[_Row]:
    if measured.shape is None:
        fields = ", ".join(sorted(measured.records[0])) or "none"
        yield "key", "none", f"no one or two fields identify the records, got {fields}; set key", State.FAILS
        return
    found = count_keys(measured.records, measured.shape.key)
    kinds = " and ".join(found.kinds)
    evidence = f"{kinds}, present in {found.present} of {found.records} records"
    evidence += f", {found.doubles} of them more than once" if found.doubles else ", unique"
    if found.holds:
        state = State.NOTE if measured.guessed else State.OK
        evidence += "; not a usual name, check that it is right" if measured.guessed else ""
    elif found.present < found.records or not _drifts(measured):
        state = State.FAILS
    else:
        state, evidence = State.NOTE, f"{evidence}: the pages overlap"
    yield "key", " + ".join(measured.shape.key), evidence, state


def _drifts(measured: Measured) -> bool:
    """Tell whether keys come twice on different pages only, as when records move while the list is read."""
    pages = [measured.keys(each.records) for each in measured.pages]
    return all(len(set(keys)) == len(keys) for keys in pages)


def _tell_times(measured: Measured) -> Iterator[_Row]:
    assert measured.shape is not None
    stamps, total = measured.stamps(), len(measured.records)
    if stamps is None:
        others = ", ".join(find_times(measured.records)[:_SHOWN_MOST])
        hint = f"; times found in {others}" if others else ""
        yield "updated_at", "none", f"no timestamp of the last change in {count_of(total, 'record')}{hint}", State.NOTE
    else:
        evidence = f"in {stamps.present} of {total} records, {' or '.join(stamps.forms)}, to the {stamps.precision}"
        is_odd = stamps.present < total or len(stamps.forms) > 1 or "no zone" in stamps.forms
        yield "updated_at", measured.shape.updated_at or "", evidence, State.NOTE if is_odd else State.OK
        now = measured.pages[-1].page.answered_at
        if stamps.ahead:
            evidence = f"{stamps.ahead} of {total} records are dated later than the service's clock, the latest by"
            yield "future stamps", str(stamps.ahead), f"{evidence} {format_age(stamps.newest - now)}", State.NOTE
        else:
            yield "newest stamp", f"{format_age(now - stamps.newest)} old", "by the service's clock", State.OK
    created = measured.shape.created_at
    yield "created_at", created or "none", "" if created else f"in {count_of(total, 'record')}", State.OK


def _tell_order(measured: Measured) -> Iterator[_Row]:
    assert measured.shape is not None
    evidence = f"in {count_of(len(measured.records), 'record')} on {count_of(len(measured.pages), 'page')}"
    orders = find_orders(measured.records, measured.shape)
    yield "order", " = ".join(orders) or "none", evidence, State.OK
    if measured.bound is not None and len(polled := measured.bound.reading.records) > 1:
        found = " = ".join(find_orders(polled, measured.shape)) or "unknown"
        yield "order of polls", found, f"in {count_of(len(polled), 'record')} with updated_since", State.OK


def _tell_cursor(measured: Measured) -> Iterator[_Row]:
    ends = [each for each in (*measured.pages, measured.future) if each is not None and each.page.next_cursor is None]
    if ends:
        yield "end of list", f"next_cursor is {end_of_list(ends[-1].envelope)}", "", State.OK
    else:
        yield "end of list", "unknown", "the probe did not reach the end", State.UNTOLD
    first = measured.pages[0]
    if first.page.next_cursor is None:
        return
    kind, why = guess_cursor(
        first.page.next_cursor,
        read=len(first.records),
        last=first.records[-1] if first.records else None,
        shape=measured.shape,
    )
    yield "cursor", f"{kind} (a hint)", why, State.NOTE if kind == "offset" else State.OK
    if measured.cursor_lost:
        yield "cursor reuse", "refused", f"{measured.cursor_lost}; a broken page restarts the run", State.NOTE
    elif measured.same_cursor is not None:
        keys, again = (measured.keys(each.records) for each in (measured.pages[1], measured.same_cursor))
        same = sum(earlier == later for earlier, later in zip(keys, again, strict=False))
        is_same = same == min(len(keys), len(again))  # one may have grown
        found, state = ("same page", State.OK) if is_same else ("another page", State.NOTE)
        yield "cursor reuse", found, f"{same} of {len(keys)} records at the same position", state
    keys = [key for each in measured.pages for key in set(measured.keys(each.records))]
    if shared := len(keys) - len(set(keys)):
        why = "the list changed during the read, or its order is not stable"
        yield "pages overlap", count_of(shared, "record"), why, State.NOTE


def _tell_since(measured: Measured) -> Iterator[_Row]:
    if not RESOURCES[measured.resource].polled:
        return
    if measured.future is not None and measured.future.records:
        evidence = f"the API returned {count_of(len(measured.future.records), 'record')} for a time a day ahead"
        yield "updated_since", "ignored", f"{evidence}; every poll reads the whole list", State.FAILS
    elif measured.bound is not None:
        yield from _tell_bound(measured, measured.bound)
    elif measured.future is not None:
        yield (
            "updated_since",
            "honoured",
            "the API returned nothing for a time a day ahead; the bound is unknown",
            State.OK,
        )


def _tell_bound(measured: Measured, bound: Bound) -> Iterator[_Row]:
    records = bound.reading.records
    older = [moment for each in records if (moment := measured.stamp_of(each)) is not None and moment < bound.moment]
    evidence = (
        f"asked for the time of the newest record, got {count_of(len(records), 'record')}, {len(older)} of them older"
    )
    if not older:
        yield "updated_since", "honoured", evidence, State.OK
    elif (grain := _cut_to(bound, min(older))) is not None:
        yield "updated_since", f"cut to whole {grain}", evidence, State.NOTE
    else:
        yield "updated_since", "ignored", f"{evidence}; every poll reads the whole list", State.FAILS
        return
    if _holds(measured, bound):
        yield "bound", "inclusive", "the API returned the record with exactly that time", State.OK
    elif bound.reading.page.next_cursor is None:
        yield (
            "bound",
            "exclusive",
            "the API left out the record with exactly that time; the lookback covers it",
            State.NOTE,
        )
    else:
        yield "bound", "unknown", "the record with exactly that time may be on a later page", State.UNTOLD
    if measured.finer is not None and not older:
        unit = {3: "ms", 6: "µs"}[measured.stamps().digits]  # type: ignore[union-attr]  # there are stamps: finer needs one
        if _holds(measured, measured.finer):
            yield (
                "precision of since",
                f"coarser than 1 {unit}",
                f"the API also returned it for 1 {unit} later",
                State.NOTE,
            )
        else:
            yield "precision of since", f"1 {unit}", f"the API left it out for 1 {unit} later", State.OK


def _cut_to(bound: Bound, oldest: datetime) -> str | None:
    """Return the coarsest part of the time that the API must have looked at, None where it looked at none."""
    return next(
        (grain for grain, length in _GRAINS.items() if oldest >= bound.moment - (bound.moment - EPOCH) % length), None
    )


def _holds(measured: Measured, bound: Bound) -> bool:
    """Tell whether the record that the bound was taken from came, as it was."""
    stamp = measured.stamp_of(bound.record)
    same = [each for each in bound.reading.records if measured.stamp_of(each) == stamp]
    return bool({*measured.keys([bound.record])} & {*measured.keys(same)})


def reread(measured: Measured) -> Rereading | None:
    """Return what the second reading of the first page showed; None where there was none."""
    if measured.shape is None or measured.again is None:
        return None
    return compare_readings(measured.pages[0].records, measured.again.records, measured.shape)


def _tell_rereading(measured: Measured) -> Iterator[_Row]:
    found = reread(measured)
    if found is None:
        return
    assert measured.again is not None
    elapsed = measured.again.response.sent_at - measured.pages[0].response.sent_at
    evidence = f"{count_of(found.compared, 'record')} read again {elapsed.total_seconds():.1f} s later"
    if not found.compared:
        yield "order when reread", "unknown", "no record was in both readings of the first page", State.NOTE
        return
    order = ("same", evidence, State.OK) if found.same_order else ("different", evidence, State.NOTE)
    yield "order when reread", *order
    for place, count in found.shuffled.items():
        yield "unordered", place, f"same elements in another order in {count} of {found.compared} records", State.NOTE
    stamp = measured.shape and measured.shape.updated_at
    while_still = f"{stamp} did not change" if stamp else "there was no timestamp to show it"
    volatile = found.volatile()
    for place, count in found.restless.items():
        told = f"differed in {count} of {found.compared} records while {while_still}"
        yield "volatile" if place in volatile else "silent change", place, told, State.NOTE
    if not found.shuffled and not found.restless:
        yield (
            "content when reread",
            "same",
            f"{found.still} the same, {found.moved} changed with their timestamp",
            State.OK,
        )


def _tell_filters(measured: Measured) -> Iterator[_Row]:
    if measured.by_default is not None:
        hidden = {*measured.keys(measured.records)} - {*measured.keys(measured.by_default.records)}
        whole = measured.at_end and measured.by_default.page.next_cursor is None
        listings = (measured.records, measured.by_default.records)
        idle, shown = (sum(pointer.resolve(each, ("status",)) == "inactive" for each in some) for some in listings)
        evidence = f"{idle} of {len(measured.records)} records with status=all are inactive, {shown} without it"
        if (idle and not shown) or (whole and hidden):
            yield "status=all", "shows more", evidence, State.OK
        else:
            yield "status=all", "no difference seen", evidence, State.OK if whole else State.UNTOLD
    for relation, members in measured.expanded.items():
        if members is None:
            yield f"expand={relation}", "refused", "", State.OK
        elif members:
            yield f"expand={relation}", "accepted", f"adds {', '.join(members[:_SHOWN_MOST])}", State.OK
        else:
            yield f"expand={relation}", "no effect seen", "accepted, but adds no field", State.OK


def _tell_signal(measured: Measured) -> Iterator[_Row]:
    found = measured.signal
    if found is not None and not found.is_told:
        yield "signal", "unknown", found.describe(), State.UNTOLD
    elif found is not None:
        yield "signal", found.pair.carrier if found.is_usable else "none", found.describe(), State.OK


def _tell_shipment(measured: Measured) -> Iterator[_Row]:
    if measured.details is not None:
        names = ", ".join(measured.details[:_SHOWN_MOST])
        yield "detail", f"{len(measured.details)} more fields", names or "same as in the listing", State.OK
    if (unknown := measured.unknown) is None:
        return
    said = f"{unknown.headers.get('content-type', 'no content type')}{excerpt(unknown)}"
    if unknown.status in NOT_FOUND:
        yield "unknown shipment", f"HTTP {unknown.status}", said, State.OK
    elif unknown.status >= _BROKEN:
        yield "unknown shipment", "unknown", f"HTTP {unknown.status}", State.UNTOLD
    else:
        evidence = f"{said}; neither 404 nor 410, so only passes can confirm a deletion"
        yield "unknown shipment", f"HTTP {unknown.status}", evidence, State.NOTE
