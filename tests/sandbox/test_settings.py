from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from dockbell.errors import ConfigError
from dockbell.sandbox import SandboxOptions
from dockbell.sandbox.options import CHANGEABLE, Settings, parse

if TYPE_CHECKING:
    from tests.sandbox.conftest import Clock


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
    with pytest.raises(ConfigError, match=r"seed can only be chosen at the start\n.*no option 'colour'"):
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
