"""Files that a configuration includes: which they are, what they may hold, and how their problems are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dockbell.config import Config, check_secrets, including, load
from dockbell.config.including import find_files, find_start
from dockbell.config.toml_file import read_toml
from dockbell.errors import ConfigError

Read = Callable[[str], Config]

INCLUDE = 'include = "sources.d/*.toml"\n'
KEYS = 'base_url = "https://api.example.com"\napi_key = "k"\n'
ONLY = "not allowed in an included file, which may contain only [sources.NAME]"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return what writes a file below the folder of the configuration."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


Write = Callable[[str, str], Path]


def _problems(read: Read, text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value.problems


# Which files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.toml", ["10.toml", "9.toml", "a.toml"]),
        ("[ab].toml", ["a.toml"]),
        ("?.toml", ["9.toml", "a.toml"]),
        (".*.toml", [".hidden.toml"]),
        ("*/c.toml", ["x/c.toml", "y/c.toml"]),
        ("*/*.toml", ["x/c.toml", "y/c.toml", "y/d.toml"]),
        ("y/*.toml", ["y/c.toml", "y/d.toml"]),
        ("*.tml", []),
        ("x/../x/c.toml", ["x/../x/c.toml"]),
        ("away.toml", ["away.toml"]),
    ],
)
def test_a_pattern_means_files_as_in_a_shell(tmp_path: Path, write: Write, pattern: str, names: list[str]) -> None:
    for name in ("a.toml", "9.toml", "10.toml", ".hidden.toml", "a.toml~", "x/c.toml", "y/c.toml", "y/d.toml"):
        write(name, "")
    assert [str(each.relative_to(tmp_path)) for each in find_files(pattern, tmp_path)] == names
    assert find_files(f"{tmp_path}/{pattern}", Path("/elsewhere")) == find_files(pattern, tmp_path)


@pytest.mark.parametrize(
    ("pattern", "start"),
    [
        ("*.toml", "/etc"),
        ("a/b-*.toml", "/etc/a"),
        ("a/*/b.toml", "/etc/a"),
        ("/x/*", "/x"),
        ("a/b.toml", "/etc/a/b.toml"),
    ],
)
def test_what_stands_before_the_first_wildcard_is_where_files_are_looked_for(pattern: str, start: str) -> None:
    assert find_start(pattern, Path("/etc")) == Path(start)


def test_sources_are_those_of_the_file_and_then_of_those_that_it_includes(read: Read, write: Write) -> None:
    write("sources.d/b.toml", f"[sources.b]\n{KEYS}[sources.b2]\n{KEYS}")
    write("sources.d/a.toml", f"[sources.a]\n{KEYS}[sources.a.resources.stock]\nevery = '5m'\n")
    write("sources.d/c.toml", "# nothing yet\n")
    write("more.toml", f"[sources.z]\n{KEYS}")
    config = read(f'include = ["more.toml", "sources.d/*.toml", "sources.d/a*"]\n[sources.main]\n{KEYS}')
    assert list(config.sources) == ["main", "z", "a", "b", "b2"]
    assert config.origins.included == ("more.toml", "sources.d/a.toml", "sources.d/b.toml", "sources.d/c.toml")
    assert [each.resource for each in config.feeds() if each.source == "a"] == list(type(config.resources).model_fields)
    (stock,) = [each.settings for each in config.feeds() if each.source == "a" and each.resource == "stock"]
    assert str(stock.every) == "0:05:00"


def test_a_configuration_does_not_include_itself(read: Read, write: Write) -> None:
    write("acme.toml", f"[sources.acme]\n{KEYS}")
    assert list(read(f'include = "*.toml"\n[sources.main]\n{KEYS}').sources) == ["main", "acme"]


def test_a_folder_of_sources_may_be_empty(read: Read, tmp_path: Path) -> None:
    (tmp_path / "sources.d").mkdir()
    config = read(INCLUDE)
    assert (config.sources, config.feeds(), config.origins.included) == ({}, (), ())


def test_a_folder_that_is_not_there_is_not_an_empty_one(read: Read) -> None:
    words = 'include: sources.d: no such folder; create it, or correct "sources.d/*.toml"'
    assert _problems(read, INCLUDE + f"[sources.main]\n{KEYS}") == (f"dockbell.toml: {words}",)


def test_nor_is_one_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ConfigError, match="cannot be listed, permission denied"):
        find_files("*.toml", tmp_path)


@pytest.mark.parametrize(
    ("include", "problem"),
    [
        ("5", "include: must be a list, got a whole number"),
        ("[5]", "include[0]: must be text in quotes, got a whole number"),
        ('""', "include: must not be empty"),
        (
            '"a/**/*.toml"',
            'include: must not contain "**", got "a/**/*.toml"; write each folder level, such as "a/*/*.toml"',
        ),
    ],
)
def test_what_is_no_pattern_is_refused(read: Read, include: str, problem: str) -> None:
    assert _problems(read, f"include = {include}\n[sources.main]\n{KEYS}") == (f"dockbell.toml: line 1: {problem}",)


# What stands in them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[sources.acme]\nbase_url = \n", "line 2, column 12: base_url has no value; add one"),
        ("sources = 5\n", "[sources]: must be a table, got a whole number"),
        ('name = "acme"\n', f"name: {ONLY}; move it to dockbell.toml"),
        ('include = "*.toml"\n', f"include: {ONLY}; move it to dockbell.toml"),
        ("[store]\n", f"[store]: {ONLY}; move it to dockbell.toml"),
        ("[source_defaults]\nshare = 1\n", f"[source_defaults]: {ONLY}; move it to dockbell.toml"),
        ("[resources.stock]\n", f"[resources]: {ONLY}; move it to dockbell.toml"),
        ("[source.acme]\n", f"source: {ONLY}; correct or remove it"),
        (
            "[sources.acme]\nbase_url = 'x'\napi_key = 'k'",
            'line 2: [sources.acme] base_url: must be a URL such as "https://api.example.com", got "x"',
        ),
        (f"[sources.acme]\n{KEYS}shrae = 1\n", 'line 4: [sources.acme] shrae: unknown key; did you mean "share"?'),
        (
            f"[sources.acme]\n{KEYS}[sources.acme.resources.stok]\n",
            'line 4: [sources.acme.resources.stok]: unknown table; did you mean "stock"?',
        ),
        ("[sources.acme]\napi_key = 'k'\n", "line 1: [sources.acme] base_url: missing; add it"),
        (f"[sources.main]\n{KEYS}", "[sources.main]: also defined in dockbell.toml; rename or remove one"),
    ],
)  # fmt: skip
def test_a_problem_is_told_with_its_file_and_place(read: Read, write: Write, text: str, problem: str) -> None:
    write("sources.d/acme.toml", text)
    assert _problems(read, f"{INCLUDE}[sources.main]\n{KEYS}") == (f"sources.d/acme.toml: {problem}",)


def test_a_source_in_two_files_is_told_with_both(read: Read, write: Write) -> None:
    write("sources.d/a.toml", f"[sources.acme]\n{KEYS}")
    write("sources.d/b.toml", f"[sources.acme]\n{KEYS}")
    assert _problems(read, INCLUDE) == (
        "sources.d/b.toml: [sources.acme]: also defined in sources.d/a.toml; rename or remove one",
    )


def test_problems_of_all_files_are_told_at_once(read: Read, write: Write) -> None:
    write("sources.d/a.toml", "[store]\n")
    write("sources.d/b.toml", "b")
    write("sources.d/c.toml", f"[sources.c]\n{KEYS}")
    places = [problem.split(":")[0] for problem in _problems(read, INCLUDE)]
    assert places == ["sources.d/a.toml", "sources.d/b.toml"]


def test_very_many_problems_are_counted(read: Read, write: Write) -> None:
    for number in range(103):
        write(f"sources.d/{number:03}.toml", "[store]\n")
    *first, last = _problems(read, INCLUDE)
    assert [each.split(":")[0] for each in first] == [f"sources.d/{number:03}.toml" for number in range(100)]
    assert last == "and 3 more problems; correct these first"


def test_paths_in_an_included_file_count_from_the_folder_of_the_first(read: Read, write: Write, tmp_path: Path) -> None:
    write("sources.d/acme.toml", '[sources.acme]\nbase_url = "https://h"\napi_key = { file = "secrets/acme" }\n')
    config = read(INCLUDE)
    assert config.sources["acme"].api_key.file == f"{tmp_path}/secrets/acme"
    with pytest.raises(ConfigError) as caught:
        check_secrets(config)
    words = "no such file or directory; make it readable, or use another"
    assert str(caught.value) == f"sources.d/acme.toml: [sources.acme] api_key: file {tmp_path}/secrets/acme: {words}"


def test_files_are_named_as_the_configuration_is(tmp_path: Path, write: Write) -> None:
    write("sources.d/acme.toml", "[store]\n")
    with pytest.raises(
        ConfigError, match=rf"^{tmp_path}/sources.d/acme.toml: \[store\]: .*; move it to {tmp_path}/a.t"
    ):
        load(write("a.toml", INCLUDE), lambda _: pytest.fail("no sink is there"))


# Files that come and go ----------------------------------------------------------------------------------------------


def test_a_file_that_is_named_must_be_there(read: Read) -> None:
    assert _problems(read, 'include = "acme.toml"') == ("./acme.toml: not found; create it, or remove it from include",)


def test_a_file_that_vanishes_while_files_are_read_is_told(
    read: Read, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("sources.d/a.toml", f"[sources.a]\n{KEYS}")
    write("sources.d/b.toml", f"[sources.b]\n{KEYS}")

    def read_and_remove(path: Path, *, absent: str) -> dict[str, object]:
        Path("sources.d/b.toml").unlink(missing_ok=True)
        return read_toml(path, absent=absent)

    monkeypatch.setattr(including, "read_toml", read_and_remove)
    words = "listed in its folder, but not found; try again, or remove a broken link"
    assert _problems(read, INCLUDE) == (f"sources.d/b.toml: {words}",)


def test_each_loading_reads_the_files_anew(read: Read, write: Write) -> None:
    first = write("sources.d/a.toml", f"[sources.a]\n{KEYS}")
    assert list(read(INCLUDE).sources) == ["a"]
    write(
        "sources.d/b.toml",
        f"[sources.b]\n{KEYS}share = 0.5\nuser_agent = 'b'\n".replace("'k'", "'b'").replace('"k"', '"b"'),
    )
    first.unlink()
    assert {name: each.share for name, each in read(INCLUDE).sources.items()} == {"b": 0.5}
