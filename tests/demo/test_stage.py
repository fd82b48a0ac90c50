from __future__ import annotations

import logging
import tomllib
from datetime import timedelta
from math import ceil
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dockbell.config import Config, validate
from dockbell.core.model import RESOURCES
from dockbell.demo.stage import CONFIRM_AFTER, _log_to, write_config
from dockbell.sandbox import SandboxOptions
from dockbell.sinks import load_sink_type

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
