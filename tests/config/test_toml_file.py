from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.config.place import KeyPath
from dockbell.config.toml_file import find_line

TEXT = """\
# The account
name = "acme"

[sources.main]
base_url = "https://api.example.com"   # no key of the same name
api_key = { env = "KEY" }

[resources.shipments]
ignore = [
    "/a",  # base_url = 1
    "/b",
]
[[resources.stock.events]]
name = "low"
when = \'\'\'
after.available < 10
\'\'\'
[[resources.stock.events]]
name = "none"
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (["name"], 2),
        (["sources"], 4),
        (["sources", "main"], 4),
        (["sources", "main", "base_url"], 5),
        (["sources", "main", "api_key", "env"], 6),
        (["resources", "shipments", "ignore"], 9),
        (["resources", "shipments", "ignore", 1], 9),
        (["resources", "stock", "events", 0], 13),
        (["resources", "stock", "events", 0, "when"], 15),
        (["resources", "stock", "events", 1, "name"], 19),
        # What is missing is missing in the table that is there.
        (["sources", "main", "share"], 4),
        (["resources", "stock", "events", 1, "when"], 18),
        (["sinks", "erp"], None),
    ],
)
def test_the_line_of_a_place_is_that_of_its_statement(tmp_path: Path, place: KeyPath, line: int | None) -> None:
    path = tmp_path / "dockbell.toml"
    path.write_text(TEXT, encoding="utf-8")
    assert find_line(str(path), place) == line


def test_of_a_file_that_is_gone_or_long_no_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "dockbell.toml"
    assert find_line(str(path), ["name"]) is None
    path.write_text(TEXT + "#" * 200_000, encoding="utf-8")
    assert find_line(str(path), ["name"]) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), unique_by=lambda each: each[0]), st.data())
def test_each_key_is_found_where_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[str, int]], data: st.DataObject
) -> None:
    lines, written = [], {}
    for key, length in keys:
        lines += ["# a comment"] * data.draw(st.integers(0, 2))
        written[key] = len(lines) + 1
        lines += [f"{key} = [", *["1,"] * length, "]"]
    path = tmp_path_factory.mktemp("config") / "dockbell.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert tomllib.loads(path.read_text()).keys() == written.keys()
    assert {key: find_line(str(path), [key]) for key in written} == written
