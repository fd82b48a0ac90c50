"""What is said of one resource: how it is read, and how the settings of several tables are merged."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal, Self, TypeAlias, get_args

from pydantic import Field, field_validator, model_validator

from dockbell.config.expression import Condition
from dockbell.config.values import (
    AutoDuration,
    AutoInterval,
    Cron,
    Duration,
    Interval,
    ListAsTuple,
    Name,
    Names,
    Pointer,
    Pointers,
    Query,
    Table,
    show,
)
from dockbell.config.wording import Settings, misfit

SIGNALS: Final = {"stock": "items", "packages": "shipments"}
"""The resources whose records others may embed, and these others: their polls may show a change first."""

ResourceName: TypeAlias = Literal["shipments", "packages", "items", "stock", "warehouses"]
ChangeName: TypeAlias = Literal[
    "created", "updated", "deleted", "restored", "snapshot", "reconciled", "gap", "rebaselined", "held"
]
RESERVED: Final = (*get_args(ChangeName), "feed", "notice", "test")
"""What no event of an operator may be called: these names have a meaning in types, topics and filters."""


class NamedEventSettings(Settings):
    """``[[resources.NAME.events]]``: an event of the operator's own, on top of the change that it follows."""

    name: Name
    when: Condition

    @field_validator("name")
    @classmethod
    def _refuse_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f'must not be "{name}", which dockbell reserves; choose another')
        return name


class ResourceSettings(Settings):
    """``[resources.NAME]``: how one resource is read and compared; ``[sources.X.resources.Y]`` overrides key by key."""

    enabled: bool = True
    every: AutoInterval | None = None
    at_most: Interval | None = None
    freshness_goal: Interval | None = None
    weight: float = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    cron: Cron | None = None
    reconcile: Interval | None = None
    lookback: AutoDuration = "auto"
    first_pass: Literal["baseline", "emit"] = "baseline"
    key: Annotated[Pointers, Field(min_length=1)] | None = None
    updated_at: Pointer | None = None
    ignore: Pointers = ()
    unordered: Pointers = ()
    drop: Pointers = ()
    query: Query = Field(default_factory=dict)
    expand: Names = ()
    detail: Names = ()
    detail_timeout: Interval = timedelta(minutes=5)
    confirm_after: Duration = timedelta(minutes=2)
    stale_window: Duration = timedelta(seconds=60)
    touch: bool = False
    signal: Literal["auto", "off", "items", "shipments"] = "auto"
    events: ListAsTuple[NamedEventSettings] = ()

    @property
    def is_auto(self) -> bool:
        """Whether the planner chooses the interval."""
        return self.cron is None and not isinstance(self.every, timedelta)

    @property
    def schedule(self) -> timedelta | str:
        """When it is read: at this interval, for ``auto`` at most, or by cron; only for settings of a feed."""
        schedule = self.cron or (self.at_most if self.is_auto else self.every)
        assert schedule is not None
        return schedule

    @property
    def needed(self) -> tuple[tuple[str, str], ...]:
        """The configured places that records are told apart and dated by, each with the key that names it."""
        dated = () if self.updated_at is None else ((self.updated_at, "updated_at"),)
        return (*((place, "key") for place in self.key or ()), *dated)

    @field_validator("events")
    @classmethod
    def _refuse_namesakes(cls, events: tuple[NamedEventSettings, ...]) -> tuple[NamedEventSettings, ...]:
        names = [event.name for event in events]
        twice = [index for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise misfit(*(((index, "name"), f'"{names[index]}" is used twice; rename one') for index in twice))
        return events

    @model_validator(mode="after")
    def _refuse_two_schedules(self) -> Self:
        if self.every is not None and self.cron is not None:
            raise misfit((("cron",), "conflicts with every; keep one of them"))
        if self.at_most is not None and not self.is_auto:
            given = f"cron = {show(self.cron)}" if self.every is None else f'every = "{show(self.every)}"'
            raise misfit((("at_most",), f'needs every = "auto", got {given}; keep one'))
        return self


class ListedSettings(ResourceSettings):
    """The settings of a resource whose records are read by listing only: the API serves single shipments alone."""

    @field_validator("detail", "detail_timeout", mode="before")
    @classmethod
    def _refuse_detail(cls, _: object) -> object:
        raise ValueError("does not apply: the API serves single records of shipments only; remove it")


class PassedSettings(ListedSettings):
    """The settings of a resource whose listing accepts no ``updated_since`` (api-spec.md): stock, warehouses."""

    @field_validator("reconcile", "lookback", mode="before")
    @classmethod
    def _refuse(cls, _: object) -> object:
        raise ValueError(
            "does not apply: the API takes no updated_since here, so every run reads the whole list; remove it"
        )


class Resources(Settings):
    """``[resources]``: what is read, and how."""

    shipments: ResourceSettings | None = None
    packages: ListedSettings | None = None
    items: ListedSettings | None = None
    stock: PassedSettings | None = None
    warehouses: PassedSettings | None = None

    @model_validator(mode="after")
    def _refuse_other_signals(self) -> Self:
        problems = [
            ((name, "signal"), words)
            for name, settings in self.listed().items()
            if (words := _refuse_signal(name, settings))
        ]
        if problems:
            raise misfit(*problems)
        return self

    def listed(self) -> dict[str, ResourceSettings]:
        return {name: settings for name in type(self).model_fields if (settings := getattr(self, name)) is not None}


def _refuse_signal(resource: str, settings: ResourceSettings) -> str:
    """Return why a resource cannot have the signal that is written; empty where it can."""
    carrier = SIGNALS.get(resource)
    if carrier is None:
        return (
            "does not apply: only stock and packages have a signal; remove it"
            if "signal" in settings.model_fields_set
            else ""
        )
    allowed = ("auto", "off", carrier)
    names = ", ".join(f'"{name}"' for name in allowed)
    return "" if settings.signal in allowed else f'must be one of {names}, got "{settings.signal}"'


BUILT_IN: Final = Resources(
    shipments=ResourceSettings(every="auto", at_most=timedelta(minutes=1), reconcile=timedelta(hours=24)),
    packages=ListedSettings(every="auto", at_most=timedelta(minutes=1), reconcile=timedelta(hours=24)),
    # By default the API lists active items only: one that goes inactive would look deleted.
    items=ListedSettings(
        every="auto", at_most=timedelta(minutes=1), reconcile=timedelta(hours=24), query={"status": "all"}
    ),
    stock=PassedSettings(every="auto", at_most=timedelta(minutes=15)),
    warehouses=PassedSettings(every="auto", at_most=timedelta(hours=1)),
).listed()
"""How each resource is read when nothing else is said."""


_WHEN: Final = frozenset({"every", "at_most", "cron"})


def merge(*layers: ResourceSettings) -> ResourceSettings:
    """Return the settings that several tables give together, the last first; a key that is not written gives nothing.

    Arrays are replaced, ``query`` is merged key by key, and what says when (``every``, ``at_most``, ``cron``) is
    replaced as one.
    """
    merged: Table = {}
    for layer in layers:
        written = {key: getattr(layer, key) for key in layer.model_fields_set}
        if written.keys() & _WHEN:
            merged = {key: value for key, value in merged.items() if key not in _WHEN}
        if "query" in written:
            written["query"] = merged.get("query", {}) | written["query"]
        merged |= written
    return ResourceSettings(**merged)


def bound(resource: str, settings: ResourceSettings) -> ResourceSettings:
    """Return settings that promise a longest interval where the planner chooses: the built-in one if none is given."""
    if settings.is_auto and settings.at_most is None:
        return settings.model_copy(update={"at_most": BUILT_IN[resource].at_most})
    return settings
