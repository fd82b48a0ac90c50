"""Facts as a whole: each is found in one place, and tells its line."""

from __future__ import annotations

import pytest

from dockbell import telemetry
from dockbell.telemetry import Fact, facts, reading_facts, sink_facts

FACTS = [
    each
    for module in (facts, reading_facts, sink_facts)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Fact) and each.__module__ == module.__name__ and each is not Fact
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
def test_a_fact_is_taken_from_telemetry_and_has_a_line_of_its_own(fact: type[Fact]) -> None:
    assert getattr(telemetry, fact.__name__) is fact
    assert {"__str__", "line"} & {*vars(fact)}
    assert not {"fact", "time", "level", "text", "trace"} & {*fact.__struct_fields__}  # the log's own


def test_no_other_names_are_facts() -> None:
    found = {each for each in vars(telemetry).values() if isinstance(each, type) and issubclass(each, Fact)}
    assert found == {*FACTS, Fact}
