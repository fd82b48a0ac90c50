"""Facts as a whole: each is found in one place, and tells its line."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules

import pytest

from dockbell import telemetry
from dockbell.telemetry import Fact, facts

MODULES = [import_module(f"{facts.__name__}.{each.name}") for each in iter_modules(facts.__path__)]
FACTS = [
    each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Fact) and each.__module__ == module.__name__
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_a_fact_is_taken_from_telemetry_and_has_a_line_of_its_own(fact: type[Fact]) -> None:
    assert getattr(telemetry, fact.__name__) is fact
    assert fact.__name__ in telemetry.__all__
    assert {"__str__", "line"} & {*vars(fact)}
    assert not {"fact", "time", "level", "text", "trace"} & {field.name for field in fields(fact)}  # the log's own


def test_no_other_names_are_facts() -> None:
    assert set(telemetry.__all__) == {fact.__name__ for fact in FACTS} | {"Fact", "Telemetry"}
