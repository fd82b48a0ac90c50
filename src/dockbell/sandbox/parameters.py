"""Reading a request's parameters: each is what the specification allows, or refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request

from dockbell.sandbox.catalog import Resource
from dockbell.sandbox.moments import to_micros
from dockbell.sandbox.options import PAGE_MOST, SandboxOptions
from dockbell.sandbox.query import Query
from dockbell.sandbox.refusal import Refusal, suggest

LIMIT_DEFAULT: Final = 25
_DIGITS_MOST: Final = 18


def read_parameters(request: Request, accepted: tuple[str, ...], *, lenient: bool = False) -> dict[str, str]:
    """Return the query parameters; a lenient reader leaves out those that are not accepted here.

    Raises:
        Refusal: One is not accepted here, is given twice or is empty.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in accepted:
            if lenient:
                continue
            text = f"unknown parameter {name!r}{suggest(name, accepted)}"
            raise Refusal(400, "unknown_parameter", text, parameter=name)
        if name in given:
            raise _invalid(name, "is given more than once; give it once")
        if not value:
            raise _invalid(name, "is empty; give a value or leave it out")
        given[name] = value
    return given


def read_query(request: Request, resource: Resource, options: SandboxOptions, now: int) -> Query:
    """Return what a listing is asked for.

    Args:
        request: Asks.
        resource: For this one.
        options: May allow less than the specification.
        now: The service's time, microseconds since 1970.

    Raises:
        Refusal: A parameter is not what the specification, or an option, allows.
    """
    given = read_parameters(request, resource.parameters, lenient=options.unknown_parameters == "ignore")
    if "cursor" in given:
        _check_company(given, options)
    return Query(
        resource=resource.name,
        limit=read_number(given, "limit", 1, PAGE_MOST, LIMIT_DEFAULT),
        cursor=given.get("cursor"),
        expand=read_expand(given, resource, options),
        since=_read_since(given, options, now),
        status=_read_status(given, resource),
        terms={name: given[name] for name in resource.filters if name in given},
    )


def read_number(given: dict[str, str], name: str, least: int, most: int, default: int) -> int:
    """Return an integer parameter.

    Raises:
        Refusal: It is none, or outside the limits.
    """
    text = given.get(name, str(default))
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MOST else None
    if number is None or not least <= number <= most:
        raise _invalid(name, f"must be an integer from {least} to {most}, got {_shorten(text)}")
    return number


def read_expand(given: dict[str, str], resource: Resource, options: SandboxOptions) -> tuple[str, ...]:
    """Return the relations to embed, each once.

    Raises:
        Refusal: One is not known here.
    """
    names = tuple(dict.fromkeys(name.strip() for name in given["expand"].split(","))) if "expand" in given else ()
    if options.unknown_expand == "ignore":
        return tuple(name for name in names if name in resource.expand)
    for name in names:
        if name not in resource.expand:
            raise _invalid(
                "expand", f"cannot embed {_shorten(name)} in {resource.name}{suggest(name, resource.expand)}"
            )
    return names


def _check_company(given: dict[str, str], options: SandboxOptions) -> None:
    """Refuse parameters beside a cursor that stands for them.

    Raises:
        Refusal: There are some.
    """
    accepted = {"anything": tuple(given), "limit": ("cursor", "limit"), "nothing": ("cursor",)}[options.cursor_with]
    for name in given:
        if name not in accepted:
            text = f"{name} cannot be given with a cursor, which stands for the parameters of the first page"
            raise Refusal(400, "invalid_parameter", text, parameter=name)


def _read_since(given: dict[str, str], options: SandboxOptions, now: int) -> int | None:
    text = given.get("updated_since")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        since = to_micros(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        remedy = "write + as %2B" if " " in text else "for example 2026-11-21T02:30:00Z"
        raise _invalid("updated_since", f"must be an ISO 8601 time, got {_shorten(text)}; {remedy}") from None
    if options.since_most and since < now - round(options.since_most * 1_000_000):
        raise _invalid("updated_since", f"must lie within the last {options.since_most:g} s, got {_shorten(text)}")
    return since


def _read_status(given: dict[str, str], resource: Resource) -> str | None:
    status = given.get("status", resource.default_status)
    if status is None or status == resource.any_status:
        return None
    if status not in resource.statuses:
        accepted: Iterable[str] = (*resource.statuses, *filter(None, [resource.any_status]))
        raise _invalid("status", f"must be one of {', '.join(accepted)}, got {_shorten(status)}")
    return status


def _invalid(name: str, text: str) -> Refusal:
    return Refusal(400, "invalid_parameter", f"{name} {text}", parameter=name)


def _shorten(text: str) -> str:
    most = 60
    return repr(text if len(text) <= most else f"{text[:most]}…")
