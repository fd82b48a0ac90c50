from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockbell.admin.probing.signals import SignalFound, find_signal
from dockbell.core.reading.embedding import PAIRS

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPAN = (NOON, NOON + timedelta(seconds=3))


def level(number: int, on_hand: int = 0) -> dict[str, Any]:
    return {"id": number, "sku": f"s{number}", "on_hand": on_hand}


def look(*, changed: int, bumped: int, embedded: list[Any] | None = None) -> SignalFound:
    """Read 200 levels twice, of which some change and the items of some are bumped."""
    before = {str(number): level(number) for number in range(200)}
    after = before | {str(number): level(number, 1) for number in range(changed)}
    items = [{"id": f"i{number}", "sku": f"s{number}", "stock": [after[str(number)]]} for number in range(bumped)]
    if embedded is not None:
        items[0]["stock"] = embedded
    return find_signal(
        PAIRS[0],
        (before, after),
        items,
        SPAN,
        is_changed=lambda one, other: one["on_hand"] != other["on_hand"],
        key=lambda record: str(record["id"]) if "id" in record else None,
    )


def test_items_that_move_with_all_changes_and_show_them_are_a_signal() -> None:
    found = look(changed=60, bumped=60)
    assert found.is_usable
    assert (found.evidence.moved, found.evidence.changes, found.evidence.moved_idle) == (60, 60, 0)
    assert found.describe().endswith("; 60 of 60 embedded records matched their own list")


@pytest.mark.parametrize(("changed", "bumped", "is_told"), [(60, 30, True), (60, 0, True), (20, 20, False)])
def test_others_are_not(changed: int, bumped: int, *, is_told: bool) -> None:
    found = look(changed=changed, bumped=bumped)
    assert not found.is_usable
    assert found.is_told is is_told
    assert ("50 changes are needed" in found.describe()) is not is_told


def test_items_that_all_move_tell_nothing_of_their_stock() -> None:
    assert not look(changed=60, bumped=200).is_usable


@pytest.mark.parametrize("embedded", [[level(0, 1) | {"more": 1}], [{"id": 0, "on_hand": 1}]])
def test_embedded_records_of_another_form_are_no_signal(embedded: list[Any]) -> None:
    found = look(changed=60, bumped=60, embedded=embedded)
    assert (found.differing, found.is_usable) == (1, False)


@pytest.mark.parametrize("embedded", [[], [level(0, 5)], [{"sku": "s0"}], [{"id": 999, "on_hand": 1}]])
def test_embedded_records_that_changed_or_are_not_known_say_nothing(embedded: list[Any]) -> None:
    assert look(changed=60, bumped=60, embedded=embedded).is_usable
