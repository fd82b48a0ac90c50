"""The tables of the whole file, and what is checked across them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from dockbell.config import Config, ResourceSettings, Secret, SourceSettings, StoreSettings
from dockbell.config.tables import OfferedName
from dockbell.core.model import NOTICES, RESOURCES

Read = Callable[[str], Config]
Problems = Callable[[str], list[str]]
Keys = dict[str, Any]

SOURCE = '[sources.main]\nbase_url = "https://api.example.com"\napi_key = "k"\n'


def _settings(config: Config, resource: str) -> ResourceSettings:
    return next(feed.settings for feed in config.feeds() if feed.resource == resource)


def test_a_sink_takes_the_resources_and_the_notices() -> None:
    assert get_args(OfferedName) == (*RESOURCES, NOTICES.resource)


def test_a_base_url_loses_its_trailing_slash() -> None:
    source = SourceSettings(base_url="https://api.example.com/logistics/", api_key=Secret(value="k"))
    assert source.base_url == "https://api.example.com/logistics"


def test_a_store_names_its_file() -> None:
    assert StoreSettings(url="sqlite:///a/b.db").path == Path("a/b.db")
    assert StoreSettings(url="sqlite:////a/b.db").path == Path("/a/b.db")


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@h:5432/d", "postgres://h/d?sslmode=verify-full", "postgresql:///d?host=/run/postgresql"]
)
def test_a_store_in_a_database_has_no_file(url: str) -> None:
    store = StoreSettings(url=url)
    assert store.path is None
    assert store.url == url


def test_paths_count_from_the_folder_of_the_file(read: Read, tmp_path: Path) -> None:
    config = read(
        '[sources.main]\nbase_url = "https://api.example.com"\napi_key = { file = "key" }\nca_file = "/etc/ca.pem"\n'
        '[sinks.a]\ntype = "pager"\ntoken = { file = "../token" }\ncert_file = "certs/a.pem"\n'
    )
    assert config.store.path == tmp_path / "dockbell.db"
    assert config.sources["main"].api_key.file == str(tmp_path / "key")
    assert config.sources["main"].ca_file == "/etc/ca.pem"
    sink = config.sinks["a"].model_dump()
    assert sink["cert_file"] == str(tmp_path / "certs/a.pem")
    assert sink["token"] == {"file": f"{tmp_path}/../token"}


UNORDERED = (
    SOURCE + '[resources.shipments]\nunordered = ["/tags", "/lines"]\n[resources.items]\n[sinks.a]\ntype = "pager"\n'
)


def test_patches_are_refused_of_feeds_whose_arrays_change_their_order_without_an_event(problems: Problems) -> None:
    places = "main/shipments ignores the order of /tags"
    problem = f'[sinks.a] payload: "patch" refers to positions in arrays, but {places}; use "full" or "thin"'
    assert problems(UNORDERED + 'payload = "patch"\n') == [problem]


def test_patches_of_other_feeds_are_not(read: Read) -> None:
    assert read(UNORDERED + 'payload = "patch"\nresources = "items"\n').sinks["a"].payload == "patch"
    assert read(UNORDERED + 'payload = "thin"\n').sinks["a"].payload == "thin"


# Records that leave a filter -----------------------------------------------------------------------------------------


def test_nothing_leaves_a_filter_that_is_not_there(problems: Problems, read: Read) -> None:
    sink = SOURCE + '[sinks.a]\ntype = "pager"\non_leave = "send"\n'
    assert problems(sink) == ['[sinks.a] on_leave: "send" requires where; add where, or remove on_leave']
    assert read(sink + "where = \"after.status == 'shipped'\"\n").sinks["a"].on_leave == "send"


# Changes that are left out -------------------------------------------------------------------------------------------


def test_patches_need_every_change(problems: Problems, read: Read) -> None:
    sink = SOURCE + '[sinks.a]\ntype = "pager"\ncoalesce = true\n'
    assert problems(sink + 'payload = "patch"\n') == [
        '[sinks.a] coalesce: skips changes, but payload = "patch" needs every change; remove one of them'
    ]
    assert read(sink).sinks["a"].coalesce


# What is never stored ------------------------------------------------------------------------------------------------


def test_pointers_to_what_is_never_stored_may_name_any_member(read: Read) -> None:
    config = read(SOURCE + '[resources.shipments]\nkey = "/id"\ndrop = ["/to/email", "/packages/*/phone", "/ids"]\n')
    assert _settings(config, "shipments").drop == ("/to/email", "/packages/*/phone", "/ids")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('key = "/id"\ndrop = ["/id"]', 'must not contain "/id": key of main/shipments is /id; remove it'),
        ('key = ["/a/b", "/c"]\ndrop = ["/a"]', 'must not contain "/a": key of main/shipments is /a/b; remove it'),
        (
            'updated_at = "/m/0"\ndrop = ["/m"]',
            'must not contain "/m": updated_at of main/shipments is /m/0; remove it',
        ),
        ('key = "/m/1"\ndrop = ["/m/0"]', 'must not contain "/m/0": key of main/shipments is /m/1; remove it'),
        ('key = "/m/1/x"\ndrop = ["/m/*/x"]', 'must not contain "/m/*/x": key of main/shipments is /m/1/x; remove it'),
    ],
)  # fmt: skip
def test_what_tells_records_apart_or_dates_them_cannot_be_left_out(problems: Problems, keys: str, problem: str) -> None:
    assert problems(SOURCE + f"[resources.shipments]\n{keys}\n") == [f"[resources.shipments] drop: {problem}"]


def test_tables_that_go_together_badly_are_told_where_they_meet(problems: Problems) -> None:
    own = '[sources.main.resources.shipments]\ndrop = ["/id"]\n'
    assert problems(SOURCE + own + '[resources.shipments]\nkey = "/id"\n') == [
        '[sources.main.resources.shipments] drop: must not contain "/id": key of main/shipments is /id; remove it'
    ]
