"""How records look on a page where that is left to chance, and the records that spoil one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

from dockbell.sandbox.edits import edit_body
from dockbell.sandbox.encoding import encode
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.settings import Settings
from dockbell.sandbox.table import Row

_HALF: Final = 0.5
_POISONS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "cut": lambda body: body[: len(body) // 2],
    "surrogate": lambda body: body[:-1] + rb',"note":"cut inside an emoji \ud83d"}',
    "nan": lambda body: body[:-1] + b',"ratio":NaN}',
    "invalid_utf8": lambda body: body[:-1] + b',"note":"\xff\xfe"}',
    "control": lambda body: body[:-1] + b',"note":"two\nlines"}',
}
"""What can be wrong with the text of one record."""


class Shaper:
    """Rewrites the bodies of records before they are sent.

    Args:
        settings: What is rewritten.
        dice: By chance, where it is.
        name: Returns the identity of a row.
    """

    def __init__(self, settings: Settings, dice: Random, name: Callable[[Row], str]) -> None:
        self._settings = settings
        self._dice = dice
        self._name = name

    def shape(self, resource: str, rows: Sequence[Row], bodies: list[bytes]) -> list[bytes]:
        """Return the bodies of a page's records as they are sent."""
        options = self._settings.options
        if options.shuffle_arrays or options.shuffle_members or options.numbers != "plain":
            bodies = [encode(self._turn(json.loads(body), options)) for body in bodies]
        if options.poisoned or options.keyless or options.doubled:
            pairs = zip(rows, bodies, strict=True)
            bodies = [part for row, body in pairs for part in self._spoil(resource, row, body, options)]
        return bodies

    def _spoil(self, resource: str, row: Row, body: bytes, options: SandboxOptions) -> Iterator[bytes]:
        name = f"{resource}/{self._name(row)}"
        if name == options.poisoned:
            yield _POISONS[options.poison](body)
        elif name == options.keyless:
            record = json.loads(body)
            del record["sku" if options.id_field not in record else options.id_field]
            yield encode(record)
        else:
            yield body
        if name == options.doubled:
            yield edit_body(resource, body)

    def _turn(self, value: Any, options: SandboxOptions) -> Any:
        match value:
            case dict():
                members = [(name, self._turn(part, options)) for name, part in value.items()]
                if options.shuffle_members:
                    self._dice.shuffle(members)
                return dict(members)
            case list():
                elements = [self._turn(part, options) for part in value]
                if options.shuffle_arrays:
                    self._dice.shuffle(elements)
                return elements
            case int() if not isinstance(value, bool) and options.numbers != "plain":
                return value if options.numbers == "mixed" and self._dice.random() < _HALF else float(value)
            case _:
                return value
