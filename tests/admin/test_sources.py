from __future__ import annotations

from collections.abc import Callable

import pytest

from dockbell.admin.sources import Edit, add, change, list_sources, pause, put, remove
from dockbell.config.source_tables import GivenSources
from dockbell.config.values import Table
from dockbell.errors import ConfigError

SHARED: Table = {
    "source_defaults": {"base_url": "https://api.example.com"},
    "sources": {
        "acme": {"resources": {"stock": {"every": "1m", "at_most": "5m"}}},
        "eu-1": {"paused": True},
        "eu-2": {"requests_per_minute": 600},
    },
}


def test_a_source_is_added_beside_the_others() -> None:
    edited = add(GivenSources({"new": {"paused": True}}))(SHARED)
    assert edited.sources == SHARED["sources"] | {"new": {"paused": True}}
    assert (edited.added, edited.touched, edited.is_idle) == (("new",), ("new",), False)
    assert edited.given == {"new": {"paused"}}


def test_one_that_is_there_is_not_added_again() -> None:
    with pytest.raises(ConfigError, match=r'\[sources.acme\]: already exists; change it with "dockbell sources set"'):
        add(GivenSources({"acme": {}}))(SHARED)


def test_what_is_imported_replaces_but_leaves_a_pause() -> None:
    given = {"new": {}, "eu-1": {"requests_per_minute": 60}, "eu-2": {"requests_per_minute": 600}}
    edited = put(GivenSources(given))(SHARED)
    assert edited.sources == SHARED["sources"] | {"new": {}, "eu-1": {"paused": True, "requests_per_minute": 60}}
    assert (edited.added, edited.changed, edited.unchanged) == (("new",), ("eu-1",), ("eu-2",))


def test_keys_of_a_resource_are_set_one_by_one_and_taken_out() -> None:
    edited = change(["acme"], {"resources": {"stock": {"every": "2m"}, "items": {}}}, ["resources.stock.at_most"])(
        SHARED
    )
    assert edited.sources["acme"] == {"resources": {"stock": {"every": "2m"}, "items": {}}}
    assert edited.sources["eu-2"] == SHARED["sources"]["eu-2"]


def test_a_table_that_is_empty_then_is_taken_out_too() -> None:
    edited = change(["acme"], {}, ["resources.stock.at_most", "resources.stock.every"])(SHARED)
    assert edited.sources["acme"] == {}


def test_what_is_not_set_cannot_be_unset() -> None:
    with pytest.raises(ConfigError, match=r"paused: is not set, so it cannot be unset"):
        change(["acme"], {}, ["paused"])(SHARED)


def test_keys_of_many_sources_are_set_and_taken_out_at_once() -> None:
    edited = change(["acme", "eu-*"], {"share": 0.5}, ["requests_per_minute"])(SHARED)
    assert edited.sources == {
        "acme": SHARED["sources"]["acme"] | {"share": 0.5},
        "eu-1": {"paused": True, "share": 0.5},
        "eu-2": {"share": 0.5},
    }
    assert edited.changed == ("acme", "eu-1", "eu-2")
    assert all(set(keys) == {"share"} for keys in edited.given.values())
    with pytest.raises(ConfigError, match=r"\[sources.acme\] share, \[sources.eu-1\] share, .*: is not set"):
        change(["*"], {}, ["share"])(SHARED)


def test_sources_are_paused_and_resumed_by_pattern() -> None:
    paused = pause(["eu-*"], paused=True)(SHARED)
    assert {name: each.get("paused") for name, each in paused.sources.items()} == {
        "acme": None,
        "eu-1": True,
        "eu-2": True,
    }
    assert (paused.changed, paused.unchanged) == (("eu-2",), ("eu-1",))
    resumed = pause(["*"], paused=False)(SHARED)
    assert not any("paused" in each for each in resumed.sources.values())


def test_where_all_are_paused_by_default_a_resumed_one_says_so() -> None:
    shared = SHARED | {"source_defaults": {"paused": True}}
    assert pause(["eu-1"], paused=False)(shared).sources["eu-1"] == {"paused": False}
    assert pause(["eu-1"], paused=True)(shared).sources["eu-1"] == {}


def test_sources_are_removed() -> None:
    edited = remove(["eu-?", "acme"])(SHARED)
    assert edited.sources == {}
    assert sorted(edited.removed) == ["acme", "eu-1", "eu-2"]


@pytest.mark.parametrize(
    "edit",
    [remove, lambda names: pause(names, paused=True), lambda names: change(names, {}, ["share"])],
    ids=["remove", "pause", "change"],
)
def test_a_name_that_means_none_is_refused(edit: Callable[[list[str]], Edit]) -> None:
    with pytest.raises(ConfigError, match=r'no source "acne"; did you mean "acme"\?'):
        edit(["acne"])(SHARED)
    with pytest.raises(ConfigError, match=r'no source matches "us-\*"'):
        edit(["us-*"])(SHARED)


def test_nothing_is_changed_in_place() -> None:
    before = repr(SHARED)
    change(["acme"], {"resources": {"stock": {"every": "2m"}}}, ["resources.stock.at_most"])(SHARED)
    pause(["*"], paused=True)(SHARED)
    assert repr(SHARED) == before


def test_sources_are_listed_with_their_defaults_and_who_has_them() -> None:
    found = list(list_sources(SHARED, {"eu-2": "process 7 on a"}, ["eu-*"]))
    assert [(each.name, each.base_url, each.is_paused, each.process) for each in found] == [
        ("eu-1", "https://api.example.com", True, ""),
        ("eu-2", "https://api.example.com", False, "process 7 on a"),
    ]
    assert [each.name for each in list_sources(SHARED, {}, [], paused=True)] == ["eu-1"]
    assert [each.name for each in list_sources(SHARED, {"eu-2": "process 7 on a"}, [], process="on a")] == ["eu-2"]
