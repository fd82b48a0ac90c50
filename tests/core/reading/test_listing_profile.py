from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dockbell.core.model import ClockSource, Page
from dockbell.core.moment import from_micros, to_micros
from dockbell.core.reading.listing_profile import STEADY_RUNS, Beside, CursorKind, ListingProfile
from dockbell.core.reading.observations import OBSERVATIONS, Offset
from dockbell.core.reading.page_sample import RECORDS_LEAST, Head, Sampler, Sighting
from dockbell.core.reading.traits import TURNS_MOST, Trait

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOW = to_micros(NOON)
OLD = NOW - 30 * 86_400_000_000
SECOND, MILLISECOND, MINUTE = 1_000_000, 1_000, 60_000_000
FORMS = ("Z", "offset", "naive", "seconds", "milliseconds", "microseconds")


@dataclass(frozen=True)
class Api:
    """A listing, as it behaves."""

    envelope: str = "shipments"
    form: str = "Z"
    step: int = 7 * SECOND
    clock: ClockSource = ClockSource.DATE
    ahead: timedelta = timedelta(seconds=0)
    numbered: bool = False

    def stamp(self, micros: int) -> str | int:
        if self.form == "seconds":
            return micros // SECOND
        if self.form == "milliseconds":
            return micros // MILLISECOND
        if self.form == "microseconds":
            return micros
        text = from_micros(micros).replace(tzinfo=None).isoformat(timespec="auto")
        return text + {"Z": "Z", "offset": "+00:00", "naive": ""}[self.form]

    def page(self, rows: Sequence[tuple[int, int | None]]) -> Page:
        """Return a page of some records: number and date."""
        records = [
            {
                "id": number if self.numbered else f"shp_{number}",
                "updated_at": None if date is None else self.stamp(date),
                "created_at": self.stamp(OLD + number * SECOND),
            }
            for number, date in rows
        ]
        return Page(
            records=tuple(json.dumps(record).encode() for record in records),
            next_cursor=None,
            envelope=self.envelope,
            asked_at=NOON + self.ahead - timedelta(milliseconds=100),
            clock=self.clock,
            answered_at=NOON + self.ahead + timedelta(seconds=1),
            received_at=NOON + timedelta(milliseconds=200),
        )

    def rows(self, first: int = 100, count: int = 20, since: int = OLD) -> list[tuple[int, int | None]]:
        return [(first + place, since + (first + place) * self.step) for place in range(count)]

    def show(
        self,
        listing_profile: ListingProfile,
        rows: Sequence[tuple[int, int | None]] | None = None,
        *,
        sampler: Sampler | None = None,
        before: Head | None = None,
        polled: bool = False,
    ) -> tuple[ListingProfile, tuple[str, ...]]:
        """Observe one page."""
        rows = self.rows() if rows is None else rows
        keys = [str(number) if self.numbered else f"shp_{number}" for number, _ in rows]
        sighting = Sighting(sampler or SAMPLER, keys, [date for _, date in rows], polled, before)
        return listing_profile.observe(self.page(rows), sighting)


SAMPLER = Sampler(key=["/id"], updated_at="/updated_at")
USUAL = Api()


def learn(api: Api = USUAL, rows: Sequence[tuple[int, int | None]] | None = None) -> ListingProfile:
    return api.show(ListingProfile(), rows)[0]


def words(listing_profile: ListingProfile) -> dict[str, str]:
    return dict(listing_profile.describe())


def shuffled(rows: Sequence[tuple[int, int | None]], seed: int = 1) -> list[tuple[int, int | None]]:
    return random.Random(seed).sample(list(rows), len(rows))


# Learning ------------------------------------------------------------------------------------------------------------


def test_one_page_shows_all_traits() -> None:
    assert words(learn()) == {
        "envelope": '"shipments"',
        "key": "text",
        "timestamps": "written with Z",
        "dated": "every record",
        "precision": "whole seconds",
        "order": "updated_at, ascending",
        "service's time": "from Date",
        "service's clock": "0 s ahead of the local clock",
        "records' clock": "at most 2,591,168 s behind the service's, going by the newest timestamp",
    }


def test_a_page_that_says_nothing_new_gives_the_very_same_object() -> None:
    known = learn()
    again, drifts = USUAL.show(known)
    assert again is known
    assert drifts == ()


def test_an_empty_page_says_nothing() -> None:
    assert USUAL.show(ListingProfile(), []) == (ListingProfile(), ())


def test_of_a_few_records_only_that_is_learned_which_does_not_depend_on_them() -> None:
    known = learn(rows=USUAL.rows(count=RECORDS_LEAST - 1))
    assert set(words(known)) == {"envelope", "service's time", "service's clock"}


@pytest.mark.parametrize(
    ("beside", "refused", "told"),
    [
        (Beside.LIMIT, "filters", "sent for the first page only: the API accepts a cursor alone"),
        (Beside.NOTHING, "a limit", "sent for the first page only, like the limit: the API accepts a cursor alone"),
    ],
)
def test_that_cursors_are_sent_alone_is_kept_and_shown(beside: Beside, refused: str, told: str) -> None:
    known, drifts = learn().turn_beside_cursor(beside)
    assert drifts == (f"the API refuses a cursor with {refused}, and returns the same pages for the cursor alone",)
    assert words(known)["filters"] == told
    assert ListingProfile.from_json(known.to_json()) == known
    assert USUAL.show(known)[0].beside_cursor is beside
    assert known.turn_beside_cursor(Beside.FILTERS)[0] == learn()


def test_each_observation_fills_a_member_of_the_profile_and_says_nothing_while_that_is_unknown() -> None:
    fields = [each.field for each in OBSERVATIONS]
    assert len(set(fields)) == len(fields)
    assert not any(each.describe(getattr(ListingProfile(), each.field)) for each in OBSERVATIONS if each.name)


def test_nothing_known_is_nothing_to_store_or_to_tell() -> None:
    assert ListingProfile().to_json() == ""
    assert ListingProfile().describe() == []
    assert ListingProfile.from_json("") == ListingProfile()


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_timestamps_is_learned(form: str) -> None:
    assert learn(dataclasses.replace(USUAL, form=form)).form.value == form


def test_a_feed_without_timestamps_has_no_traits_of_them() -> None:
    known, _ = USUAL.show(
        ListingProfile(), [(number, None) for number in range(100, 120)], sampler=Sampler(key=["/id"], updated_at=None)
    )
    assert (known.form, known.dated, known.unit, known.skew) == (Trait(), Trait(), Trait(), None)


def test_a_composite_key_has_a_kind_for_each_part() -> None:
    sampler = Sampler(key=["/id", "/created_at"], updated_at=None)
    assert dataclasses.replace(USUAL, numbered=True).show(ListingProfile(), sampler=sampler)[0].key == Trait(
        "integer, text"
    )


def test_records_whose_key_is_neither_text_nor_a_number_say_nothing_of_it() -> None:
    assert USUAL.show(ListingProfile(), sampler=Sampler(key=["/name"], updated_at=None))[0].key == Trait()


# Drift ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "drift"),
    [
        (dataclasses.replace(USUAL, envelope="data"), 'the records\' array was "shipments" and is now "data"'),
        (dataclasses.replace(USUAL, form="naive"), "timestamps were written with Z and are now written without a zone"),
        (
            dataclasses.replace(USUAL, form="seconds"),
            "timestamps were written with Z and are now written as seconds since 1970",
        ),
        (dataclasses.replace(USUAL, numbered=True), "keys were text and are now integer"),
        (
            dataclasses.replace(USUAL, ahead=timedelta(seconds=3601)),
            "the service's clock was 0 s ahead of the local clock and is now 3,601 s ahead of the local clock",
        ),
        (
            dataclasses.replace(USUAL, ahead=timedelta(seconds=-3601)),
            "the service's clock was 0 s ahead of the local clock and is now 3,601 s behind the local clock",
        ),
        (
            dataclasses.replace(USUAL, clock=ClockSource.LOCAL),
            "the service's time was taken from Date and is now taken from the local clock",
        ),
    ],
)
def test_a_page_that_contradicts_a_trait_is_told_once(other: Api, drift: str) -> None:
    turned, drifts = other.show(learn())
    assert drifts == (drift,)
    assert other.show(turned) == (turned, ())


def test_a_page_of_one_record_is_enough_to_contradict_a_trait() -> None:
    _, drifts = dataclasses.replace(USUAL, form="offset").show(learn(), USUAL.rows(count=1))
    assert drifts == ("timestamps were written with Z and are now written with an offset",)


def test_what_changes_again_and_again_is_told_a_few_times_and_then_varies() -> None:
    known = learn()
    told: list[str] = []
    for round_ in range(20):
        known, drifts = dataclasses.replace(USUAL, form="naive" if round_ % 2 == 0 else "Z").show(known)
        told += drifts
    assert len(told) == TURNS_MOST + 1
    assert told[-1].endswith("; it keeps changing, and dockbell stops reporting it")
    assert words(known)["timestamps"].startswith("varies")


def test_a_clock_that_leaps_again_and_again_is_told_a_few_times() -> None:
    known = learn()
    told: list[str] = []
    for round_ in range(20):
        known, drifts = dataclasses.replace(USUAL, ahead=timedelta(hours=round_ % 2 + 1)).show(known)
        told += drifts
    assert len(told) == TURNS_MOST + 1
    assert told[-1].endswith("stops reporting it")


def test_a_clock_that_creeps_within_a_minute_is_no_drift() -> None:
    known = learn()
    assert dataclasses.replace(USUAL, ahead=timedelta(seconds=58)).show(known) == (known, ())


def test_records_of_one_page_that_differ_in_form_are_written_in_several_ways() -> None:
    page = USUAL.page(USUAL.rows())
    mixed = replace(
        page, records=(*page.records[:-1], dataclasses.replace(USUAL, form="naive").page(USUAL.rows()).records[-1])
    )
    rows = USUAL.rows()
    sighting = Sighting(SAMPLER, [f"shp_{number}" for number, _ in rows], [date for _, date in rows])
    known, drifts = learn().observe(mixed, sighting)
    assert drifts == ("timestamps were written with Z and are now written in several ways",)
    assert USUAL.show(known) == (known, ())


def test_a_stamp_that_states_no_time_says_nothing_of_the_form() -> None:
    page = USUAL.page(USUAL.rows())
    broken = replace(page, records=tuple(record.replace(b"2026-", b"MMXX-") for record in page.records))
    assert broken.records != page.records
    known, _ = ListingProfile().observe(broken, Sighting(SAMPLER, ["a"] * 20, [None] * 20))
    assert known.form == Trait()
    assert words(known)["dated"] == "no record"


def test_records_that_lose_their_timestamps_are_told_once() -> None:
    rows = [(number, None if number % 5 else date) for number, date in USUAL.rows()]
    known, drifts = USUAL.show(learn(), rows)
    assert drifts == ("every record had a timestamp, and now 16 of 20 have none",)
    assert words(known)["dated"] == "some records"
    assert USUAL.show(known) == (known, ())


def test_records_that_get_timestamps_are_no_drift() -> None:
    known = learn(rows=[(number, None) for number in range(100, 120)])
    assert known.dated == Trait("none")
    again, drifts = USUAL.show(known)
    assert drifts == ()
    assert again.dated == Trait("mixed")
    few, _ = USUAL.show(ListingProfile(), [(1, None)])
    assert few.dated == Trait()


# Precision -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "unit"),
    [
        (86_400 * SECOND, timedelta(days=1)),
        (MINUTE, timedelta(minutes=1)),
        (SECOND, timedelta(seconds=1)),
        (MILLISECOND, timedelta(milliseconds=1)),
        (1, timedelta(microseconds=1)),
    ],
)
def test_precision_is_the_coarsest_unit_in_which_all_timestamps_are_whole(step: int, unit: timedelta) -> None:
    midnight = to_micros(datetime(2026, 1, 1, tzinfo=UTC))
    assert learn(rows=[(number, midnight + number * step) for number in range(1, 21)]).precision == unit


def test_precision_is_a_second_until_ten_different_timestamps_were_seen() -> None:
    known = learn(rows=[(number, OLD - OLD % MINUTE) for number in range(20)])
    assert known.unit == Trait()
    assert known.precision == timedelta(seconds=1)


def test_old_timestamps_only_make_the_precision_finer_and_that_is_no_drift() -> None:
    minutes, seconds = USUAL.rows(), dataclasses.replace(USUAL, step=SECOND).rows()
    minutes = [(number, None if date is None else date - date % MINUTE + number * MINUTE) for number, date in minutes]
    known = learn(rows=minutes)
    assert known.precision == timedelta(minutes=1)
    finer, drifts = USUAL.show(known, seconds)
    assert (finer.precision, drifts) == (timedelta(seconds=1), ())
    assert USUAL.show(finer, minutes)[0].precision == timedelta(seconds=1)


def recent(step: int, extra: int = 0) -> list[tuple[int, int | None]]:
    """Return records dated within the last minutes, whole in a unit."""
    start = NOW - NOW % step - 20 * step
    return [(number, start + number * step + extra) for number in range(20)]


def test_what_happens_now_outweighs_what_was_imported_long_ago() -> None:
    known = learn()
    assert known.precision == timedelta(seconds=1)
    now, drifts = USUAL.show(known, recent(MINUTE))
    assert (now.precision, drifts) == (timedelta(minutes=1), ())
    assert USUAL.show(now)[0].precision == timedelta(minutes=1), "old ones do not count any more"


def test_coarser_timestamps_of_the_last_hour_are_a_drift() -> None:
    known = learn(rows=recent(SECOND, extra=123 * MILLISECOND))
    assert known.precision == timedelta(milliseconds=1)
    few, drifts = USUAL.show(known, recent(SECOND)[:5])
    assert (few, drifts) == (known, ()), "a few may be round by chance"
    coarser, drifts = USUAL.show(known, recent(SECOND))
    assert drifts[0] == "timestamps were whole milliseconds and are now whole seconds"
    assert coarser.precision == timedelta(seconds=1)


def test_one_finer_timestamp_of_the_last_hour_is_a_drift() -> None:
    known = learn(rows=recent(SECOND))
    finer, drifts = USUAL.show(known, [(19, NOW - 1)])
    assert drifts == ("timestamps were whole seconds and are now whole microseconds",)
    assert finer.precision == timedelta(microseconds=1)


def test_a_precision_that_varies_is_as_coarse_as_its_coarsest() -> None:
    known = learn(rows=recent(SECOND))
    for _ in range(TURNS_MOST + 3):
        known, _ = USUAL.show(known, recent(SECOND, extra=MILLISECOND))
        known, _ = USUAL.show(known, recent(SECOND))
    assert known.unit.varies
    assert known.precision == timedelta(seconds=1)


@given(
    st.lists(st.lists(st.integers(0, 10**6), min_size=12, max_size=20, unique=True), min_size=1, max_size=4),
    st.sampled_from([1, MILLISECOND, SECOND, MINUTE]),
    st.randoms(use_true_random=False),
)
def test_the_precision_of_old_timestamps_does_not_depend_on_the_order_of_the_pages(
    pages: list[list[int]], step: int, chance: random.Random
) -> None:
    def read(pages: list[list[int]]) -> ListingProfile:
        known = ListingProfile()
        for page in pages:
            known, _ = USUAL.show(known, [(at, (at + 10**6) * step) for at in page])
        return known

    other = list(pages)
    chance.shuffle(other)
    assert read(pages).precision == read(other).precision


# The records' clock --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-400 * 86_400, 86_000), min_size=1, max_size=30))
def test_the_skew_is_a_bound_within_a_factor_of_two(seconds: list[int]) -> None:
    """Whatever the order of the pages, and however small their steps."""
    known, stored = learn(rows=[(number, OLD - 500 * 86_400 * SECOND + number) for number in range(20)]), 0
    answered = NOW + SECOND
    for ahead in seconds:
        again, _ = USUAL.show(known, [(1, answered + ahead * SECOND)])
        stored += again.skew != known.skew
        known = again
    assert known.skew is not None
    assert known.skew <= max(seconds)
    best = max(seconds)
    assert known.skew * 2 >= best if best >= 0 else known.skew >= 2 * best
    assert stored <= 60


def test_a_record_dated_2099_says_nothing_of_the_clock() -> None:
    planned = to_micros(datetime(2099, 1, 1, tzinfo=UTC))
    rows = USUAL.rows()
    assert learn(rows=[*rows, (999, planned)]).skew == learn(rows=rows).skew


def test_a_clock_that_is_ahead_is_shown() -> None:
    known = learn(rows=recent(SECOND, extra=3600 * SECOND))
    assert words(known)["records' clock"] == "at least 3,598 s ahead of the service's"


def test_nothing_is_told_of_our_clock_where_the_service_does_not_tell_its_own() -> None:
    assert learn(dataclasses.replace(USUAL, clock=ClockSource.RESET)).offset is None


# Order ---------------------------------------------------------------------------------------------------------------


def test_the_order_is_what_remains_when_a_page_breaks_the_likelier() -> None:
    known = learn()
    edited = [(number, date + place * 17 % 5 * 1000 * SECOND) for place, (number, date) in enumerate(learnable())]
    again, drifts = USUAL.show(known, edited)
    assert drifts == ()
    assert words(again)["order"] == "the key, ascending"


def learnable() -> Iterator[tuple[int, int]]:
    return ((number, date) for number, date in USUAL.rows() if date is not None)


def test_a_list_that_leaves_its_order_is_told_once_and_looked_at_no_more() -> None:
    known, drifts = USUAL.show(learn(), shuffled(USUAL.rows()))
    assert drifts == ("the list was ordered by updated_at, ascending, and no longer is",)
    assert words(known)["order"] == "none"
    assert USUAL.show(known) == (known, ())


def test_a_short_page_out_of_order_leaves_the_order_to_be_learned_again() -> None:
    known, drifts = USUAL.show(learn(), USUAL.rows(count=3)[::-1])
    assert len(drifts) == 1
    assert "order" not in words(known)
    again, drifts = USUAL.show(known, USUAL.rows()[::-1])
    assert drifts == ()
    assert again.order == Trait("-updated -key -number", 1)


def test_polls_may_be_ordered_otherwise_than_the_whole_list() -> None:
    known, drifts = USUAL.show(learn(), USUAL.rows()[::-1], polled=True)
    assert drifts == ()
    assert words(known)["order of polls"] == "updated_at, descending"
    _, drifts = USUAL.show(known, USUAL.rows(), polled=True)
    assert drifts == ("the list of polls was ordered by updated_at, descending, and no longer is",)


def test_keys_may_be_ordered_as_numbers() -> None:
    numbered = dataclasses.replace(USUAL, numbered=True)
    rows = [
        (number, date) for (number, _), (_, date) in zip(numbered.rows(90), shuffled(numbered.rows(90)), strict=True)
    ]
    known, _ = numbered.show(ListingProfile(), rows)
    assert words(known)["order"] == "the key's number, ascending"
    assert numbered.show(known, rows)[0] is known
    after = numbered.show(known, rows, before=Head("9", None))
    assert after == (known, ())


def test_a_list_in_the_order_of_creation_is_told_from_one_in_none() -> None:
    sampler = Sampler(key=["/id"], updated_at="/updated_at", created_at="/created_at")
    page = USUAL.page(
        [(number, date) for (number, _), (_, date) in zip(USUAL.rows(), shuffled(USUAL.rows()), strict=True)]
    )
    dates = [date for _, date in shuffled(USUAL.rows())]
    keys = [f"shp_{number}" for number, _ in shuffled(USUAL.rows(), seed=2)]
    sighting = Sighting(sampler, keys, dates)
    known, _ = ListingProfile().observe(page, sighting)
    assert words(known)["order"] == "created_at, ascending"
    assert known.observe(page, sighting)[0] is known
    _, drifts = known.observe(replace(page, records=page.records[::-1]), sighting)
    assert drifts == ("the list was ordered by created_at, ascending, and no longer is",)


def test_a_page_whose_dates_are_all_the_same_teaches_no_order() -> None:
    assert learn(rows=[(number, OLD) for number in range(100, 120)]).order == Trait()


@pytest.mark.parametrize("direction", [1, -1])
def test_pages_that_shift_are_still_in_order_and_pages_that_jump_back_are_not(direction: int) -> None:
    rows = USUAL.rows(count=60)[::direction]
    known = learn(rows=rows[:20])
    first = Head(f"shp_{rows[20][0]}", rows[20][1])
    assert USUAL.show(known, rows[30:50], before=first) == (known, ()), "half of it was on the page before"
    _, drifts = USUAL.show(known, rows[10:30], before=first)
    assert len(drifts) == 1


def test_a_sighting_tells_how_its_page_begins() -> None:
    assert Sighting(SAMPLER, ["a", "b"], [None, 7]).head == Head("a", 7)
    assert Sighting(SAMPLER, [], []).head == Head(None, None)


def test_an_order_whose_column_is_gone_is_kept_by_every_page() -> None:
    known = ListingProfile(order=Trait("created"))
    assert USUAL.show(known, USUAL.rows(count=1))[0].order == Trait("created")


# Cursors -------------------------------------------------------------------------------------------------------------


def runs(count: int, known: ListingProfile | None = None) -> ListingProfile:
    known = known or ListingProfile()
    for _ in range(count):
        known, drifts = known.end_run(pages=3, repeated=0, complete=True)
        assert drifts == ()
    return known


def test_many_runs_without_a_repeat_show_steady_cursors() -> None:
    known = runs(STEADY_RUNS - 1)
    assert known.cursors is CursorKind.UNKNOWN
    assert words(known) == {"cursors": f"unknown: {STEADY_RUNS - 1} runs of several pages so far"}
    steady = runs(1, known)
    assert steady.cursors is CursorKind.STEADY
    assert words(steady)["cursors"].startswith("steady")
    assert runs(1, steady) is steady


def test_runs_of_one_page_and_incomplete_ones_show_nothing_of_cursors() -> None:
    known = ListingProfile()
    assert known.end_run(pages=1, repeated=0, complete=True)[0] is known
    assert known.end_run(pages=9, repeated=0, complete=False)[0] is known


def test_a_repeat_shows_drifting_cursors_for_good() -> None:
    known, drifts = runs(1).end_run(pages=9, repeated=14, complete=False)
    assert drifts == (), "nothing had been said of them"
    assert known.cursors is CursorKind.DRIFTING
    assert words(known)["cursors"] == "drifting: a run showed 14 records twice"
    assert runs(1, known) is known


def test_steady_cursors_that_begin_to_drift_are_told() -> None:
    _, drifts = runs(STEADY_RUNS).end_run(pages=9, repeated=14, complete=True)
    assert drifts == ("runs of several pages showed no record twice, and now one showed 14 twice",)


# Whatever comes ------------------------------------------------------------------------------------------------------

habits_of_habit = st.builds(Trait, st.text(max_size=20), st.integers(0, 9))
any_habits = st.builds(
    ListingProfile,
    envelope=habits_of_habit,
    key=habits_of_habit,
    form=habits_of_habit,
    dated=habits_of_habit,
    unit=habits_of_habit,
    fresh=st.booleans(),
    order=habits_of_habit,
    poll_order=habits_of_habit,
    clock=habits_of_habit,
    offset=st.none() | st.builds(Offset, st.integers(-(2**62), 2**62), st.integers(0, 9)),
    skew=st.none() | st.integers(-(2**62), 2**62),
    clean_runs=st.integers(0, 20),
    repeated=st.integers(0, 20),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["2026-01-01T00:00:00Z", 1_700_000_000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
raw_records = st.binary(max_size=30) | st.dictionaries(
    st.sampled_from(["id", "updated_at", "created_at"]), json_values
).map(lambda record: json.dumps(record).encode())


@given(any_habits)
def test_what_is_stored_is_known_again(listing_profile: ListingProfile) -> None:
    assert ListingProfile.from_json(listing_profile.to_json()) == listing_profile


@given(st.text() | json_values.map(json.dumps) | st.just('{"envelope": ["\ud800"]}') | st.just('{"skew": "x"}'))
def test_what_cannot_be_read_is_nothing_known(text: str) -> None:
    assert ListingProfile.from_json(text) == ListingProfile()


@example(
    known=ListingProfile(poll_order=Trait(" ")),
    records=[b"{}"],
    envelope="",
    keys=[],
    dates=[],
    clock=ClockSource.DATE,
    polled=True,
    before=None,
)
@given(
    known=any_habits | st.just(ListingProfile()),
    records=st.lists(raw_records, min_size=1, max_size=15),
    envelope=st.text(max_size=300),
    keys=st.lists(st.text(max_size=10), max_size=15),
    dates=st.lists(st.none() | st.integers(-(2**63), 2**63), max_size=15),
    clock=st.sampled_from(ClockSource),
    polled=st.booleans(),
    before=st.none() | st.builds(Head, st.none() | st.text(max_size=5), st.none() | st.integers()),
)
def test_no_page_raises_and_what_is_stored_of_it_is_small(
    *,
    known: ListingProfile,
    records: list[bytes],
    envelope: str,
    keys: list[str],
    dates: list[int | None],
    clock: ClockSource,
    polled: bool,
    before: Head | None,
) -> None:
    page = replace(USUAL.page([]), records=tuple(records), envelope=envelope, clock=clock)
    sampler = Sampler(key=["/id", "/updated_at"], updated_at="/updated_at", created_at="/created_at/0")
    sighting = Sighting(sampler, keys, dates, polled, before)
    again, drifts = known.observe(page, sighting)
    assert all(len(drift) < 400 for drift in drifts)
    assert all(words for _, words in again.describe())
    assert len(ListingProfile().observe(page, sighting)[0].to_json()) < 1200


@given(
    api=st.builds(
        Api,
        envelope=st.sampled_from(["shipments", "data", "Stock levels", "x" * 500, "\x00\n"]),
        form=st.sampled_from(FORMS),
        step=st.sampled_from([SECOND, MINUTE, 7 * SECOND]),
        clock=st.sampled_from(ClockSource),
        ahead=st.integers(-90_000, 90_000).map(lambda seconds: timedelta(seconds=seconds)),
        numbered=st.booleans(),
    ),
    numbers=st.lists(st.integers(1, 2000), min_size=30, max_size=60, unique=True),
    order=st.sampled_from(["updated", "-updated", "number", "-number", "none"]),
    size=st.integers(10, 30),
    base=st.sampled_from([OLD, NOW - 30 * MINUTE]),
    seed=st.integers(0, 2**32),
)
def test_no_constant_behaviour_is_called_a_drift(
    *, api: Api, numbers: list[int], order: str, size: int, base: int, seed: int
) -> None:
    chance = random.Random(seed)
    chance.shuffle(numbers)
    dates = {number: base + chance.randrange(10_000) * api.step for number in numbers}
    if order.endswith("number"):
        numbers.sort(reverse=order[0] == "-")
    elif order.endswith("updated"):
        numbers.sort(key=dates.__getitem__, reverse=order[0] == "-")
    known = ListingProfile()
    for _ in range(2):
        before = None
        for place in range(0, len(numbers), size):
            rows = [(number, dates[number]) for number in numbers[place : place + size]]
            known, drifts = api.show(known, rows, before=before)
            assert drifts == ()
            before = Head(str(rows[0][0]) if api.numbered else f"shp_{rows[0][0]}", rows[0][1])
    assert ListingProfile.from_json(known.to_json()) == known
