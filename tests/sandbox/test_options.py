from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.errors import ConfigError
from dockbell.sandbox import Sandbox, SandboxOptions
from dockbell.sandbox.options import CHANGEABLE, Settings, parse

if TYPE_CHECKING:
    from tests.sandbox.conftest import Clock

PAGE = Path(__file__).parents[2] / "docs" / "sandbox.md"


@given(st.integers(2, 1_000_000))
def test_the_resources_share_exactly_the_asked_number_of_records(records: int) -> None:
    assert sum(SandboxOptions(records=records).counts().values()) == records


@pytest.mark.parametrize("records", [2, 3, 5, 15, 40])
def test_even_the_smallest_sandbox_holds_what_it_promises(records: int) -> None:
    options = SandboxOptions(records=records)
    sandbox = Sandbox(options)
    assert {name: len(sandbox.records(name)) for name in options.counts()} == options.counts()


def test_a_resource_can_have_its_own_number_of_records() -> None:
    options = SandboxOptions(shipments=7, packages=30, items=4, stock=9, warehouses=3)
    sandbox = Sandbox(options)
    sizes = {name: len(sandbox.records(name)) for name in options.counts()}
    assert sizes == {"shipments": 7, "packages": 30, "items": 4, "stock": 9, "warehouses": 3}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"records": -1}, "records must be between 0 and"),
        ({"records": 0}, "at least 1 warehouse and 1 item are needed"),
        ({"warehouses": 0}, "at least 1 warehouse and 1 item are needed"),
        ({"items": 2, "warehouses": 2, "stock": 5}, "5 stock levels do not fit 2 items in 2 warehouses"),
        ({"shipments": 0, "packages": 3}, "packages need shipments"),
        ({"activity": -1.0}, "activity must not be negative, got -1.0"),
        ({"activity": float("nan")}, "activity must not be negative, got nan"),
        ({"error_rate": 1.5}, "error_rate must be between 0 and 1, got 1.5"),
        ({"cursors": "number"}, "cursors must be one of keyset, offset, page, got 'number'"),
        ({"cursors": "page", "short_pages": 0.1}, "short_pages and empty_pages would skip records with page cursors"),
        ({"cursor_with": "nothing", "cursor_form": "digits"}, "a number cannot identify its listing"),
        ({"end_of_list": None}, "end_of_list must be one of null, absent, empty, got None"),
        ({"cursor_expired": 418}, "cursor_expired must be one of 400, 404, 410, 422, got 418"),
        ({"page_cap": 0}, "page_cap must be between 1 and 200, got 0"),
        ({"replicas": 0}, "replicas must be between 1 and 100, got 0"),
        ({"date_skew": float("nan")}, "date_skew must be between -inf and inf, got nan"),
        ({"clock_skew": 1e12}, "clock_skew must be between -1000000000.0 and 1000000000.0, got 1000000000000.0"),
        ({"cursor_form": "digits", "empty_pages": 0.1}, "empty_pages need opaque cursors"),
        ({"cursor_form": "integer", "order": "id"}, "a keyset cursor in the order of id is not a number"),
        ({"poisoned": "stk_1"}, "poisoned must be RESOURCE/ID, got 'stk_1'"),
        ({"keyless": "socks/1"}, "keyless must be RESOURCE/ID, got 'socks/1'"),
        ({"fault_record": "stk_1"}, "fault_record must be RESOURCE/ID, got 'stk_1'"),
        ({"retry_after": -1}, "retry_after must be between 0 and 10000000, got -1"),
        ({"error_with": 418}, "error_with must be one of 0, 400, 401, "),
        ({"doubled": "stock/"}, "doubled must be RESOURCE/ID, got 'stock/'"),
        ({"id_field": ""}, "id_field must differ from timestamp_field and not be empty"),
        (
            {"id_field": "at", "timestamp_field": "at"},
            "id_field must differ from timestamp_field and not be empty, got 'at'",
        ),
        ({"envelope": "next_cursor"}, 'envelope must not be "next_cursor"'),
        ({"api_keys": ()}, "api_keys must be one or more keys of printable ASCII"),
        ({"api_keys": ("é",)}, "api_keys must be one or more keys of printable ASCII"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        SandboxOptions(**options)


def test_a_field_name_that_records_already_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="have a field 'name' of their own"):
        Sandbox(SandboxOptions(records=15, id_field="name"))


def test_every_option_says_its_meaning_and_its_type() -> None:
    hints = get_type_hints(SandboxOptions)
    assert all(option.metadata["help"] and option.name in hints for option in fields(SandboxOptions))


def test_a_number_may_be_a_cursor_of_any_order_that_has_offsets() -> None:
    assert SandboxOptions(cursor_form="integer", cursors="offset", order="warehouse")


def test_the_documentation_holds_every_option_with_its_default_and_meaning() -> None:
    rows = re.findall(r"^\| `([a-z_]+)`(\*?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (option.name, "*" * option.metadata["fixed"], _shown(option.default), option.metadata["help"])
        for option in fields(SandboxOptions)
    ]


def test_the_records_shown_in_the_documentation_are_those_of_the_default_sandbox() -> None:
    sandbox = Sandbox()
    resources = ("shipments", "packages", "items", "stock", "warehouses")
    records = {name: body for resource in resources for name, body in sandbox.records(resource).items()}
    shown = [
        json.loads(block) for block in re.findall(r"^```json\n(.+?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    ]
    assert len(shown) == 3
    assert [json.loads(records[record["id"]]) for record in shown] == shown


def _shown(default: object) -> str:
    if default is None or default == "":
        return "none"
    return f"`{','.join(default) if isinstance(default, tuple) else default}`"


# Options that change while it runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (("page_cap", "50"), 50),
        (("latency", "0.5"), 0.5),
        (("gzip", "true"), True),
        (("gzip", "0"), False),
        (("refuse_with", "401"), 401),
        (("order", "id"), "id"),
        (("fault_most", "3"), 3),
        (("fault_most", ""), None),
        (("api_keys", "a,b"), ("a", "b")),
        (("poisoned", "stock/stk_1"), "stock/stk_1"),
    ],
)
def test_a_text_becomes_a_value_of_the_option_s_type(text: tuple[str, str], value: Any) -> None:
    (parsed,) = parse(dict([text])).values()
    assert (parsed, type(parsed)) == (value, type(value))


def test_every_default_is_read_back_from_its_text() -> None:
    for option in fields(SandboxOptions):
        if option.name in CHANGEABLE and not isinstance(option.default, tuple):
            text = "" if option.default is None else str(option.default)
            assert parse({option.name: text}) == {option.name: option.default}


def test_every_unknown_or_fixed_option_is_named(clock: Clock) -> None:
    settings = Settings(SandboxOptions(), clock)
    with pytest.raises(ConfigError, match=r"seed can only be set at the start\n.*unknown option 'colour'"):
        settings.change(seed=2, colour="red")
    assert settings.options == SandboxOptions()


def test_it_tells_since_when_an_option_has_its_value(clock: Clock) -> None:
    settings = Settings(SandboxOptions(), clock)
    clock.turn(5)
    settings.change(refuse_with=401)
    clock.turn(2)
    assert settings.seconds_since("refuse_with") == 2
    assert settings.seconds_since("refuse_for") == 7


def test_an_option_that_counts_ends_at_zero_and_one_without_a_number_never(clock: Clock) -> None:
    settings = Settings(SandboxOptions(fault_skip=1), clock)
    for _ in range(2):
        settings.count_down("fault_skip")
    settings.count_down("fault_most")
    assert settings.options == SandboxOptions()
