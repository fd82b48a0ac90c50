"""The pages of the reference, each with what writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.reference import commands, configuration, errors, events, metrics, web

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "configuration": configuration.write,
    "commands": commands.write,
    "events": events.write,
    "metrics": metrics.write,
    "web-api": web.write,
    "errors": errors.write,
}
