from __future__ import annotations

import json

import pytest

from dockbell.sandbox import LoggedChange
from tests.bench.hostile.verdict import Verdict, judge
from tests.oracle import Story

A, B = ("shipments", "a"), ("shipments", "b")


def make_story() -> Story:
    """Return a story in which A is 1, then 2, then 3, and B is deleted."""

    def change(identity: str, after: int | None) -> LoggedChange:
        body = None if after is None else json.dumps({"n": after}).encode()
        return LoggedChange(0, None, "shipments", identity, "updated", b"{}", body)  # type: ignore[arg-type]

    first = {"shipments": {"a": b'{"n": 1}', "b": b'{"n": 1}'}}
    return Story(first, [change("a", 2), change("a", 3), change("b", None)])


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ([(A, {"n": 2}), (A, {"n": 3}), (B, None)], Verdict()),
        ([(A, {"n": 3}), (B, None)], Verdict()),
        ([(A, {"n": 3}), (A, {"n": 3}), (B, None)], Verdict()),
        ([], Verdict(lost=1, undeleted=1)),
        ([(A, {"n": 2}), (B, None)], Verdict(lost=1)),
        ([(A, {"n": 3}), (A, {"n": 2}), (B, None)], Verdict(lost=1, invented=1)),
        ([(A, {"n": 3}), (A, {"n": 2}), (A, {"n": 3}), (B, None)], Verdict(invented=1)),
        ([(A, {"n": 3}), (B, None), (("stock", "c"), {"n": 1})], Verdict(invented=1)),
    ],
)
def test_what_was_told_is_held_against_what_happened(
    told: list[tuple[tuple[str, str], object]], verdict: Verdict
) -> None:
    assert judge(make_story(), told) == verdict
