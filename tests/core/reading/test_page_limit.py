"""Which limit a run begins with."""

from __future__ import annotations

from dockbell.core.reading.page_limit import PageLimit


def test_a_run_begins_with_the_largest_limit_until_one_needed_a_smaller() -> None:
    assert PageLimit().begins_at == 0
    assert PageLimit().end_run(0, complete=False) == PageLimit()


def test_what_an_incomplete_run_needed_holds_until_a_run_was_complete() -> None:
    limit = PageLimit().end_run(2, complete=False)
    assert limit.begins_at == 2
    assert limit.end_run(2, complete=False).begins_at == 2
    assert limit.end_run(2, complete=True).begins_at == 0


def test_the_largest_limit_is_tried_less_and_less_often_while_it_is_in_vain() -> None:
    limit, tried = PageLimit(), []
    for number in range(300):
        if limit.begins_at == 0:
            tried.append(number)
        limit = limit.end_run(1, complete=True)
    assert tried[:5] == [0, 1, 3, 7, 15]
    assert tried[-1] - tried[-2] == 64


def test_a_run_that_needed_no_smaller_limit_ends_it() -> None:
    limit = PageLimit().end_run(1, complete=True)
    assert limit.end_run(0, complete=True) == PageLimit()
