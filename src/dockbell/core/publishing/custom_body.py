"""The body of a request in the form that its receiver asks for, made by an expression instead of as a CloudEvent."""

from __future__ import annotations

from typing import Final

import msgspec

from dockbell.config import ValueExpression
from dockbell.core.model import Event
from dockbell.core.publishing.filters import BODIES, find_facts

_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


class CustomBody:
    """Makes the bodies of one sink; ``text`` is an expression in CEL, see :class:`~dockbell.config.ValueExpression`."""

    def __init__(self, text: str, content_type: str | None = None) -> None:
        self._expression = ValueExpression(text)
        self._content_type = content_type

    def write(self, event: Event) -> tuple[str, bytes] | None:
        """Return the content type and the body for an event as it is shown to the sink.

        A text is the body as it is, any other value is JSON. None: the value is null, nothing is to be sent.

        Raises:
            ValueError: The expression has no value for this event.
        """
        try:
            shown = BODIES.decode(event.body)
            value = self._expression.find(find_facts(self._expression, event, shown.data, time=shown.time))
            if value is None:
                return None
            if isinstance(value, str):
                return self._content_type or _TEXT, value.encode()
            return self._content_type or _JSON, msgspec.json.encode(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"body: {error}") from None
