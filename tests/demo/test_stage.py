from __future__ import annotations

import logging
import re
import tomllib
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dockbell.config import Config, validate
from dockbell.core.model import RESOURCES
from dockbell.demo import stage
from dockbell.demo.stage import CONFIRM_AFTER, _log_to, write_config
from dockbell.sandbox import SandboxOptions
from dockbell.sinks import load_sink_type
from tests.demo.picture import PICTURE

ROOT = Path(__file__).parents[2]
MINUTE = timedelta(minutes=1)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def make(records: int, broker_url: str | None = "mqtt://127.0.0.1:1883") -> Config:
    text = write_config(
        "http://127.0.0.1:1",
        "key",
        listen="127.0.0.1:8471",
        counts=SandboxOptions(records=records).counts(),
        broker_url=broker_url,
        hook_url="http://127.0.0.1:2",
        secret=SECRET,
    )
    return validate(tomllib.loads(text), lambda kind: load_sink_type(kind).Settings)


def test_the_configuration_is_one_that_a_user_could_write() -> None:
    config = make(1500)
    assert [feed.resource for feed in config.feeds()] == list(RESOURCES)
    assert config.web is not None
    assert config.web.listen == "127.0.0.1:8471"
    assert all(feed.settings.confirm_after == CONFIRM_AFTER for feed in config.feeds())
    assert {name: sink.type for name, sink in config.sinks.items()} == {"mqtt": "mqtt", "hook": "webhook"}


def test_without_a_broker_there_are_webhooks_only() -> None:
    assert list(make(1500, broker_url=None).sinks) == ["hook"]


@given(st.integers(2, 1_000_000))
def test_its_requests_fit_in_the_budget_whatever_the_number_of_records(records: int) -> None:
    config, counts = make(records), SandboxOptions(records=records).counts()
    source = config.sources["main"]
    asked = sum(requests_a_minute(feed.settings, counts[feed.resource]) for feed in config.feeds())
    assert asked <= 226 < source.requests_per_minute * source.share


def requests_a_minute(settings: Any, count: int) -> float:
    """Return what a feed costs: polls of one page, and each reconcile with the pass that confirms it."""
    pages = max(1, ceil(count / 200))
    runs: float = MINUTE / settings.every
    if settings.reconcile is None:
        return pages * runs
    return runs + 2 * pages * float(MINUTE / settings.reconcile)


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def warn(self, *what: Any) -> None:
        self.heard.append(what)


def test_warnings_of_libraries_are_shown_and_their_chatter_is_not() -> None:
    listener, logger = Listener(), logging.getLogger("library")
    with _log_to(listener):  # type: ignore[arg-type]  # all that is needed of a witness
        logger.info("chatter")
        logger.warning("%s is wrong", "this")
    logger.warning("later")
    assert listener.heard == [("library", "library: this is wrong", logging.WARNING)]


def test_what_the_defaults_give_is_what_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    typical = {
        name: float(seconds)
        for names, seconds in re.findall(r"(?m)^\| ([a-z, ]+?) \| (?:[^|]+\|){2} ([0-9.]+) s, [0-9.]+ s \|", readme)
        for name in names.split(", ")
    }
    quick = [seconds for name, seconds in typical.items() if name != "warehouses"]
    told = f"{min(quick):g} to {max(quick):g} s typically, {typical['warehouses']:g} s for warehouses"
    assert told == stage.QUICKER[-1]


def test_the_picture_is_bright_and_each_colour_in_it_stands_out() -> None:
    drawn = PICTURE.read_text(encoding="utf-8")
    background, title = re.findall(r'fill="(#[0-9a-f]{6})"', drawn)[:2]
    colours = {title, *re.findall(r"fill: (#[0-9a-f]{6})", drawn)}
    assert len(colours) > 5
    assert luminance(background) > 0.9
    assert {each for each in colours if contrast(each, background) < 4.5} == set()


def contrast(colour: str, background: str) -> float:
    """Return the contrast of two colours as WCAG 2 defines it, from 1 to 21."""
    dark, bright = sorted((luminance(colour), luminance(background)))
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
