from __future__ import annotations

import pytest

from dockbell.config.source_tables import read_pairs, read_rows, read_tables, read_value, split_key
from dockbell.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("600", 600),
        ("true", True),
        ("10m", "10m"),
        ("https://api.example.com", "https://api.example.com"),
        ('"600"', "600"),
        ('["a", "b"]', ["a", "b"]),
        ('{ file = "k" }', {"file": "k"}),
        ("-", "-"),
        ("", ""),
        ("1\nkey = 2", "1\nkey = 2"),
    ],
)
def test_a_value_is_toml_or_else_text(text: str, value: object) -> None:
    assert read_value(text) == value


def test_pairs_are_a_table() -> None:
    pairs = ["base_url=https://a?b=c", "api_key.file=k", "resources.stock.at_most=10m", "resources.stock.every=1m"]
    assert read_pairs(pairs) == {
        "base_url": "https://a?b=c",
        "api_key": {"file": "k"},
        "resources": {"stock": {"at_most": "10m", "every": "1m"}},
    }


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        (["paused"], 'must be KEY=VALUE, such as requests_per_minute=600, got "paused"'),
        (["s3cr!t"], "must be KEY=VALUE, such as requests_per_minute=600, got something else"),
        (["paused=true", "paused=false"], "paused is set twice; remove one"),
        (["api_key=k", "api_key.file=k"], "api_key.file is set twice; remove one"),
    ],
)
def test_a_pair_that_cannot_be_read_is_refused_without_what_might_be_a_secret(pairs: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_pairs(pairs)
    assert str(error.value) == problem


def test_a_key_is_a_way_through_tables() -> None:
    assert split_key("resources.stock.at_most") == ["resources", "stock", "at_most"]
    with pytest.raises(ConfigError, match="must be a key such as requests_per_minute"):
        split_key("At Most")


def test_tables_have_the_lines_of_their_sources() -> None:
    given = read_tables('\n[sources.acme]\npaused = true\n\n[sources."b-2"]\n[sources."b-2".resources]\n', "new.toml")
    assert given.tables == {"acme": {"paused": True}, "b-2": {"resources": {}}}
    assert given.places == {"acme": "new.toml: line 2", "b-2": "new.toml: line 5"}


def test_tables_written_in_a_line_have_it() -> None:
    given = read_tables("[sources]\nb = {}\nc.paused = true\n", "new.toml")
    assert given.places == {"b": "new.toml: line 2", "c": "new.toml: line 3"}
    assert read_tables("sources.a = {}\n", "new.toml").places == {"a": "new.toml: line 1"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[store]\n", "new.toml: [store]: must be [sources.NAME]; the rest belongs in the configuration file"),
        ("sources = 1", "new.toml: [sources]: must be a table, got a whole number"),
        ("[sources]\na = 1\n", "new.toml: line 2: [sources.a]: must be a table, got a whole number"),
        ("[sources.a\n", "new.toml: line 1"),
    ],
)
def test_tables_that_are_no_sources_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_tables(text, "new.toml")
    assert problem in str(error.value)


def test_each_row_is_a_source_and_an_empty_cell_says_nothing() -> None:
    text = 'name,api_key.file,requests_per_minute\nacme,keys/acme,\n\n"globex",keys/globex,600\n'
    given = read_rows(text, "new.csv")
    assert given.tables == {
        "acme": {"api_key": {"file": "keys/acme"}},
        "globex": {"api_key": {"file": "keys/globex"}, "requests_per_minute": 600},
    }
    assert given.places == {"acme": "new.csv: line 2", "globex": "new.csv: line 4"}


def test_all_rows_that_cannot_be_read_are_told_with_their_lines() -> None:
    text = "name,paused\nacme\n,true\nacme,true\nacme,false\n"
    with pytest.raises(ConfigError) as error:
        read_rows(text, "new.csv")
    assert error.value.problems == (
        "new.csv: line 2: must have 2 cells, like the header, got 1",
        "new.csv: line 3: name is empty; enter the name of the source",
        'new.csv: line 5: source "acme" is also in line 4; remove one',
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "new.csv: line 1: column name is missing; add it"),
        ("nam,paused\n", 'new.csv: line 1: column name is missing; add it, did you mean "nam"?'),
        ("name,paused,paused\n", "new.csv: line 1: column paused appears twice; remove one"),
        ("name,Base URL\n", 'new.csv: line 1: column "Base URL" must be a key of a source'),
        ('name\n"acme\n', "new.csv: line 2: invalid CSV, unexpected end of data; correct it"),
    ],
)
def test_rows_without_a_right_header_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_rows(text, "new.csv")
    assert problem in str(error.value)
