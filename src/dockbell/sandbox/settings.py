"""The options in force: those of the start, as far as nobody has changed them since."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from dockbell.errors import ConfigError
from dockbell.sandbox.options import SandboxOptions
from dockbell.sandbox.refusal import suggest

Clock: TypeAlias = Callable[[], datetime]

_HINTS: Final = get_type_hints(SandboxOptions)
CHANGEABLE: Final = tuple(option.name for option in fields(SandboxOptions) if not option.metadata["fixed"])
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


class Settings:
    """Holds the options for all parts of a sandbox; each part reads them anew for each request.

    Args:
        options: Those of the start.
        clock: Says when an option was set.

    Attributes:
        options: Those in force.
        listeners: Called with the options after each change.
    """

    def __init__(self, options: SandboxOptions, clock: Clock) -> None:
        self.options = options
        self.listeners: list[Callable[[SandboxOptions], None]] = []
        self._clock = clock
        self._started = clock()
        self._set_at: dict[str, datetime] = {}

    def change(self, **values: Any) -> None:
        """Set some options.

        Raises:
            ConfigError: One is unknown, can only be chosen at the start, or has a value that cannot be used. Nothing
                is changed.
        """
        problems = [problem for name in values if (problem := _refuse(name))]
        if problems:
            raise ConfigError(*problems)
        self.options = replace(self.options, **values)
        self._set_at |= dict.fromkeys(values, self._clock())
        for listen in self.listeners:
            listen(self.options)

    def seconds_since(self, name: str) -> float:
        """Return for how long an option has had its value, in seconds."""
        return (self._clock() - self._set_at.get(name, self._started)).total_seconds()

    def count_down(self, name: str) -> None:
        """Take one from an option that counts; one without a number goes on without end."""
        left = getattr(self.options, name)
        if left:
            self.options = replace(self.options, **{name: left - 1})


def parse(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return options from their texts, as a query has them.

    Several API keys are separated by commas; nothing stands for none.

    Raises:
        ConfigError: One is unknown, or its text is not of its type.
    """
    problems = [problem for name in texts if (problem := _refuse(name))]
    if problems:
        raise ConfigError(*problems)
    return {name: _parse(name, text) for name, text in texts.items()}


def _refuse(name: str) -> str | None:
    if name in CHANGEABLE:
        return None
    if name in _HINTS:
        return f"sandbox: {name} can only be chosen at the start"
    return f"sandbox: there is no option {name!r}{suggest(name, CHANGEABLE)}"


def _parse(name: str, text: str) -> Any:
    hint = _HINTS[name]
    if get_origin(hint) is Literal:
        return next((choice for choice in get_args(hint) if str(choice) == text), text)
    if get_origin(hint) is tuple:
        return tuple(text.split(","))
    kinds = get_args(hint) or (hint,)
    if not text and type(None) in kinds:
        return None
    try:
        return _TRUTH[text.lower()] if bool in kinds else kinds[0](text)
    except (KeyError, ValueError):
        raise ConfigError(f"sandbox: {name} must be a {kinds[0].__name__}, got {text!r}") from None
