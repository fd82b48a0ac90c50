"""The versions that are proven by their hashes, in ``docs/operations``: what they are for, and how they are made.

As a program it makes them anew, of the newest versions within the bounds of ``pyproject.toml``. It needs uv
(https://docs.astral.sh/uv) on the path, and asks the registry that uv is set up for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "docs" / "operations"
PROJECT: Final[Mapping[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMMAND: Final = "python -m tests.pins"
_HEAD: Final = """\
# {words}
#   pip install --require-hashes {files}
# For Linux on x86_64 and aarch64 with Python {oldest} to {newest}.
# Made by "{command}", which needs uv; a test holds it to pyproject.toml.
"""
VERSIONS: Final = ("3.11", "3.12", "3.13")
MACHINES: Final = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Pins:
    """A file of pins.

    Attributes:
        name: Of the file.
        words: What is in it.
        wanted: What it is to satisfy, as pyproject has it.
        base: The file that it adds to; empty where it stands for itself.
    """

    name: str
    words: str
    wanted: tuple[str, ...]
    base: str = ""

    @property
    def path(self) -> Path:
        """Where it is."""
        return FOLDER / self.name

    @property
    def files(self) -> str:
        """How pip is told to install it."""
        return " ".join(f"-r docs/operations/{name}" for name in (self.base, self.name) if name)


_RUN: Final = "requirements.txt"
_EXTRAS: Final = PROJECT["project"]["optional-dependencies"]
ALL: Final = (
    Pins(_RUN, "What dockbell needs to run, each file proven by its hash:", (*PROJECT["project"]["dependencies"],)),
    *(
        Pins(f"requirements-{extra}.txt", f'What the extra "{extra}" needs on top:', (*_EXTRAS[extra],), base=_RUN)
        for extra in ("alert", "amqp", "demo", "ed25519", "kafka", "nats", "postgres", "redis")
    ),
    Pins("requirements-build.txt", "What builds dockbell of its sources:", (*PROJECT["build-system"]["requires"],)),
)


def environments() -> Iterator[dict[str, str]]:
    """Yield what markers are judged by, where the pins are for."""
    for version in VERSIONS:
        for machine in MACHINES:
            system = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
            python = {"python_version": version, "python_full_version": f"{version}.0", "platform_machine": machine}
            yield {**default_environment(), **system, **python, "extra": ""}  # type: ignore[dict-item]  # all are texts


def is_wanted(requirement: Requirement) -> bool:
    """Return whether a requirement holds anywhere."""
    return requirement.marker is None or any(map(requirement.marker.evaluate, environments()))


def read(text: str) -> Iterator[tuple[Requirement, str]]:
    """Yield each pin of a file, with its lines."""
    for match in re.finditer(r"(?m)^[^\s#].*(?:\n[ ]+--hash=.*)*\n", text):
        yield Requirement(match[0].partition("\\")[0]), match[0]


def name_of(requirement: Requirement) -> str:
    """Return a name as it is compared."""
    return canonicalize_name(requirement.name)


def make(pins: Pins, known: frozenset[str]) -> str:
    """Ask for the newest versions, and return the file.

    Args:
        pins: Which file.
        known: What is pinned in the file that it adds to.
    """
    others = next((each.wanted for each in ALL if each.name == pins.base), ())
    uv = shutil.which("uv") or sys.exit("uv is not here; pip install uv, into an environment of its own")
    options = "--universal --generate-hashes --no-header --no-annotate --python-version"
    made = subprocess.run(
        [uv, "pip", "compile", "--quiet", *options.split(), VERSIONS[0], "-"],
        input="\n".join((*others, *pins.wanted)),
        capture_output=True,
        text=True,
        check=True,
    )
    head = _HEAD.format(words=pins.words, files=pins.files, oldest=VERSIONS[0], newest=VERSIONS[-1], command=COMMAND)
    kept = [lines for each, lines in read(made.stdout) if is_wanted(each) and name_of(each) not in known]
    return "".join([head, *kept])


if __name__ == "__main__":
    for pins in ALL:
        base = next((each.path.read_text(encoding="utf-8") for each in ALL if each.name == pins.base), "")
        pins.path.write_text(make(pins, frozenset(name_of(each) for each, _ in read(base))), encoding="utf-8")
        print(pins.path)
