"""What can be chosen about a sandbox, and what is chosen now.

Each option is a field with its default, and its meaning in ``metadata["help"]``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from difflib import get_close_matches
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from dockbell.errors import ConfigError
from dockbell.sandbox.table import RESOURCES

T = TypeVar("T")
ResourceName: TypeAlias = Literal["shipments", "packages", "items", "stock", "warehouses"]
BrokenBody: TypeAlias = Literal[
    "html", "truncated", "nan", "duplicate_members", "duplicate_fields", "invalid_utf8", "deep"
]
NoPageBody: TypeAlias = Literal["null", "empty", "error_200"]
HeavyBody: TypeAlias = Literal["gzip_bomb", "endless", "drip"]
ListBody: TypeAlias = Literal["cut_list", "empty_list", "full_list", "null_list", "doubled_list"]
OddBody: TypeAlias = Literal["byte_order_mark", "mislabelled", "message"]

WAREHOUSES_MOST = 15
PAGE_MOST = 200
_SIZE = (0, 10_000_000)
_ANY = (-inf, inf)


def _option(default: T, meaning: str, *, within: tuple[float, float] = (0, inf), fixed: bool = False) -> T:
    """Return a field; a number lies within two limits, and what is fixed can only be chosen at the start."""
    return field(default=default, metadata={"help": meaning, "within": within, "fixed": fixed})


def _flag(meaning: str) -> bool:
    return _option(default=False, meaning=meaning)


def _share(meaning: str, default: float = 0.0) -> float:
    return _option(default, meaning, within=(0, 1))


def _number_of(what: str) -> int | None:
    return _option(None, f"Number of {what}, instead of a share of the records.", within=_SIZE, fixed=True)


@dataclass(frozen=True, kw_only=True)
class SandboxOptions:
    """How much a sandbox holds, how it moves, and what it does where the specification is silent.

    Durations are seconds, shares lie between 0 and 1. ``dataclasses.fields(SandboxOptions)`` lists the options with
    default, ``metadata["help"]`` and ``metadata["fixed"]``, ``typing.get_type_hints(SandboxOptions)`` their types.

    Raises:
        ConfigError: A value cannot be used; it holds one complete sentence for each.
    """

    seed: int = _option(
        1, "Seed of the records and the activity; the same seed gives the same ones.", within=_ANY, fixed=True
    )
    records: int = _option(2000, "Records at the start, over all five resources.", within=_SIZE, fixed=True)
    shipments: int | None = _number_of("shipments")
    packages: int | None = _number_of("packages")
    items: int | None = _number_of("items")
    stock: int | None = _number_of("stock levels")
    warehouses: int | None = _number_of("warehouses")

    activity: float = _option(0.0, "Changes per second over all resources; 0 for none.", fixed=True)
    keep_changes: int = _option(100_000, "Changes that the sandbox's log keeps.", within=_SIZE, fixed=True)

    api_keys: tuple[str, ...] = _option(("sandbox",), "API key to accept.")
    requests_per_minute: int = _option(300, "Allowed requests per minute for each key; 0 for no limit.")
    orders_per_minute: int = _option(10, "Allowed sales orders per minute for each key; 0 for no limit.")

    envelope: str = _option(
        "",
        "Field that contains the records of a page; empty: the resource's name; {label}: the specification's label.",
    )
    wrapper: str = _option("", "Field that wraps the whole answer of a listing; empty: none.")
    end_of_list: Literal["null", "absent", "empty"] = _option("null", "Value of next_cursor on the last page.")
    trailing_page: bool = _flag("Give a full last page a cursor, which leads to an empty page.")
    page_cap: int = _option(
        PAGE_MOST, "Maximum number of records on a page; a higher limit is accepted and ignored.", within=(1, PAGE_MOST)
    )
    short_pages: float = _share("Share of pages with fewer records than requested, and a cursor.")
    empty_pages: float = _share("Share of pages with no records, and a cursor.")
    repeated_pages: float = _share("Share of pages whose cursor leads to the same page again.")
    cursors: Literal["keyset", "offset", "page"] = _option(
        "keyset",
        "Kind of cursor: keyset, stable; offset, pages drift; page, a page number, so another limit shows others.",
    )
    cursor_form: Literal["opaque", "digits", "integer"] = _option(
        "opaque", "Form of a cursor: base64url, a string of digits, or a JSON integer."
    )
    cursor_lifetime: float = _option(0.0, "Seconds after which a cursor is refused; 0 for never.")
    cursor_expired: Literal[400, 404, 410, 422] = _option(410, "Status that refuses a cursor after its lifetime.")
    cursor_with: Literal["anything", "limit", "nothing"] = _option(
        "anything", "Other parameters that a request with a cursor may have; the rest are refused."
    )
    result_window: int = _option(
        0,
        "Maximum number of records that the pages of a listing reach; pages beyond are refused; 0 for all.",
        within=_SIZE,
    )
    listed_most: int | None = _option(
        None,
        "Maximum number of records that listings show, the newest; others are found only by id; none: all.",
        within=_SIZE,
    )
    since_most: float = _option(0.0, "Seconds that updated_since may be in the past; 0 for any time.")
    order: Literal["creation", "updated_at", "id", "warehouse", "shuffled", "random"] = _option(
        "creation",
        "Order of a listing; shuffled: each page has its own order; random: a new order for every request.",
    )
    descending: bool = _flag("Reverse the order.")
    unknown_parameters: Literal["refuse", "ignore"] = _option("refuse", "How to treat an unknown parameter.")
    unknown_expand: Literal["refuse", "ignore"] = _option("refuse", "How to treat a relation that does not exist.")

    id_field: str = _option("id", "Field that contains a record's id.", fixed=True)
    id_form: Literal["string", "integer"] = _option(
        "string", "Form of ids and references; integer: numbers without their prefix.", fixed=True
    )
    stock_key: Literal["id", "composite"] = _option(
        "id", "Key of stock; composite: sku and warehouse_id, no id.", fixed=True
    )
    timestamp_field: str | None = _option(
        "updated_at", "Field that contains the time of the last change; empty: none.", fixed=True
    )
    timestamp_form: Literal["iso", "epoch", "date", "ctime", "null"] = _option(
        "iso",
        "Form: ISO 8601, an integer since 1970 in units of the precision, only the day, as ctime writes it, or null.",
    )
    timestamp_precision: Literal["us", "ms", "s", "min"] = _option(
        "us", "Unit that timestamps and updated_since are cut to; with min, an epoch is in seconds."
    )
    timestamp_offset: Literal["Z", "+00:00", "+02:00", "-09:30", "none"] = _option(
        "Z", "Offset of an ISO 8601 timestamp; none: UTC without an offset."
    )
    timestamp_skew: float = _option(
        0.0, "Seconds that timestamps are ahead of the sandbox's clock; negative: behind.", within=_ANY
    )
    created_at: Literal["true", "as_timestamp", "missing"] = _option(
        "true",
        "Value of created_at: UTC by the sandbox's clock, as the timestamp, or missing.",
        fixed=True,
    )
    future_share: float = _share("Share of writes that are dated 2099.")
    silent_share: float = _share("Share of updates that do not move the timestamp.")
    bump_share: float = _share(
        "Share of changes of a stock level, or package, that move the timestamp of its item, or shipment."
    )
    bump_most: int | None = _option(
        None, "Number of timestamps that they move before that ends; none: no end.", within=_SIZE
    )
    embed_lag: float = _option(0.0, "Seconds that records embedded by expand are behind their own listing.")

    shuffle_arrays: bool = _flag("Change the order of arrays inside records each time.")
    shuffle_members: bool = _flag("Change the order of the fields of records each time.")
    numbers: Literal["plain", "float", "mixed"] = _option(
        "plain", "Form of whole numbers: 1, 1.0, or either at random."
    )
    poisoned: str = _option("", "RESOURCE/ID of a record that makes each page with it invalid JSON.")
    poison: Literal["cut", "surrogate", "nan", "invalid_utf8", "control"] = _option(
        "cut",
        "Its defect: cut in half, a lone surrogate, NaN, two bytes that are not UTF-8, or a bare line break.",
    )
    keyless: str = _option("", "RESOURCE/ID of a record that is served without its id.")
    doubled: str = _option("", "RESOURCE/ID of a record that is twice on its page, the second time with other content.")

    late_visibility: float = _option(0.0, "Seconds from a change's timestamp until the API shows it.")
    late_share: float = _share("Share of the business steps that late_visibility delays.", default=1.0)
    replicas: int = _option(
        1, "Number of servers that answer in turn; the last one is behind the others.", within=(1, 100)
    )
    replica_lag: float = _option(0.0, "Seconds that the last replica is behind.")
    replica_for: Literal["turns", "poll", "pass", "single"] = _option(
        "turns",
        "Requests to the last replica: its turns, all lists with updated_since, all without, or all single shipments.",
    )

    clock_skew: float = _option(
        0.0,
        "Seconds that the clock of the whole service is ahead of the sandbox's; negative: behind.",
        within=(-1e9, 1e9),
    )
    date: Literal["true", "missing"] = _option("true", "Whether responses have Date.")
    date_skew: float = _option(0.0, "Seconds that Date is ahead of the sandbox's clock; negative: behind.", within=_ANY)
    rate_headers: Literal["true", "missing"] = _option("true", "Whether responses have x-ratelimit-… headers.")
    etag: Literal["none", "strong", "weak"] = _option(
        "none", "Kind of ETag on responses, with 304 for a matching If-None-Match."
    )
    gzip: bool = _flag("Compress responses for clients that accept it.")
    unknown_shipment: Literal["json", "html", "empty", "410", "null"] = _option(
        "json", "Response for an unknown shipment: 404 with JSON, HTML or an empty body, 410, or 200 with null."
    )

    refuse_with: Literal[0, 401, 403, 503] = _option(0, "Status that answers every request for a while; 0 for none.")
    refuse_after: float = _option(0.0, "Seconds until that begins, from the start or from when you set it.")
    refuse_for: float = _option(0.0, "Seconds that it lasts; 0 for no end.")
    refuse_resource: Literal["all", ResourceName] = _option("all", "Resource that is refused; the others answer.")
    retry_after: int | None = _option(
        None, "Seconds in Retry-After on 429 and 503; none: the correct seconds on 429.", within=_SIZE
    )
    retry_after_form: Literal["seconds", "date"] = _option("seconds", "Form of Retry-After.")

    latency: float = _option(0.0, "Seconds added to each response.")
    error_rate: float = _share("Share of requests answered with an error.")
    error_with: Literal[0, 400, 401, 403, 404, 410, 422, 429, 500, 502, 503, 504] = _option(
        0, "Status of these errors; 0 for 500, 502, 503 or 504 at random."
    )
    reset_rate: float = _share("Share of requests whose connection breaks, before or during the response.")
    bad_body_rate: float = _share("Share of requests answered with a bad body.")
    bad_body: Literal["any", BrokenBody, NoPageBody, HeavyBody, ListBody, OddBody] = _option(
        "any", "Kind of bad body; any: a random one that is not a page."
    )
    fault_resource: Literal["all", ResourceName] = _option(
        "all", "Resource that latency, errors, resets and bad bodies apply to."
    )
    fault_kind: Literal["all", "poll", "pass", "single"] = _option(
        "all", "Requests of it that they apply to: lists with updated_since, lists without, or single shipments."
    )
    fault_record: str = _option("", "RESOURCE/ID of a record; they apply only to responses that would show it.")
    fault_skip: int = _option(0, "Number of requests that they spare first.")
    fault_most: int | None = _option(None, "Number of requests that they hit before they end; none: no end.")

    def __post_init__(self) -> None:
        problems = [*self._bad_values()] or [*self._bad_counts(), *self._bad_choices()]
        if problems:
            raise ConfigError(*problems)

    def counts(self) -> dict[str, int]:
        """Return how many records each resource has at the start: its own number, or its share of ``records``."""
        total = self.records
        warehouses = _first(self.warehouses, min(WAREHOUSES_MOST, _percent(total, 10)))
        items = _first(self.items, _percent(total, 15))
        stock = _first(self.stock, min(total * 35 // 100, items * warehouses))
        left = max(0, total - warehouses - items - stock)
        shipments = _first(self.shipments, min(left, _percent(total, 23)))
        packages = _first(self.packages, max(0, left - shipments) if shipments else 0)
        return {"warehouses": warehouses, "items": items, "stock": stock, "shipments": shipments, "packages": packages}

    def _bad_values(self) -> Iterator[str]:
        for option in fields(self):
            value, hint = getattr(self, option.name), HINTS[option.name]
            least, most = option.metadata["within"]
            if get_origin(hint) is Literal:
                if value not in get_args(hint):
                    allowed = ", ".join(map(str, get_args(hint)))
                    yield f"sandbox: {option.name} must be one of {allowed}, got {value!r}"
            elif isinstance(value, int | float) and not least <= value <= most:
                limits = "not be negative" if (least, most) == (0, inf) else f"be between {least} and {most}"
                yield f"sandbox: {option.name} must {limits}, got {value}"

    def _bad_counts(self) -> Iterator[str]:
        counts = self.counts()
        if not counts["warehouses"] or not counts["items"]:
            yield "sandbox: at least 1 warehouse and 1 item are needed; set records to 2 or more"
        if counts["stock"] > counts["items"] * counts["warehouses"]:
            yield (
                f"sandbox: {counts['stock']} stock levels do not fit {counts['items']} items in "
                f"{counts['warehouses']} warehouses; set items higher"
            )
        if counts["packages"] and not counts["shipments"]:
            yield "sandbox: packages need shipments, got none; set packages to 0"

    def _bad_choices(self) -> Iterator[str]:
        if not self.id_field or self.id_field == self.timestamp_field:
            yield f"sandbox: id_field must differ from timestamp_field and not be empty, got {self.id_field!r}"
        if self.envelope == "next_cursor":
            yield 'sandbox: envelope must not be "next_cursor"'
        if not self.api_keys or not all(key.isascii() and key.isprintable() and key.strip() for key in self.api_keys):
            yield "sandbox: api_keys must be one or more keys of printable ASCII"
        if self.cursor_form != "opaque" and self.empty_pages:
            yield "sandbox: empty_pages need opaque cursors, since a number would not move; set cursor_form to opaque"
        if self.cursor_form != "opaque" and self.cursors == "keyset" and self.order in ("id", "warehouse"):
            yield f"sandbox: a keyset cursor in the order of {self.order} is not a number; set cursors to offset"
        if self.cursors == "page" and (self.short_pages or self.empty_pages):
            yield "sandbox: short_pages and empty_pages would skip records with page cursors; set cursors to offset"
        if self.cursor_form != "opaque" and self.cursor_with != "anything":
            yield "sandbox: a number cannot identify its listing; set cursor_form to opaque, or cursor_with to anything"
        for name in ("poisoned", "keyless", "doubled", "fault_record"):
            value = getattr(self, name)
            resource, _, identity = value.partition("/")
            if value and not (identity and resource in RESOURCES):
                yield f"sandbox: {name} must be RESOURCE/ID, got {value!r}"


HINTS: Final[dict[str, Any]] = get_type_hints(SandboxOptions)


def _first(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _percent(total: int, percent: int) -> int:
    return -(-total * percent // 100)


Clock: TypeAlias = Callable[[], datetime]

CHANGEABLE: Final = tuple(option.name for option in fields(SandboxOptions) if not option.metadata["fixed"])
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


class Settings:
    """Holds the options in force for all parts of a sandbox; each part reads them anew for each request.

    ``listeners`` are called with the options after each change.
    """

    def __init__(self, options: SandboxOptions, clock: Clock) -> None:
        self.options = options
        self.listeners: list[Callable[[SandboxOptions], None]] = []
        self._clock = clock
        self._started = clock()
        self._set_at: dict[str, datetime] = {}

    def change(self, **values: Any) -> None:
        """Set some options; a ConfigError changes nothing."""
        _check_changeable(values)
        self.options = dataclasses.replace(self.options, **values)
        self._set_at |= dict.fromkeys(values, self._clock())
        for listen in self.listeners:
            listen(self.options)

    def seconds_since(self, name: str) -> float:
        """Return for how many seconds an option has had its value."""
        return (self._clock() - self._set_at.get(name, self._started)).total_seconds()

    def count_down(self, name: str) -> None:
        """Take one from an option that counts; one without a number goes on without end."""
        if left := getattr(self.options, name):
            self.options = dataclasses.replace(self.options, **{name: left - 1})


def parse(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return options from their texts, as a query has them.

    Several API keys are separated by commas; nothing stands for none.

    Raises:
        ConfigError: One is unknown, or its text is not of its type.
    """
    _check_changeable(texts)
    return {name: _parse(name, text) for name, text in texts.items()}


def _check_changeable(names: Iterable[str]) -> None:
    problems = [
        f"sandbox: {name} can only be set at the start"
        if name in HINTS
        else f"sandbox: unknown option {name!r}{suggest(name, CHANGEABLE)}"
        for name in names
        if name not in CHANGEABLE
    ]
    if problems:
        raise ConfigError(*problems)


def _parse(name: str, text: str) -> Any:
    hint = HINTS[name]
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


def suggest(given: str, known: tuple[str, ...]) -> str:
    """Return ``; did you mean …?`` where a known word is close, otherwise which words there are."""
    close = get_close_matches(given, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; available: {', '.join(known) or 'none'}"
