"""How feeds are read: the tables of resources and sources, their defaults, and how the tables of a feed are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Literal, Self, TypeAlias, get_args

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from dockbell.config.cron import Cron
from dockbell.config.expression import Condition
from dockbell.config.secret import ProxyUrl, Secret
from dockbell.config.values import (
    BaseUrl,
    ConfigPath,
    Duration,
    HeaderText,
    Interval,
    Lookback,
    Name,
    Names,
    Pointer,
    Pointers,
    Query,
    Table,
)
from dockbell.config.wording import Settings, misfit

ResourceName: TypeAlias = Literal["shipments", "packages", "items", "stock", "warehouses"]
ChangeName: TypeAlias = Literal[
    "created", "updated", "deleted", "restored", "snapshot", "reconciled", "gap", "rebaselined", "held"
]
RESERVED: Final = (*get_args(ChangeName), "feed", "notice", "test")
"""What no event of an operator may be called: these names have a meaning in types, topics and filters."""


def _tables_as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class NamedEventSettings(Settings):
    """``[[resources.NAME.events]]``: an event of the operator's own, on top of the change that it follows."""

    name: Name
    when: Condition

    @field_validator("name")
    @classmethod
    def _refuse_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(f'must not be "{name}", which is dockbell\'s own; choose another')
        return name


class ResourceSettings(Settings):
    """``[resources.NAME]``: how one resource is read and compared; ``[sources.X.resources.Y]`` overrides key by key."""

    enabled: bool = True
    every: Interval | None = None
    cron: Cron | None = None
    reconcile: Interval | None = None
    lookback: Lookback = "auto"
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
    events: Annotated[tuple[NamedEventSettings, ...], BeforeValidator(_tables_as_tuple)] = ()

    @property
    def schedule(self) -> timedelta | str:
        """When it is read: every so often, or by cron; only for merged settings, which have one of the two."""
        schedule = self.every or self.cron
        assert schedule is not None
        return schedule

    @property
    def needed(self) -> tuple[tuple[str, str], ...]:
        """The configured places that records are told apart and dated by, each with the key that names it."""
        dated = () if self.updated_at is None else ((self.updated_at, "updated_at"),)
        return (*((place, "key") for place in self.key or ()), *dated)

    @field_validator("every", mode="before")
    @classmethod
    def _refuse_auto(cls, given: object) -> object:
        if given == "auto":
            raise ValueError('"auto" is not available yet; give a duration such as "15s"')
        return given

    @field_validator("events")
    @classmethod
    def _refuse_namesakes(cls, events: tuple[NamedEventSettings, ...]) -> tuple[NamedEventSettings, ...]:
        names = [event.name for event in events]
        twice = [index for index, name in enumerate(names) if name in names[:index]]
        if twice:
            raise misfit(*(((index, "name"), f'"{names[index]}" is there already; rename one') for index in twice))
        return events

    @model_validator(mode="after")
    def _refuse_two_schedules(self) -> Self:
        if self.every is not None and self.cron is not None:
            raise misfit((("cron",), "every is given too; keep one of them"))
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

    def listed(self) -> dict[str, ResourceSettings]:
        """Return the resources that the table names."""
        return {name: settings for name in type(self).model_fields if (settings := getattr(self, name)) is not None}


BUILT_IN: Final = Resources(
    shipments=ResourceSettings(every=timedelta(seconds=15), reconcile=timedelta(hours=24)),
    packages=ListedSettings(every=timedelta(seconds=15), reconcile=timedelta(hours=24)),
    # By default the API lists active items only: one that goes inactive would look deleted.
    items=ListedSettings(every=timedelta(seconds=60), reconcile=timedelta(hours=24), query={"status": "all"}),
    stock=PassedSettings(every=timedelta(minutes=5)),
    warehouses=PassedSettings(every=timedelta(hours=1)),
).listed()
"""How each resource is read when nothing else is said."""


class SourceSettings(Settings):
    """``[sources.NAME]``: one account of the API."""

    base_url: BaseUrl
    api_key: Secret
    requests_per_minute: int = Field(default=300, ge=1)
    share: float = Field(default=0.9, gt=0, le=1)
    timeout: Interval = timedelta(seconds=30)
    proxy: ProxyUrl | None = None
    ca_file: ConfigPath | None = None
    user_agent: HeaderText | None = None
    resources: Resources = Resources()


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """One feed, and how it is read.

    Attributes:
        source: The name of its source.
        resource: The name of its resource.
        settings: Merged: the built-in defaults, then ``[resources.X]``, then ``[sources.S.resources.X]``.
    """

    source: str
    resource: str
    settings: ResourceSettings


def merge(*layers: ResourceSettings) -> ResourceSettings:
    """Return the settings that several tables give together, the last first; a key that is not written gives nothing.

    Arrays are replaced, ``query`` is merged key by key, and ``every`` and ``cron`` replace each other.
    """
    merged: Table = {}
    for layer in layers:
        written = {key: getattr(layer, key) for key in layer.model_fields_set}
        if written.keys() & {"every", "cron"}:
            merged = {key: value for key, value in merged.items() if key not in ("every", "cron")}
        if "query" in written:
            written["query"] = merged.get("query", {}) | written["query"]
        merged |= written
    return ResourceSettings(**merged)


def merge_feeds(sources: Mapping[str, SourceSettings], common: Resources) -> list[FeedSettings]:
    """Return the feeds that are read, by source and in the order of the API's resources.

    Without any ``[resources]`` all five are read, otherwise those listed there or in the source's own table; never one
    that is not ``enabled``.
    """
    feeds = []
    shared = common.listed()
    for source, settings in sources.items():
        own = settings.resources.listed()
        for resource, default in BUILT_IN.items():
            layers = [tables[resource] for tables in (shared, own) if resource in tables]
            merged = merge(default, *layers)
            if merged.enabled and (layers or not shared):
                feeds.append(FeedSettings(source, resource, merged))
    return feeds
