from __future__ import annotations

import logging
from typing import Any

from dockbell.demo.stage import _log_to


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
