"""The base of every table, and plain words for what does not fit it."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from dockbell.config.values import name_kind, show
from dockbell.errors import ConfigError

_PLAIN: Final = "plain"
_TOLD_MOST: Final = 100
_SUGGESTED_MOST: Final = 20
_WANTED: Final = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a number",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a table",
    "string_type": "text in quotes",
    "tuple_type": "a list",
}
_SHOWN: Final = {"bool_type", "finite_number", "float_type", "int_type"}  # no secret is one of these
_BOUNDS: Final = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def suggest(word: str, known: Iterable[str]) -> str:
    """Return what to say after an unknown word: ``did you mean "every"?``, or else which words are known."""
    names = list(known)
    close = get_close_matches(word.lower().replace("-", "_"), names, n=1)
    if close:
        return f'did you mean "{close[0]}"?'
    more = len(names) - _SUGGESTED_MOST
    return f"available: {', '.join(names[:_SUGGESTED_MOST])}{f' and {more} more' if more > 0 else ''}"


def refuse(problems: Sequence[str]) -> ConfigError:
    """Return the error for some problems; of very many, which mostly have one cause, the first."""
    more = len(problems) - _TOLD_MOST
    return ConfigError(
        *problems[:_TOLD_MOST], *([f"and {more} more problems; correct these first"] if more > 0 else [])
    )


def misfit(*problems: tuple[tuple[str | int, ...], str]) -> ValidationError:
    """Return an error that a validator raises for problems at places below its own, each with its words."""
    return ValidationError.from_exception_data(
        "configuration",
        [
            InitErrorDetails(type=PydanticCustomError(_PLAIN, "{words}", {"words": words}), loc=place, input=None)
            for place, words in problems
        ],
    )


def describe(error: ErrorDetails) -> str:
    """Return plain words for one of pydantic's errors; they show no value that may be a secret."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    match kind:
        case "missing":
            return "missing; add it"
        case "string_too_short" | "too_short" if context["min_length"] == 1:
            return "must not be empty"
        case "literal_error":
            choices = [literal_eval(choice) for choice in re.findall(r"'[^']*'|\d+", context["expected"])]
            *others, last = map(show, choices)
            hint = suggest(given, choices) if isinstance(given, str) else ""
            wanted = " or ".join(filter(None, [", ".join(others), last]))
            got = show(given) + (f"; {hint}" if hint.endswith("?") else "")
        case _ if kind in _WANTED:
            wanted, got = _WANTED[kind], show(given) if kind in _SHOWN else name_kind(given)
        case _ if kind in _BOUNDS:
            relation, bound = _BOUNDS[kind]
            wanted, got = f"{relation} {_show_bound(context[bound])}", show(given)
        case _:
            return str(context.get("error", error["msg"])).replace("Input should", "must")
    return f"must be {wanted}, got {got}"


def _show_bound(bound: object) -> str:
    if isinstance(bound, str):  # pydantic tells the repr of a timedelta
        bound = timedelta(**{unit: int(count) for unit, count in re.findall(r"(\w+)=(\d+)", bound)})
    return show(bound)


class Settings(BaseModel):
    """One table of the configuration: frozen, strict about types and unknown keys, plain in what it says of them."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,  # what only imports a model need not wait for its validator
    )

    @model_validator(mode="wrap")
    @classmethod
    def _say_it_plainly(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(given)
        except ValidationError as error:
            problems = [(line["loc"], cls._describe(line)) for line in error.errors(include_url=False)]
        raise misfit(*problems)

    @classmethod
    def _describe(cls, error: ErrorDetails) -> str:
        if error["type"] == "extra_forbidden":
            what = "table" if isinstance(error["input"], dict) else "key"
            return f"unknown {what}; {suggest(str(error['loc'][-1]), cls.model_fields)}"
        return describe(error)
