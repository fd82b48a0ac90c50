"""The types that keys have, each with its check; a check says in plain words what it wants and what it got."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from datetime import date, time, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo

Table: TypeAlias = dict[str, Any]
"""A table as TOML gives it."""


# What was got --------------------------------------------------------------------------------------------------------

_KINDS: Final = (
    (bool, "true or false"),
    (str, "text"),
    (int, "a whole number"),
    (float, "a number"),
    (list | tuple, "a list"),
    (dict, "a table"),
    (date | time, "a date or time"),
)
_SHOWN_MOST: Final = 60


def name_kind(value: object) -> str:
    """Return what kind of TOML value this is, without showing it."""
    return next((name for kind, name in _KINDS if isinstance(value, kind)), type(value).__name__)


def show(value: object) -> str:
    """Return a value as an error quotes it: on one line, and not too long."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if not isinstance(value, bool | str | int | float):
        return name_kind(value)
    text = json.dumps(value, ensure_ascii=not str(value).isprintable())
    return text if len(text) <= _SHOWN_MOST else text[:_SHOWN_MOST] + "…"


# Durations -----------------------------------------------------------------------------------------------------------

_UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_LONGEST: Final = timedelta(days=36_500)  # a moment this far back from now is still one that Python can name


def parse_duration(value: object) -> timedelta:
    """Return the duration that text such as ``"90s"`` or ``"1h30m"`` states; ValueError where it states none."""
    duration = value
    if isinstance(value, str) and re.fullmatch(rf"({_PART.pattern})+", value):
        try:
            duration = sum((float(number) * _UNITS[unit] for number, unit in _PART.findall(value)), timedelta())
        except OverflowError:
            duration = timedelta.max
    if not isinstance(duration, timedelta):
        raise ValueError(f'must be a duration such as "90s", "5m", "24h" or "7d", got {show(value)}')  # noqa: TRY004
    if not timedelta() <= duration <= _LONGEST:
        raise ValueError(f"must be a duration of at most {_LONGEST.days}d, got {show(value)}")
    return duration


def format_duration(value: timedelta) -> str:
    """Return the text that :func:`parse_duration` reads as this duration: ``1h30m``."""
    parts = []
    for unit, size in _UNITS.items():
        count, rest = divmod(value, size)
        if count or (unit == "ms" and rest):
            micros = rest // timedelta(microseconds=1) if unit == "ms" else 0
            parts.append(f"{count}{f'.{micros:03}'.rstrip('0') if micros else ''}{unit}")
        value = rest
    return "".join(parts) or "0s"


def _check_positive(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("must be longer than 0s, got 0s")
    return value


def _parse_auto(value: object) -> timedelta | str:
    if value == "auto":
        return "auto"
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(str(error).replace("must be", 'must be "auto" or', 1)) from None


def _check_positive_or_auto(value: timedelta | str) -> timedelta | str:
    return value if isinstance(value, str) else _check_positive(value)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, when_used="json")]
Interval = Annotated[Duration, AfterValidator(_check_positive)]
"""A duration that something is repeated after, or waited for: never zero."""
_ATTEMPTS_MOST: Final = 100
RETRY_SCHEDULE: Final = tuple(
    map(parse_duration, ["0s", "5s", "15s", "45s", "2m", "5m", "15m", "1h", "3h", "6h", "12h", "24h", "24h"])
)
"""The pause before the first, second, … attempt, unless the sink says otherwise; after the last: a dead letter."""


def _check_schedule(pauses: tuple[timedelta, ...]) -> tuple[timedelta, ...]:
    if not pauses or pauses[0]:
        got = f'"{format_duration(pauses[0])}"' if pauses else "an empty list"
        raise ValueError(f'must begin with "0s", because dockbell makes the first attempt at once, got {got}')
    if len(pauses) > _ATTEMPTS_MOST:
        raise ValueError(f"must have at most {_ATTEMPTS_MOST} attempts, got {len(pauses)}")
    return pauses


_T = TypeVar("_T")
ListAsTuple = Annotated[tuple[_T, ...], Field(strict=False)]
"""A TOML array, as the tuple that a frozen model holds."""
Schedule = Annotated[ListAsTuple[Duration], AfterValidator(_check_schedule)]
"""The pause before each attempt of a delivery."""
AutoDuration = Annotated[
    timedelta | Literal["auto"],
    BeforeValidator(_parse_auto),
    PlainSerializer(lambda value: value if isinstance(value, str) else format_duration(value), when_used="json"),
]
AutoInterval = Annotated[AutoDuration, AfterValidator(_check_positive_or_auto)]


# Schedules by the calendar: the five fields of cron, in UTC, with names for the days of the week ----------------------


class _CronField(msgspec.Struct, frozen=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_CRON_FIELDS: Final = (
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _CronField("day of the month", 1, 31),
    _CronField("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _CronField("day of the week", 0, 6, ("mon", "tue", "wed", "thu", "fri", "sat", "sun")),
)
_DAYS: Final = _CRON_FIELDS[-1]
_LAST_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_CRON_ITEM: Final = re.compile(r"(\*|[a-z]+|[0-9]{1,2})(?:-([a-z]+|[0-9]{1,2}))?(?:/([0-9]{1,2}))?")


def check_cron(text: str) -> str:
    """Return a schedule in lower case, its fields one space apart; ValueError unless every library reads it alike."""
    fields = text.lower().split()
    if len(fields) != len(_CRON_FIELDS):
        wanted = 'five fields (minute, hour, day, month, day of the week) such as "30 6 * * mon-fri"'
        raise ValueError(f"must have {wanted}, got {show(text)}")
    _, _, days, months, _ = map(_parse_cron_field, _CRON_FIELDS, fields)
    if min(days) > max(_LAST_DAYS[month - 1] for month in months):
        raise ValueError(f"must match a date, got {show(text)}: none of its months has such a day")
    return " ".join(fields)


def _parse_cron_field(field: _CronField, given: str) -> list[int]:
    """Return the values that a field allows."""
    values: list[int] = []
    for item in given.split(","):
        if field is _DAYS and re.search("[0-9]", item):
            fact = "libraries disagree whether 0 is Sunday or Monday"
            raise ValueError(f"day of the week must be a name, got {show(item)}: {fact}; use {', '.join(field.names)}")
        if not (allowed := _parse_cron_item(field, item)):
            names = f"{field.names[0]} to {field.names[-1]}" if field.names else ""
            wanted = " or ".join(filter(None, ["" if field is _DAYS else f"{field.low} to {field.high}", names]))
            raise ValueError(f"{field.name} must be *, {wanted}, a range or a list of them, got {show(item)}")
        values.extend(allowed)
    return values


def _parse_cron_item(field: _CronField, item: str) -> range | None:
    """Return the values that an item allows; None where it is not possible."""
    if (match := _CRON_ITEM.fullmatch(item)) is None:
        return None
    first, last, step = match.groups()
    if first == "*" and last is None:
        low, high = field.low, field.high
    elif first in field.names and (last or first) in field.names and step is None:
        low, high = (field.names.index(name) + field.low for name in (first, last or first))
    elif first.isdigit() and (last or first).isdigit():
        low, high = int(first), int(last or (field.high if step else first))
    else:
        return None
    is_possible = field.low <= low <= high <= field.high and (step is None or 1 <= int(step) <= high - low)
    return range(low, high + 1, int(step or 1)) if is_possible else None


Cron = Annotated[str, AfterValidator(check_cron)]


# Names and pointers --------------------------------------------------------------------------------------------------


def matching(pattern: str, wanted: str) -> AfterValidator:
    """Return the check that a text matches a pattern; ``wanted`` says what it must be."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {wanted}, got {show(value)}")
        return value

    return AfterValidator(check)


def as_tuple(value: object) -> object:
    """Return a TOML array as a tuple, a text as a tuple of one, and anything else as it is."""
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, str) else value


# It stands in URIs and topics, where other letters would have to be escaped.
Name = Annotated[
    str, matching("[a-z0-9][a-z0-9_-]*", 'made of a-z, 0-9, "-" and "_", and begin with a letter or digit')
]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_tuple)]
Pointer = Annotated[str, matching(r"(/([^~/]|~[01])*)+", 'a JSON pointer such as "/id" or "/address/city"')]
Pointers = Annotated[tuple[Pointer, ...], BeforeValidator(as_tuple)]
HeaderText = Annotated[str, matching(r"[\x20-\x7e]+", "printable ASCII")]
OneOrMore = (BeforeValidator(as_tuple), Field(min_length=1))
"""Makes a tuple type accept a lone text, and refuse an empty list."""


def find_taken(drop: Iterable[str], place: str) -> str | None:
    """Return which pointer takes away what stands at a place, or moves it within its array; None where none does."""
    wanted = place.split("/")
    for pointer in drop:
        *way, last = pointer.split("/")
        there = wanted[: len(way)]
        if len(wanted) <= len(way) or not all(
            token == at or (token == "*" and at.isdigit()) for token, at in zip(way, there, strict=True)
        ):
            continue
        at = wanted[len(way)]
        if last == at or (at.isdigit() and (last == "*" or last.isdigit())):
            return pointer
    return None


# Queries -------------------------------------------------------------------------------------------------------------

_OWN_PARAMETERS: Final = {
    "updated_since": "dockbell sets it for each poll",
    "cursor": "dockbell sets it for each page",
    "limit": "dockbell sets the page size",
    "expand": "it has its own key, expand = [...]",
}


def _check_query(value: object) -> object:
    for name, given in value.items() if isinstance(value, dict) else ():
        if name in _OWN_PARAMETERS:
            raise ValueError(f"must not contain {name}: {_OWN_PARAMETERS[name]}; remove it")
        if not isinstance(given, str | int):
            raise ValueError(f"{name} must be text, a whole number or true or false, got {name_kind(given)}")  # noqa: TRY004
    return value


Query = Annotated[dict[str, str | int | bool], BeforeValidator(_check_query)]


# URLs and paths ------------------------------------------------------------------------------------------------------

SQLITE: Final = "sqlite:///"
POSTGRES: Final = ("postgresql", "postgres")
PORT_MOST: Final = 65_535

# A password that should have been escaped ends a URL's host too soon: what looks like its port is the beginning of it.
_LOOSE_PASSWORD: Final = re.compile(r"(?<=://)[^/?#@:]*:[^/?#@]*[^0-9/?#@][^/?#@]*[/?#].*@", re.DOTALL)
_ODD_PORT: Final = re.compile(r"(?<=://)([^/?#@:\[]+):[^/?#@]*[^0-9/?#@][^/?#@]*(?=[/?#]|$)")


def redact_url(url: str) -> str:
    """Return a URL without what may be secret: user, password and query, also of one that is none."""
    url = _ODD_PORT.sub(r"\1:***", _LOOSE_PASSWORD.sub("***@", url))
    return re.sub(r"\?[^#]*", "?***", re.sub(r"(?<=://)[^/?#]*@", "***@", url))


def conceal_url(url: str) -> str:
    """Return of a URL whose path may be secret too where it leads: scheme, host and port; of what is none, ``***``."""
    match = re.fullmatch(r"\s*([A-Za-z][A-Za-z0-9+.-]*://[^/?#\\\s]*)(.*)", redact_url(url), re.DOTALL)
    if match is None:
        return "***"
    place, rest = match[1], match[2].strip()
    return place + (rest if rest in ("", "/") else "/***")


def split_url(
    url: str, example: str, *, schemes: Collection[str] = ("http", "https"), show_url: Callable[[str], str] = redact_url
) -> SplitResult:
    """Return the parts of a URL, ``example`` being one that would do.

    Raises:
        ValueError: It has another scheme, no host, or an impossible port; what the text shows of it is no secret.
    """
    got = f"got {show(show_url(url))}"
    wanted, bad_port = f"must be a URL such as {example}, {got}", f"must have a port from 1 to {PORT_MOST}, {got}"
    try:
        parts = urlsplit(url)
        has_host = bool((parts.hostname or "").encode("idna"))
        port = parts.port
    except ValueError as error:
        raise ValueError(bad_port if "out of range" in str(error) else wanted) from None
    if parts.scheme not in schemes or not has_host or re.search(r"\s", url):
        raise ValueError(wanted)
    if port == 0:
        raise ValueError(bad_port)
    return parts


@lru_cache(maxsize=1024)  # thousands of sources have the same
def _check_base_url(url: str) -> str:
    parts = split_url(url, '"https://api.example.com"')
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; use api_key")
    if "?" in url or "#" in url:
        raise ValueError("must not contain a query or a fragment; remove it")
    return url.rstrip("/")


def _from_folder(path: str, info: ValidationInfo) -> str:
    folder: Path | None = (info.context or {}).get("folder")
    return path if folder is None else str(folder / path)


_DATABASE: Final = "postgresql://user@host/database"


def _check_database_url(url: str) -> str:
    """Check that a URL names a database; what libpq makes of the rest is seen when it is connected to."""
    try:
        parts = urlsplit(url)
        is_named = not re.search(r"\s", url) and url.startswith(f"{parts.scheme}://") and parts.path not in ("", "/")
    except ValueError:
        is_named = False
    if not is_named:
        raise ValueError(f'must name a database, "{_DATABASE}", got {show(redact_url(url))}')
    return url


def _check_store_url(url: str, info: ValidationInfo) -> str:
    if url.partition(":")[0] in POSTGRES:
        return _check_database_url(url)
    path = url.removeprefix(SQLITE)
    if path in ("", url, ":memory:") or "?" in path:
        wanted = f'must name a file, "{SQLITE}relative.db" or "{SQLITE}/absolute.db", or a database, "{_DATABASE}"'
        raise ValueError(f"{wanted}, got {show(redact_url(url))}")
    return SQLITE + _from_folder(path, info)


BaseUrl = Annotated[str, AfterValidator(_check_base_url)]
StoreUrl = Annotated[str, AfterValidator(_check_store_url)]
ConfigPath = Annotated[str, Field(min_length=1), AfterValidator(_from_folder)]
"""A path that counts from the configuration file's folder; absolute once it is loaded."""
