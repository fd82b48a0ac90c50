from __future__ import annotations

from dockbell.sinks.mqtt.omissions import Omissions
from dockbell.telemetry import SinkOmits
from tests.sinks.conftest import Facts


def test_many_states_are_told_in_a_count_and_each_only_once() -> None:
    facts = Facts()
    omissions = Omissions("floor", facts.telemetry, {})
    for number in range(100_000):
        omissions.report_state(f"t/{number}", "too large")
        omissions.report_state("t/0", "too large")
    told = facts.of(SinkOmits)
    assert told[:2] == ["sink floor: leaves out t/0, too large", "sink floor: leaves out t/1, too large"]
    assert told[15:18] == [
        "sink floor: leaves out t/15, too large",
        "sink floor: leaves out t/31, too large, as 31 others",
        "sink floor: leaves out t/63, too large, as 63 others",
    ]
    assert told[-1] == "sink floor: leaves out t/16383, too large, as 16383 others"


def test_a_long_topic_is_cut() -> None:
    facts = Facts()
    Omissions("floor", facts.telemetry, {}).report_state("x" * 60_000, "too large")
    assert len(facts.of(SinkOmits)[0]) < 300
