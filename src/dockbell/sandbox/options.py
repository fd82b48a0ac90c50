"""What can be chosen about a sandbox, each field with its default and its meaning in ``metadata["help"]``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from dockbell.errors import ConfigError

T = TypeVar("T")

WAREHOUSES_MOST = 15
_LARGEST = 10_000_000


def _option(default: T, meaning: str) -> T:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, kw_only=True)
class SandboxOptions:
    """How much a sandbox holds, how it moves, and what it does where the specification is silent.

    Durations are seconds, shares lie between 0 and 1. ``dataclasses.fields(SandboxOptions)`` lists the options with
    default and ``metadata["help"]``, ``typing.get_type_hints(SandboxOptions)`` their types.

    Raises:
        ConfigError: A value cannot be used; it holds one complete sentence for each.
    """

    seed: int = _option(1, "the same seed makes the same records and the same activity")
    records: int = _option(2000, "how many records at the start, over all five resources")
    shipments: int | None = _option(None, "how many shipments instead of a share of the records")
    packages: int | None = _option(None, "how many packages instead of a share of the records")
    items: int | None = _option(None, "how many items instead of a share of the records")
    stock: int | None = _option(None, "how many stock levels instead of a share of the records")
    warehouses: int | None = _option(None, "how many warehouses instead of a share of the records")

    activity: float = _option(0.0, "changes a second over all resources; 0 for none")
    keep_changes: int = _option(100_000, "how many changes its own log keeps")

    api_keys: tuple[str, ...] = _option(("sandbox",), "the API keys that are accepted")
    requests_per_minute: int = _option(300, "allowed requests a minute for each key; 0 for no limit")
    orders_per_minute: int = _option(10, "allowed sales orders a minute for each key; 0 for no limit")

    envelope: str = _option("", "field that holds the records of a page; empty: the resource's name")
    end_of_list: Literal["null", "absent", "empty"] = _option("null", "next_cursor on the last page")
    cursors: Literal["keyset", "offset"] = _option("keyset", "keyset cursors stay, pages of offset cursors drift")
    id_field: str = _option("id", "field that holds a record's id")
    timestamp_field: str | None = _option("updated_at", "field that holds the time of the last change; empty: none")
    stock_key: Literal["id", "composite"] = _option("id", "composite: stock has no id but sku and warehouse_id")
    late_visibility: float = _option(0.0, "seconds from a change's timestamp until it can be read")

    latency: float = _option(0.0, "seconds that each answer takes longer")
    error_rate: float = _option(0.0, "share of requests answered with 500, 502, 503 or 504")
    reset_rate: float = _option(0.0, "share of requests whose connection breaks, before or within the answer")

    def __post_init__(self) -> None:
        """Refuse what cannot be used."""
        problems = [*self._bad_sizes(), *self._bad_amounts(), *self._bad_choices()]
        if problems:
            raise ConfigError(*problems)

    def counts(self) -> dict[str, int]:
        """Return how many records each resource has at the start: its own number, or its share of ``records``."""
        total = self.records
        warehouses = _first(self.warehouses, min(WAREHOUSES_MOST, _share(total, 10)))
        items = _first(self.items, _share(total, 15))
        stock = _first(self.stock, min(total * 35 // 100, items * warehouses))
        left = max(0, total - warehouses - items - stock)
        shipments = _first(self.shipments, min(left, _share(total, 23)))
        packages = _first(self.packages, max(0, left - shipments) if shipments else 0)
        return {
            "warehouses": warehouses,
            "items": items,
            "stock": stock,
            "shipments": shipments,
            "packages": packages,
        }

    def _bad_sizes(self) -> list[str]:
        named = ("records", "shipments", "packages", "items", "stock", "warehouses", "keep_changes")
        sizes = {name: getattr(self, name) for name in named}
        problems = [
            f"sandbox: {name} must lie between 0 and {_LARGEST}, got {size}"
            for name, size in sizes.items()
            if size is not None and not 0 <= size <= _LARGEST
        ]
        if problems:
            return problems
        counts = self.counts()
        if not counts["warehouses"] or not counts["items"]:
            problems.append("sandbox: at least 1 warehouse and 1 item are needed; set records to 2 or more")
        if counts["stock"] > counts["items"] * counts["warehouses"]:
            problems.append(
                f"sandbox: {counts['stock']} stock levels do not fit {counts['items']} items in "
                f"{counts['warehouses']} warehouses; set items higher"
            )
        if counts["packages"] and not counts["shipments"]:
            problems.append("sandbox: packages need shipments, got none; set packages to 0")
        return problems

    def _bad_amounts(self) -> list[str]:
        amounts = ("activity", "late_visibility", "latency", "requests_per_minute", "orders_per_minute")
        problems = [
            f"sandbox: {name} must not be negative, got {getattr(self, name)}"
            for name in amounts
            if not getattr(self, name) >= 0
        ]
        problems += [
            f"sandbox: {name} must lie between 0 and 1, got {getattr(self, name)}"
            for name in ("error_rate", "reset_rate")
            if not 0 <= getattr(self, name) <= 1
        ]
        return problems

    def _bad_choices(self) -> list[str]:
        choices: dict[str, tuple[Any, ...]] = {
            "end_of_list": ("null", "absent", "empty"),
            "cursors": ("keyset", "offset"),
            "stock_key": ("id", "composite"),
        }
        problems = [
            f"sandbox: {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
            for name, allowed in choices.items()
            if getattr(self, name) not in allowed
        ]
        if not self.id_field or self.id_field == self.timestamp_field:
            problems.append(f"sandbox: id_field must be a name of its own, got {self.id_field!r}")
        if self.envelope == "next_cursor":
            problems.append('sandbox: envelope must not be "next_cursor"')
        if not self.api_keys or not all(key.isascii() and key.isprintable() and key.strip() for key in self.api_keys):
            problems.append("sandbox: api_keys must be one or more keys of printable ASCII")
        return problems


def _first(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _share(total: int, percent: int) -> int:
    return -(-total * percent // 100)
