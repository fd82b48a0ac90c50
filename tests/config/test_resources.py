"""How each resource is read by default, and how the tables that speak of it are merged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.config import Config, NamedEventSettings, ResourceSettings
from dockbell.config.resources import BUILT_IN, RESERVED, ChangeName, PassedSettings, ResourceName, Resources, merge
from dockbell.core.model import RESOURCES, ChangeKind, StatementKind

Read = Callable[[str], Config]
Problems = Callable[[str], list[str]]
Keys = dict[str, Any]

SOURCE = '[sources.main]\nbase_url = "https://api.example.com"\napi_key = "k"\n'
FIVE = ["shipments", "packages", "items", "stock", "warehouses"]


def _read_names(config: Config, source: str = "main") -> list[str]:
    return [feed.resource for feed in config.feeds() if feed.source == source]


def _settings(config: Config, resource: str) -> ResourceSettings:
    return next(feed.settings for feed in config.feeds() if feed.resource == resource)


# The words are the core's, which imports this package and so cannot lend them.


def test_the_resources_are_those_of_the_core() -> None:
    assert list(get_args(ResourceName)) == list(Resources.model_fields) == list(BUILT_IN) == list(RESOURCES) == FIVE


def test_the_changes_are_those_of_the_core_and_what_is_said_of_feeds() -> None:
    assert get_args(ChangeName) == (*ChangeKind, *StatementKind)


def test_no_named_event_takes_a_name_that_has_a_meaning() -> None:
    assert set(RESERVED) == {*ChangeKind, *StatementKind, "feed", "notice", "test"}


def test_settings_for_passes_belong_to_the_resources_that_cannot_be_polled() -> None:
    for name, settings in BUILT_IN.items():
        assert isinstance(settings, PassedSettings) is not RESOURCES[name].polled


# What is read --------------------------------------------------------------------------------------------------------


def test_without_resources_all_five_are_read_with_their_defaults(read: Read) -> None:
    config = read(SOURCE)
    assert _read_names(config) == FIVE
    assert {feed.resource: feed.settings.schedule for feed in config.feeds()} == {
        "shipments": timedelta(minutes=1),
        "packages": timedelta(minutes=1),
        "items": timedelta(minutes=1),
        "stock": timedelta(minutes=15),
        "warehouses": timedelta(hours=1),
    }
    assert all(feed.settings.is_auto for feed in config.feeds())
    assert {feed.resource: feed.settings.reconcile for feed in config.feeds()} == {
        "shipments": timedelta(hours=24),
        "packages": timedelta(hours=24),
        "items": timedelta(hours=24),
        "stock": None,
        "warehouses": None,
    }
    assert {feed.resource: feed.settings.query for feed in config.feeds() if feed.settings.query} == {
        "items": {"status": "all"}
    }


def test_only_listed_resources_are_read_in_the_order_of_the_api(read: Read) -> None:
    assert _read_names(read(SOURCE + "[resources.stock]\n[resources.items]\n")) == ["items", "stock"]


def test_a_resource_that_is_not_enabled_is_not_read(read: Read) -> None:
    config = read(SOURCE + "[resources.stock]\nenabled = false\n[resources.items]\n")
    assert _read_names(config) == ["items"]


def test_an_empty_table_of_resources_lists_nothing_and_so_all_are_read(read: Read) -> None:
    assert _read_names(read(SOURCE + "[resources]\n")) == FIVE


def test_a_source_can_read_more_and_less_than_the_others(read: Read) -> None:
    config = read(
        SOURCE
        + "[resources.items]\n[resources.stock]\nenabled = false\n"
        + SOURCE.replace("main", "b")
        + "[sources.b.resources.stock]\nenabled = true\n[sources.b.resources.items]\nenabled = false\n"
        + "[sources.b.resources.warehouses]\n"
    )
    assert _read_names(config, "main") == ["items"]
    assert _read_names(config, "b") == ["stock", "warehouses"]


def test_an_override_alone_does_not_end_the_default_of_all_five(read: Read) -> None:
    config = read(SOURCE + '[sources.main.resources.stock]\nevery = "1m"\n')
    assert _read_names(config) == FIVE
    assert _settings(config, "stock").schedule == timedelta(minutes=1)


def test_details_are_read_of_shipments(read: Read) -> None:
    text = '[resources.shipments]\ndetail = ["packages", "invoices"]\ndetail_timeout = "1m"\n'
    settings = _settings(read(SOURCE + text), "shipments")
    assert (settings.detail, settings.detail_timeout) == (("packages", "invoices"), timedelta(minutes=1))


def test_named_events_are_tables_of_their_resource_and_an_override_replaces_them_all(read: Read) -> None:
    low = '[[{}.events]]\nname = "low"\nwhen = "after.available < 10"\n'
    gone = '[[{}.events]]\nname = "gone"\nwhen = "after.available == 0"\n'
    common = SOURCE + low.format("resources.stock") + gone.format("resources.stock")
    assert [event.name for event in _settings(read(common), "stock").events] == ["low", "gone"]
    own = common + gone.format("sources.main.resources.stock")
    assert _settings(read(own), "stock").events == (NamedEventSettings(name="gone", when="after.available == 0"),)


# How it is merged ----------------------------------------------------------------------------------------------------


def test_a_sources_own_table_overrides_key_by_key(read: Read) -> None:
    config = read(
        SOURCE
        + '[resources.items]\nevery = "9s"\nignore = ["/a"]\ntouch = true\nquery = { sku = "A" }\n'
        + '[sources.main.resources.items]\nevery = "8s"\nignore = ["/b"]\nquery = { status = "active" }\n'
    )
    settings = _settings(config, "items")
    assert settings.every == timedelta(seconds=8)
    assert settings.ignore == ("/b",)
    assert settings.touch
    assert settings.query == {"status": "active", "sku": "A"}
    assert settings.reconcile == timedelta(hours=24)


def test_cron_takes_the_place_of_the_interval_below_it_and_the_other_way_round(read: Read) -> None:
    config = read(
        SOURCE
        + '[resources.items]\ncron = "0 6 * * mon-fri"\n[resources.stock]\ncron = "0 7 * * *"\n'
        + '[sources.main.resources.stock]\nevery = "1m"\n'
    )
    items, stock = _settings(config, "items"), _settings(config, "stock")
    assert (items.every, items.cron, items.schedule) == (None, "0 6 * * mon-fri", "0 6 * * mon-fri")
    assert (stock.every, stock.cron, stock.schedule) == (timedelta(minutes=1), None, timedelta(minutes=1))


@pytest.mark.parametrize(
    ("common", "own", "every", "at_most"),
    [
        ('every = "auto"', "touch = true", "auto", 15),
        ('every = "30s"', 'every = "auto"', "auto", 15),
        ('every = "30s"', 'at_most = "2m"', None, 2),
        ('at_most = "2m"', "weight = 3", None, 2),
        ('at_most = "2m"', 'every = "30s"', timedelta(seconds=30), None),
    ],
)
def test_what_says_when_is_replaced_as_one(
    read: Read, common: str, own: str, every: str | timedelta | None, at_most: int | None
) -> None:
    config = read(f"{SOURCE}[resources.stock]\n{common}\n[sources.main.resources.stock]\n{own}\n")
    (stock,) = config.feeds()
    assert stock.settings.every == every
    assert stock.settings.at_most == (None if at_most is None else timedelta(minutes=at_most))
    assert stock.settings.is_auto is (at_most is not None)


POINTERS = st.sampled_from(["/a", "/b/c", "/d/*/e"])
KEYS: st.SearchStrategy[Keys] = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "every": st.sampled_from(["1s", "2s", "3s"]),
        "reconcile": st.sampled_from(["1h", "2h"]),
        "lookback": st.sampled_from(["auto", "5s"]),
        "first_pass": st.sampled_from(["baseline", "emit"]),
        "ignore": st.lists(POINTERS, max_size=2),
        "key": st.lists(POINTERS, min_size=1, max_size=2),
        "query": st.dictionaries(st.sampled_from(["status", "sku"]), st.sampled_from(["x", 7, True]), max_size=2),
        "touch": st.booleans(),
        "stale_window": st.sampled_from(["0s", "1m"]),
        "events": st.lists(st.just({"name": "low", "when": "after.available < 10"}), max_size=1),
    },
)


def _layer(keys: Keys) -> ResourceSettings:
    return ResourceSettings.model_validate(keys)


def _unite(below: Keys, above: Keys) -> Keys:
    """Say it once more, in the terms of the file."""
    query = {**below.get("query", {}), **above.get("query", {})}
    return {**below, **above, **({"query": query} if "query" in {*below, *above} else {})}


@given(KEYS, KEYS)
def test_two_tables_are_as_one_that_holds_the_keys_of_both(below: Keys, above: Keys) -> None:
    assert merge(_layer(below), _layer(above)) == _layer(_unite(below, above))


@given(KEYS, KEYS, KEYS)
def test_it_makes_no_difference_which_tables_are_merged_first(first: Keys, second: Keys, third: Keys) -> None:
    a, b, c = _layer(first), _layer(second), _layer(third)
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)


@given(KEYS)
def test_an_empty_table_changes_nothing(keys: Keys) -> None:
    assert merge(_layer(keys), ResourceSettings()) == merge(ResourceSettings(), _layer(keys)) == _layer(keys)


def test_a_lone_text_stands_for_a_list_of_one() -> None:
    settings = _layer({"key": "/id", "ignore": "/seen_at", "expand": "packages"})
    assert (settings.key, settings.ignore, settings.expand) == (("/id",), ("/seen_at",), ("packages",))
