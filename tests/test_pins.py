"""What ``docs/operations`` pins by hashes is what pyproject.toml wants, which is bounded where it must be."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.pins import ALL, COMMAND, FOLDER, PROJECT, ROOT, Pins, environments, is_wanted, name_of, read

SHIPPED: Final = {"pydantic-core": "pydantic", "pytest": ""}
"""What is imported and comes with something else: pydantic wants one version of its core; who runs pytest has it."""


def read_pins(pins: Pins) -> dict[str, Requirement]:
    return {name_of(each): each for each, _ in read(pins.path.read_text(encoding="utf-8"))}


def read_all(pins: Pins) -> dict[str, Requirement]:
    """Return what a file pins, and the file that it adds to."""
    base = next((read_pins(each) for each in ALL if each.name == pins.base), {})
    return base | read_pins(pins)


def find_needed(wanted: Iterator[Requirement], environment: Mapping[str, str]) -> dict[str, list[Requirement]]:
    """Return all that some requirements come to, by name, each with what is asked of it; of what is installed here."""
    found: dict[str, list[Requirement]] = {}
    waiting = list(wanted)
    while waiting:
        each = waiting.pop()
        name = name_of(each)
        if each in found.get(name, []):
            continue
        found.setdefault(name, []).append(each)
        try:
            others = [Requirement(text) for text in distribution(name).requires or ()]
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        for other in others:
            extras = each.extras or {""}
            if other.marker is None or any(other.marker.evaluate({**environment, "extra": extra}) for extra in extras):
                waiting.append(other)
    return found


@pytest.mark.parametrize("pins", ALL, ids=lambda pins: pins.name)
def test_the_pins_are_all_that_is_needed_and_within_the_bounds(pins: Pins) -> None:
    pinned, needed = read_all(pins), set[str]()
    for environment in environments():
        for name, asked in find_needed(map(Requirement, pins.wanted), environment).items():
            needed.add(name)
            pin = pinned[name]
            assert pin.marker is None or pin.marker.evaluate(environment), f"{name} with Python {environment}"
            version = str(pin.specifier).removeprefix("==")
            for each in asked:
                is_ours = any(each == Requirement(text) for text in pins.wanted)
                assert not is_ours or each.specifier.contains(version), f"{each}, pinned is {version}: {COMMAND}"
    unknown = {name for name in read_pins(pins) if name not in needed}
    assert {name for name in unknown if is_installed(name)} == set(), COMMAND


def is_installed(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False


@pytest.mark.parametrize("pins", ALL, ids=lambda pins: pins.name)
def test_each_pin_is_one_version_with_its_hashes_and_names_no_server(pins: Pins) -> None:
    text = pins.path.read_text(encoding="utf-8")
    head, _, rest = text.partition(COMMAND)
    assert re.fullmatch(r"(# .*\n)+.*", head), "the head says which command makes it"
    assert f"pip install --require-hashes {pins.files}\n" in head
    assert "://" not in text
    assert not re.search(r"(?m)^ *-(?!-hash=)", text), "no option of pip"
    entries = [*read(text)]
    assert entries
    for pin, lines in entries:
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)), pin
        assert re.fullmatch(r".+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", lines), pin
        assert is_wanted(pin)
    assert "".join(lines for _, lines in entries) == rest.partition("\n")[2], "nothing stands between the pins"


def test_every_file_of_pins_is_one_that_is_made() -> None:
    assert {path.name for path in FOLDER.glob("requirements*.txt")} == {pins.name for pins in ALL}
    base, *others = (read_pins(pins) for pins in ALL)
    assert all(not base.keys() & other.keys() for other in others), "pip wants each once"


def test_every_dependency_is_bounded_above() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    brought = [text for name, texts in extras.items() if name != "test" for text in texts]
    wanted = map(Requirement, PROJECT["project"]["dependencies"] + brought)
    assert [str(each) for each in wanted if not any(part.operator == "<" for part in each.specifier)] == []


def find_imports() -> dict[str, set[str]]:
    """Return the distributions that our modules import, each with the modules of it that they name."""
    found: dict[str, set[str]] = {}
    homes = packages_distributions()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _name_modules(node):
                top = name.partition(".")[0]
                if top in homes and top != "dockbell" and top not in sys.stdlib_module_names:
                    found.setdefault(canonicalize_name(homes[top][0]), set()).add(name)
    return found


def _name_modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [each.name for each in node.names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
    return []


def test_whatever_is_imported_is_asked_for() -> None:
    imported = find_imports()
    # Nothing imports what the store in PostgreSQL or a sink of one of these types needs before one is configured.
    extras = PROJECT["project"]["optional-dependencies"]
    brought = [text for name, texts in extras.items() if name not in ("demo", "test") for text in texts]
    texts = PROJECT["project"]["dependencies"] + brought
    asked = {name_of(Requirement(text)) for text in texts}
    assert len(imported) > 10
    assert {name for name in imported if SHIPPED.get(name, name) not in asked | {""}} == set()


@pytest.mark.parametrize(
    ("name", "module", "parts"),
    [
        ("uvicorn", "uvicorn.protocols.http.h11_impl", 2),
        ("starlette", "starlette.routing", 2),
        ("prometheus-client", "prometheus_client.openmetrics", 2),
        ("h11", "h11", 2),
        ("httpcore", "httpcore", 2),
        ("paho-mqtt", "paho.mqtt", 2),
        ("pydantic", "pydantic_core", 2),
    ],
)
def test_where_we_stand_on_what_is_not_documented_the_next_version_is_not_taken(
    name: str, module: str, parts: int
) -> None:
    used = {each for modules in find_imports().values() for each in modules}
    assert any(each.startswith(module) for each in used), "then the bound may go"
    (wanted,) = (each for each in map(Requirement, PROJECT["project"]["dependencies"]) if name_of(each) == name)
    (bound,) = (each.version for each in wanted.specifier if each.operator == "<")
    tested = distribution(name).version.split(".")
    assert bound == ".".join([*tested[: parts - 1], str(int(tested[parts - 1]) + 1)])


def test_the_programs_of_operators_install_what_is_pinned() -> None:
    places = (
        "README.md",
        "docs/operations/systemd.md",
        "docs/operations/dockbell.service",
        "docs/operations/Containerfile",
    )
    for place in places:
        text = (ROOT / place).read_text(encoding="utf-8").replace('", "', " ")
        commands = [line for line in text.splitlines() if "bin/pip install" in line or "bin/pip wheel" in line]
        ours = [line for line in commands if "/opt/" in line]
        assert len(ours) >= 2, place
        assert [line for line in ours if "--require-hashes" not in line and "--no-deps" not in line] == [], place
        assert any("requirements.txt" in line for line in ours), place
