"""What docs/security.md says holds: its tests are there, and so are its licences; and how CI reads an audit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.dependencies import find_dependencies, judge_audit, name_licence

SECURITY: Final = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
COMPATIBLE: Final = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "MPL-2.0", "PSF-2.0"}
"""What an MIT program may need: licences that ask nothing of those who use it beyond notices, or of its own files."""


def read_table() -> dict[str, str]:
    """Return the licence of each dependency, as the documentation has it."""
    rows = re.findall(r"^\| ([A-Z][\w. -]+) \| ([a-z0-9, -]+) \|$", SECURITY, re.MULTILINE)
    return {name: licence for licence, names in rows for name in names.split(", ")}


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", SECURITY))
    tests = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert len(named) > 50
    assert named - set(re.findall(r"def (test_\w+)\(", tests)) == set()


def is_compatible(licence: str) -> bool:
    return any(set(offer.split(" AND ")) <= COMPATIBLE for offer in licence.split(" OR "))


def test_every_dependency_has_a_licence_that_goes_with_ours_and_is_listed() -> None:
    found = {name: name_licence(each) for name, each in find_dependencies().items()}
    assert [name for name, licence in found.items() if not is_compatible(licence)] == []
    assert read_table() == found


@pytest.mark.parametrize(
    ("dependencies", "is_fine", "words"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], True, "none of 1 "),
        (
            [{"name": "a", "version": "1", "vulns": [{"id": "X-1"}]}, {"name": "b", "skip_reason": "?"}],
            False,
            "a 1: X-1",
        ),
        (
            [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "?"}],
            True,
            "NOT AUDITED: .* 1 of 2",
        ),
        (None, True, "NOT AUDITED"),
    ],
)
def test_what_is_vulnerable_is_told_from_what_nobody_can_say(
    tmp_path: Path, dependencies: list[dict[str, Any]] | None, words: str, *, is_fine: bool
) -> None:
    report = tmp_path / "audit.json"
    if dependencies is not None:
        report.write_text(json.dumps({"dependencies": dependencies}))
    found, told = judge_audit(report)
    assert found is is_fine
    assert re.search(words, told)
