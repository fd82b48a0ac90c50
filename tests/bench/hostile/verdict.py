"""What a tool told of records, held against what really happened to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.oracle import Place, Story


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far what was told is from the truth.

    Attributes:
        lost: Records whose last version was not told, of those that are still there.
        undeleted: Records that are gone, and of which that was not told.
        invented: What was told and never was, or had been before what was told already.
    """

    lost: int = 0
    undeleted: int = 0
    invented: int = 0


def judge(story: Story, told: Iterable[tuple[Place, Any]]) -> Verdict:
    """Return what is wrong with what was told, in its order, once nothing more is to come.

    A version that was not told is no loss where a later one was: perhaps no reading could have shown it. That a tool
    tells the same version twice is no matter: a receiver compares.

    Args:
        story: What happened since all records were known.
        told: Of each record what it was then, as content, None where it was gone.
    """
    places: dict[Place, int] = {}
    last: dict[Place, Any] = {}
    invented = 0
    for place, content in told:
        versions = story.versions.get(place, [])
        position = places.get(place, 0)
        while position < len(versions) and versions[position] != content:
            position += 1
        if position == len(versions):
            invented += 1
        else:
            places[place] = position
        last[place] = content
    wrong = [versions[-1] for place, versions in story.versions.items() if last.get(place, versions[0]) != versions[-1]]
    undeleted = sum(content is None for content in wrong)
    return Verdict(len(wrong) - undeleted, undeleted, invented)
