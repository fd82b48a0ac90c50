from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.core.comparing import known_pages
from dockbell.core.comparing.known_pages import BYTES_MOST, PROBED, KnownPages, Lookup
from dockbell.core.comparing.page_diff import Bad, Finding, Note, PageDiff, Write
from dockbell.core.model import DIGEST_SIZE

ROWS = st.lists(st.integers(1, 1 << 40), min_size=1, unique=True)


def text_of(row: int, version: int = 0) -> bytes:
    """Return the hash of what a record shows."""
    return row.to_bytes(DIGEST_SIZE - 1) + bytes([version + 1])


def date_of(row: int) -> int | None:
    return row * 1000 if row % 2 else None


def shows(*rows: int, but: Collection[int] = ()) -> PageDiff:
    """Return what a page comes to that shows some rows as they are stored, but for some."""
    return PageDiff(
        seen=list(rows),
        dates={f"k{row}": date_of(row) for row in rows},
        as_stored={f"k{row}": row for row in rows if row not in but},
    )


def look(pages: KnownPages, *rows: int, changed: Collection[int] = ()) -> Lookup:
    return pages.look([text_of(row, row in changed) for row in rows])


def learn(pages: KnownPages, *rows: int) -> None:
    assert pages.take(look(pages, *rows), shows(*rows))


def find_rows(pages: KnownPages, *rows: int) -> Sequence[int] | None:
    """Return what a page shows of which all is known."""
    known = look(pages, *rows).page_diff
    return None if known is None else known.seen


def known_records(lookup: Lookup) -> Mapping[bytes, tuple[str, int, int | None]]:
    """Return what is known of a page: key, row and timestamp of records, by the hashes of their texts."""
    known = lookup.known()
    if known is None:
        return {}
    assert list(known.others) == sorted(known.others)
    texts = [text for place, text in enumerate(lookup.shown) if place not in known.others]
    return dict(zip(texts, zip(known.keys, known.rows, known.dates, strict=True), strict=True))


def known_rows(lookup: Lookup) -> Mapping[bytes, int]:
    return {text: row for text, (_, row, _) in known_records(lookup).items()}


@given(ROWS)
def test_a_page_that_comes_as_it_is_stored_comes_to_the_same_again(rows: list[int]) -> None:
    pages = KnownPages()
    learn(pages, *rows)
    known = look(pages, *rows).page_diff
    assert known is not None
    assert known.seen == rows
    assert list(known.dates.items()) == list(shows(*rows).dates.items())
    assert known.is_idle
    assert look(pages, *rows, rows[0] + (1 << 41)).page_diff is None
    assert look(pages, *rows[1:], rows[0] + (1 << 41)).page_diff is None


@given(ROWS, st.data())
def test_of_a_page_that_shows_changes_the_other_records_are_known(rows: list[int], data: st.DataObject) -> None:
    changed = data.draw(st.sets(st.sampled_from(rows)))
    pages = KnownPages()
    learn(pages, *rows)
    lookup = look(pages, *rows, changed=changed)
    resembles = not {rows[0], rows[-1]} <= changed  # else it cannot be found
    known = {text_of(row): (f"k{row}", row, date_of(row)) for row in rows if row not in changed}
    assert known_records(lookup) == (known if resembles and changed else {})
    assert (lookup.page_diff is None) == bool(changed)
    page_diff = shows(*rows, but=changed)
    page_diff.notes += [Note(f"k{row}", Finding.UPDATED) for row in changed]
    if changed:
        pages.forget(changed)
    assert pages.take(lookup, page_diff)
    again = look(pages, *rows, changed=changed)
    assert known_rows(again) == {text_of(row): row for row in rows if row not in changed and changed}


def written(page_diff: PageDiff, *rows: int, raw_hash: bytes | None = None) -> PageDiff:
    """Let a page come to changes of some of its rows."""
    page_diff.writes += [
        Write(row, f"k{row}", raw_hash or text_of(row, 1), b"content", date_of(row), 1, b"{}") for row in rows
    ]
    return page_diff


@given(ROWS, st.data())
def test_records_that_were_written_as_the_page_shows_them_are_known(rows: list[int], data: st.DataObject) -> None:
    changed = data.draw(st.sets(st.sampled_from(rows), min_size=1))
    pages = KnownPages()
    learn(pages, *rows)
    lookup = look(pages, *rows, changed=changed)
    pages.forget(changed)
    assert pages.take(lookup, written(shows(*rows, but=changed), *changed))
    assert look(pages, *rows, changed=changed).page_diff == PageDiff(seen=rows, dates=shows(*rows).dates)


def test_records_that_were_written_otherwise_than_the_page_shows_them_or_are_new_are_not_known() -> None:
    pages = KnownPages()
    page_diff = written(shows(1, 2, 3, but=[1, 2]), 1, raw_hash=b"mark")
    page_diff.writes.append(Write(None, "k2", text_of(2), b"content", None, 0, b"{}"))
    lookup = look(pages, 1, 2, 3)
    pages.forget([1])
    assert pages.take(lookup, page_diff)
    again = look(pages, 1, 2, 3)
    assert (again.page_diff, known_rows(again)) == (None, {text_of(3): 3})


def test_the_timestamps_of_a_page_are_those_that_it_showed_last() -> None:
    pages = KnownPages()
    learn(pages, 1, 2, 3, 4)
    lookup = look(pages, 1, 2, 3, 4, changed=[1, 2])
    page_diff = written(shows(1, 2, 3, 4, but=[1, 2]), 1, 2)
    page_diff.dates |= {"k1": None, "k2": 7}
    pages.forget([1, 2])
    assert pages.take(lookup, page_diff)
    assert look(pages, 1, 2, 3, 4, changed=[1, 2]).page_diff == PageDiff(seen=[1, 2, 3, 4], dates=page_diff.dates)


def test_a_page_is_found_by_the_first_or_the_last_of_the_records_that_it_showed_last() -> None:
    pages = KnownPages()
    learn(pages, 1, 2, 3)
    for changed, new in (([1], 1), ([1, 3], 3), ([3], 1)):  # the first changes, then the last, then the first again
        lookup = look(pages, 1, 2, 3, changed=changed)
        assert known_rows(lookup)
        pages.forget([new])
        assert pages.take(lookup, written(shows(1, 2, 3, but=[new]), new))


def test_records_that_others_have_moved_on_a_page_are_known() -> None:
    pages = KnownPages()
    learn(pages, *range(1, 50))
    assert {*known_rows(look(pages, 1, 99, *range(2, 49))).values()} == {*range(1, 49)}


@pytest.mark.parametrize("old", [1, 0])
def test_a_record_that_gets_a_row_or_another_one_is_forgotten_by_that(old: int) -> None:
    pages = KnownPages()
    assert pages.take(look(pages, 1, 2, 3, 4), shows(1, 2, 3, 4, but=[] if old else [1]))
    pages.forget([1])
    lookup = look(pages, 1, 2, 3, 4)
    page_diff = shows(1, 2, 3, 4)
    page_diff.as_stored["k1"] = 9
    assert pages.take(lookup, page_diff)
    assert find_rows(pages, 1, 2, 3, 4) == [9, 2, 3, 4]
    pages.forget([9])
    assert known_rows(look(pages, 1, 2, 3, 4)) == {text_of(row): row for row in (2, 3, 4)}


def test_a_page_with_a_record_that_has_no_key_of_its_own_or_without_stored_records_is_not_known() -> None:
    pages = KnownPages()
    bad = shows(1, 2)
    bad.bad.append(Bad(b"digest", "k3", "key k3: appears twice", b"{}"))
    for found in (shows(1), shows(1, 2, but=[1, 2]), bad):
        lookup = look(pages, 1, 2)
        if not found.is_idle:
            pages.forget([])
        assert pages.take(lookup, found)
        assert known_rows(look(pages, 1, 2)) == {}


@given(
    st.lists(st.sets(st.integers(1, 30), min_size=1), min_size=1, max_size=8),
    st.lists(st.sets(st.integers(1, 30)), max_size=4),
)
def test_records_that_were_written_are_not_known_any_more(shown: list[set[int]], written: list[set[int]]) -> None:
    pages = KnownPages()
    for rows in shown:
        learn(pages, *rows)
    for rows in written:
        pages.forget(rows)
    gone = set().union(*written)
    for rows in shown:
        lookup = look(pages, *rows)
        known = known_rows(lookup)
        assert gone.isdisjoint(known.values())
        assert all(text == text_of(row) for text, row in known.items())
        assert lookup.page_diff is None or gone.isdisjoint(rows)
    lookup = look(pages, *shown[-1])
    assert (lookup.page_diff is not None) == gone.isdisjoint(shown[-1])
    assert lookup.page_diff is not None or set(known_rows(lookup).values()) >= shown[-1] - gone


@given(ROWS, st.data(), st.sampled_from([1, 1000]))
def test_however_many_records_are_written_at_once_in_whatever_order_their_page_shows_them(
    rows: list[int], data: st.DataObject, others: int
) -> None:
    gone = data.draw(st.sets(st.sampled_from(rows)))
    pages = KnownPages()
    learn(pages, *rows)
    pages.forget([*gone, *range(1 << 41, (1 << 41) + others)])
    known = known_rows(look(pages, *rows, (1 << 41) - 1))
    assert set(known.values()) == {*rows} - gone


def test_of_a_part_of_a_known_page_all_is_known_and_the_whole_stays_so() -> None:
    """A poll may ask for its window's end only, and a pass asks for the last page again, with a limit of one less."""
    pages = KnownPages()
    learn(pages, 1, 2, 3, 4)
    for _ in range(3):
        for rows in ([1, 2, 3, 4], [1, 2, 3], [3, 4], [4]):
            assert find_rows(pages, *rows) == rows
            assert look(pages, *rows).page_diff == PageDiff(seen=rows, dates=shows(*rows).dates)
    assert find_rows(pages, 1, 1) is None  # one record twice


def test_what_was_compared_before_something_was_written_is_not_taken_for_known() -> None:
    pages = KnownPages()
    lookup = look(pages, 1)
    pages.forget([7])
    assert pages.take(lookup, shows(1))
    assert find_rows(pages, 1) is None
    pages.clear()
    learn(pages, 1)
    assert find_rows(pages, 1) == [1]


@pytest.mark.parametrize("write", [lambda pages: pages.forget([7]), lambda pages: pages.clear()])
def test_what_was_looked_up_before_something_was_written_is_not_known(write: Callable[[KnownPages], None]) -> None:
    pages = KnownPages()
    learn(pages, 1, 2)
    lookup = look(pages, 1, 2, changed=[2])
    assert known_rows(lookup) == {text_of(1): 1}
    write(pages)
    assert lookup.known() is None


def test_what_a_whole_pass_did_not_show_is_forgotten() -> None:
    pages = KnownPages()
    learn(pages, 1)
    learn(pages, 2)
    pages.end_pass()
    assert find_rows(pages, 1) == [1]
    pages.end_pass()
    assert (find_rows(pages, 1), find_rows(pages, 2)) == ([1], None)


def test_what_the_last_three_polls_did_not_show_is_forgotten() -> None:
    pages = KnownPages()
    learn(pages, 1)
    learn(pages, 2)
    for _ in range(3):
        pages.begin_poll()
        assert find_rows(pages, 1) == [1]
    pages.begin_poll()
    assert (find_rows(pages, 1), find_rows(pages, 2)) == ([1], None)


def test_they_take_no_more_room_than_they_may() -> None:
    pages = KnownPages()
    shown = [range(200 * number + 1, 200 * number + 201) for number in range(5000)]
    for rows in shown:
        learn(pages, *rows)
    known = sum(look(pages, *rows).page_diff is not None for rows in shown)
    assert BYTES_MOST // 12_000 < known < BYTES_MOST // 7_000
    for rows in shown[:known]:
        pages.take(look(pages, *rows), shows(*rows))  # takes the room of what it was before
    assert sum(look(pages, *rows).page_diff is not None for rows in shown) == known
    pages.end_pass()
    pages.end_pass()
    learn(pages, 1)
    assert find_rows(pages, 1) == [1]


def test_a_page_takes_the_place_of_those_that_it_resembles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1000)
    pages = KnownPages(2500)
    for last in range(3, 60):  # more than there is room for
        learn(pages, 1, 2, last)
        assert find_rows(pages, 1, 2, last) == [1, 2, last]
    for first in range(3, 60):
        learn(pages, first, 2, 1)
        assert find_rows(pages, first, 2, 1) == [first, 2, 1]


def test_now_and_then_all_of_a_known_page_is_looked_up_all_the_same() -> None:
    pages = KnownPages()
    for _ in range(10):
        learn(pages, 1)
        count = 0
        while find_rows(pages, 1) == [1]:
            learn(pages, 2)  # whatever else comes between
            count += 1
        assert PROBED // 2 <= count < PROBED


def test_a_page_that_changes_each_time_is_looked_up_now_and_then_too() -> None:
    pages = KnownPages()
    learn(pages, 1, 2)
    for _ in range(PROBED):
        lookup = look(pages, 1, 2, changed=[2])
        if lookup.is_probe:
            assert lookup.known() is None
            break
        page_diff = shows(1, 2, but=[2])
        page_diff.notes.append(Note("k2", Finding.UPDATED))
        pages.forget([2])
        assert pages.take(lookup, page_diff)
    else:
        pytest.fail("it was never looked up")


QUIET = PageDiff(
    seen=[1, 2], dates=shows(1, 2).dates, as_stored={"k2": 2}, notes=[Note("k1", Finding.QUIET)]
)  # the text of the first is stored otherwise


@pytest.mark.parametrize("changed", [[], [2]])
@pytest.mark.parametrize("found", [shows(1, 2, but=[1]), PageDiff(dates=shows(1, 2).dates, as_stored={"k1": 3}), QUIET])
def test_where_something_else_has_written_to_the_store_nothing_is_known_any_more(
    found: PageDiff, changed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1)
    pages = KnownPages()
    learn(pages, 1, 2)
    learn(pages, 3)
    lookup = look(pages, 1, 2, changed=changed)
    assert (lookup.page_diff, lookup.known()) == (None, None)
    if not found.is_idle:
        pages.forget([1])
    assert not pages.take(lookup, found)
    monkeypatch.undo()
    learn(pages, 3)
    assert find_rows(pages, 3) is None


def test_a_record_that_changed_in_truth_contradicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1)
    pages = KnownPages()
    learn(pages, 1, 2)
    lookup = look(pages, 1, 2, changed=[1])
    page_diff = shows(1, 2, but=[1])
    page_diff.notes.append(Note("k1", Finding.UPDATED))
    pages.forget([1])
    assert pages.take(lookup, page_diff)
    assert pages.is_trusted


def test_a_record_whose_key_another_record_has_too_contradicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1)
    pages = KnownPages()
    learn(pages, 1, 2)
    lookup = pages.look([text_of(1), text_of(2), text_of(2, 1)])
    page_diff = shows(1, 2, but=[2])
    page_diff.bad.append(Bad(b"digest", "k2", "key k2: appears twice", b"{}"))
    pages.forget([])
    assert pages.take(lookup, page_diff)
    assert pages.is_trusted


def test_a_lookup_whose_page_could_not_be_committed_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_pages, "PROBED", 1)
    pages = KnownPages()
    learn(pages, 1)
    lookup = look(pages, 1)
    pages.clear()  # as after a commit that failed
    assert pages.take(lookup, shows(1, but=[1]))
    assert pages.is_trusted
