"""What a plain installation of dockbell brings along.

As a program it prints that as pinned requirements; with the report of pip-audit about them, a file, it says what that
comes to, and exits with 1 where something is known to be vulnerable.
"""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

_PROJECT: Final = Path(__file__).parents[1] / "pyproject.toml"
_NAMES: Final = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "ISC License (ISCL)": "ISC",
}


def find_dependencies() -> dict[str, Distribution]:
    """Return all that dockbell needs without extras, directly or not, by name."""
    found: dict[str, Distribution] = {}
    wanted = [tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]]
    while wanted:
        for text in wanted.pop():
            requirement = Requirement(text)
            name = requirement.name.lower().replace("_", "-")
            if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
                found[name] = distribution(requirement.name)
                wanted.append(found[name].requires or [])
    return found


def name_licence(dependency: Distribution) -> str:
    """Return under which licence something comes, by its own metadata: an SPDX expression where it has one."""
    metadata = dependency.metadata
    expression = metadata.get_all("License-Expression") or ()
    classified = (each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if each[:7] == "License")
    told = next(iter((*expression, *classified)), "none that it names")
    return _NAMES.get(told, told)


def judge_audit(report: Path) -> tuple[bool, str]:
    """Return whether nothing is known to be vulnerable, and what the report comes to, in words.

    Args:
        report: What ``pip-audit --format json`` has written; not there where it could not ask for advisories.
    """
    if not report.exists():
        return True, "NOT AUDITED: advisories cannot be reached"
    audited = json.loads(report.read_bytes())["dependencies"]
    known = [f"{each['name']} {each['version']}: {found['id']}" for each in audited for found in each.get("vulns", ())]
    skipped = [each["name"] for each in audited if "skip_reason" in each]
    if known:
        return False, "\n".join(["VULNERABLE:", *known])
    if skipped:
        return True, f"NOT AUDITED: no advisories can be had for {len(skipped)} of {len(audited)}: {', '.join(skipped)}"
    return True, f"none of {len(audited)} dependencies is known to be vulnerable"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        is_fine, words = judge_audit(Path(sys.argv[1]))
        print(words)
        sys.exit(not is_fine)
    for name, dependency in sorted(find_dependencies().items()):
        print(f"{name}=={dependency.version}")
