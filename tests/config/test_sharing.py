"""``[source_defaults]``: what sources have that do not say otherwise, and how its problems are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dockbell.config import Config, ResourceSettings, check_secrets, redacted, to_toml
from dockbell.errors import ConfigError

Read = Callable[[str], Config]
Problems = Callable[[str], list[str]]

DEFAULTS = '[source_defaults]\nbase_url = "https://api.example.com"\napi_key = "k"\n'
ACME = "[sources.acme]\n"
UNREPLACED = "dockbell does not replace {source} in resources; set the value in each [sources.NAME.resources]"


def _settings(config: Config, source: str, resource: str) -> ResourceSettings:
    return next(each.settings for each in config.feeds() if (each.source, each.resource) == (source, resource))


# What is shared ------------------------------------------------------------------------------------------------------


def test_a_source_may_say_nothing_itself(read: Read) -> None:
    source = read(DEFAULTS + 'share = 0.5\ntimeout = "5s"\n' + ACME).sources["acme"]
    assert (source.base_url, source.api_key.reveal(), source.share) == ("https://api.example.com", "k", 0.5)
    assert source.timeout.total_seconds() == 5
    assert source.requests_per_minute == 300


def test_what_a_source_says_comes_first_key_by_key(read: Read) -> None:
    text = DEFAULTS + 'share = 0.5\nproxy = "http://p:1"\n' + ACME + '[sources.own]\napi_key = "own"\nshare = 0.7\n'
    config = read(text)
    assert {name: (each.api_key.reveal(), each.share) for name, each in config.sources.items()} == {
        "acme": ("k", 0.5),
        "own": ("own", 0.7),
    }
    assert all(str(each.proxy) == "http://p:1" for each in config.sources.values())


def test_all_sources_are_paused_at_once_but_those_that_say_otherwise(read: Read) -> None:
    config = read(DEFAULTS + "paused = true\n" + ACME + "[sources.own]\npaused = false\n")
    assert {(each.source, each.paused) for each in config.feeds()} == {("acme", True), ("own", False)}


def test_of_a_secret_the_whole_is_one_key(read: Read) -> None:
    text = DEFAULTS.replace('"k"', '{ env = "A" }') + ACME + 'api_key = { file = "/b" }\n'
    assert str(read(text).sources["acme"].api_key) == "file:/b"


def test_resources_are_merged_key_by_key_between_those_of_all_and_the_sources_own(read: Read) -> None:
    config = read(
        '[resources.stock]\nat_most = "1h"\nignore = ["/a"]\nquery = { a = 1, b = 1, c = 1 }\n'
        + DEFAULTS
        + '[source_defaults.resources.stock]\nweight = 2\nignore = ["/b"]\nquery = { b = 2, c = 2 }\n'
        + ACME
        + '[sources.own]\n[sources.own.resources.stock]\nevery = "5m"\nquery = { c = 3 }\n'
    )
    acme, own = _settings(config, "acme", "stock"), _settings(config, "own", "stock")
    assert (str(acme.at_most), acme.weight, acme.ignore) == ("1:00:00", 2, ("/b",))
    assert acme.query == {"a": 1, "b": 2, "c": 2}
    assert (str(own.every), own.at_most, own.weight, own.ignore) == ("0:05:00", None, 2, ("/b",))
    assert own.query == {"a": 1, "b": 2, "c": 3}


def test_its_resources_are_read_beside_those_that_are_listed_for_all(read: Read) -> None:
    text = DEFAULTS + ACME + "[source_defaults.resources.stock]\n"
    assert len(read(text).feeds()) == 5
    assert [each.resource for each in read(text + "[resources.items]\n").feeds()] == ["items", "stock"]
    text += "[sources.acme.resources.stock]\nenabled = false\n"
    assert [each.resource for each in read(text + "[resources.items]\n").feeds()] == ["items"]


def test_sources_that_say_nothing_of_a_resource_have_one_settings_object(read: Read) -> None:
    config = read(
        '[resources.stock]\nevery = "auto"\n' + DEFAULTS + ACME + "[sources.b]\n[source_defaults.resources.stock]\n"
    )
    assert _settings(config, "acme", "stock") is _settings(config, "b", "stock")


def test_what_is_printed_is_what_each_source_has(read: Read, tmp_path: Path) -> None:
    text = DEFAULTS.replace('"k"', '{ file = "{source}" }') + ACME + "[source_defaults.resources.stock]\nweight = 2\n"
    printed = to_toml(redacted(read(text)))
    assert "source_defaults" not in printed
    assert (
        f'[sources.acme]\nbase_url = "https://api.example.com"\napi_key = {{ file = "{tmp_path}/acme" }}\n' in printed
    )
    assert "weight = 2.0" in printed


# The name of the source ----------------------------------------------------------------------------------------------


def test_the_name_of_the_source_stands_in_each_text(read: Read, tmp_path: Path) -> None:
    source = read(
        '[source_defaults]\nbase_url = "https://{source}.example.com"\napi_key = { file = "secrets/{source}/key" }\n'
        'proxy = { env = "PROXY_{source}" }\nca_file = "{source}.pem"\nuser_agent = "{source}, {source}"\n'
        "[sources.acme-eu]\n"
    ).sources["acme-eu"]
    assert source.base_url == "https://acme-eu.example.com"
    assert source.api_key.file == f"{tmp_path}/secrets/acme-eu/key"
    assert str(source.proxy) == "env:PROXY_ACME_EU"
    assert source.ca_file == f"{tmp_path}/acme-eu.pem"
    assert source.user_agent == "acme-eu, acme-eu"


def test_the_name_of_a_source_stands_in_a_secret_that_is_text_too(read: Read) -> None:
    assert read(DEFAULTS.replace('"k"', '"sandbox-{source}-{x}"') + ACME).sources["acme"].api_key.reveal() == (
        "sandbox-acme-{x}"
    )


def test_what_a_source_says_itself_is_taken_as_it_is(read: Read) -> None:
    assert read(DEFAULTS + ACME + 'user_agent = "{source}"\n').sources["acme"].user_agent == "{source}"


def test_two_sources_never_read_one_variable_by_their_names(problems: Problems, read: Read) -> None:
    text = DEFAULTS.replace('"k"', '{ env = "KEY_{source}" }') + "[sources.a-b]\n[sources.a_b]\n"
    words = "uses the environment variable KEY_A_B, like source a-b; rename one, or set its own api_key"
    assert problems(text) == [f"[source_defaults] api_key, for a_b: {words}"]
    assert str(read(text + 'api_key = { env = "KEY_A_B2" }\n').sources["a_b"].api_key) == "env:KEY_A_B2"


def test_two_sources_may_share_a_variable_that_is_named_for_both(read: Read) -> None:
    config = read(DEFAULTS.replace('"k"', '{ env = "KEY" }') + "[sources.a-b]\n[sources.a_b]\n")
    assert config.sources["a-b"].account == config.sources["a_b"].account


# What is wrong with it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bse_url = 5\n", '[source_defaults] bse_url: unknown key; did you mean "base_url"?'),
        ("share = 2\n", "[source_defaults] share: must be at most 1.0, got 2"),
        ('user_agent = "{name}"\n', '[source_defaults] user_agent: unknown placeholder "{name}"; available: {source}'),
        ('ca_file = "{}.pem"\n', '[source_defaults] ca_file: unknown placeholder "{}"; available: {source}'),
        (
            'proxy = { env = "P_{SOURCE}" }\n',
            '[source_defaults] proxy.env: unknown placeholder "{SOURCE}"; available: {source}',
        ),
        (
            "[source_defaults.resources.stok]\n",
            '[source_defaults.resources.stok]: unknown table; did you mean "stock"?',
        ),
        (
            '[source_defaults.resources.items]\nquery = { account = "{source}" }\n',
            f"[source_defaults.resources.items] query.account: {UNREPLACED}",
        ),
        (
            '[source_defaults.resources.items]\ndrop = ["/id"]\nkey = "/id"\n',
            '[source_defaults.resources.items] drop: must not contain "/id": key of a/items is /id; remove it',
        ),
    ],
)  # fmt: skip
def test_a_problem_is_told_once_where_it_is_written(problems: Problems, text: str, problem: str) -> None:
    got = problems(DEFAULTS + text + "[sources.a]\n[sources.b]\n")
    assert len(got) == 1
    assert got[0].replace("of b/items", "of a/items") == problem


def test_it_is_checked_where_no_source_has_it(problems: Problems) -> None:
    text = '[source_defaults]\nbase_url = "x"\n[sources.a]\nbase_url = "https://h"\napi_key = "k"\n'
    (problem,) = problems(text)
    assert problem.startswith("[source_defaults] base_url: must be a URL")


def test_what_is_wrong_for_single_sources_only_is_told_for_the_first(problems: Problems) -> None:
    (problem,) = problems(DEFAULTS.replace("api.ex", "{source}:{source}@ex") + "[sources.a]\n[sources.b]\n")
    assert problem.startswith("[source_defaults] base_url: must not contain a user or password")


def test_a_source_is_told_what_neither_table_has(problems: Problems) -> None:
    text = '[source_defaults]\nbase_url = "https://h"\n[sources.a]\n[sources.b]\napi_key = "k"\n'
    assert problems(text) == ["[sources.a] api_key: missing; add it"]


def test_what_is_no_table_is_told(problems: Problems) -> None:
    assert problems('source_defaults = 5\n[sources.a]\nbase_url = "https://h"\napi_key = "k"\n') == [
        "[source_defaults]: must be a table, got a whole number"
    ]
    assert problems(DEFAULTS + "[sources]\na = 5\n") == ["[sources.a]: must be a table, got a whole number"]


def test_a_secret_that_cannot_be_looked_up_is_told_for_its_source(read: Read, tmp_path: Path) -> None:
    config = read(DEFAULTS.replace('"k"', '{ file = "{source}.key" }') + "[sources.a]\n[sources.b]\n")
    (tmp_path / "a.key").write_text("k")
    with pytest.raises(ConfigError) as caught:
        check_secrets(config)
    words = f"file {tmp_path}/b.key: no such file or directory; make it readable, or use another"
    assert caught.value.problems == (f"dockbell.toml: [source_defaults] api_key, for b: {words}",)
