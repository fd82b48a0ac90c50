"""The whole file and its tables: sources, their feeds, store and sinks, which are checked against each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import msgspec
from pydantic import (
    Field,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from dockbell.config.expression import Condition
from dockbell.config.including import Patterns
from dockbell.config.place import Origins, Written
from dockbell.config.resources import BUILT_IN, ChangeName, Resources, ResourceSettings, bound, merge
from dockbell.config.secret import ProxyUrl, Secret
from dockbell.config.sharing import find_bad_placeholders
from dockbell.config.values import (
    RETRY_SCHEDULE,
    SQLITE,
    BaseUrl,
    ConfigPath,
    Duration,
    HeaderText,
    Interval,
    Name,
    Names,
    OneOrMore,
    Pointers,
    Schedule,
    StoreUrl,
    find_taken,
    name_kind,
)
from dockbell.config.web import WebSettings
from dockbell.config.wording import Settings, misfit, suggest
from dockbell.errors import ConfigError


class _SourceKeys(Settings):
    base_url: BaseUrl | None = None
    api_key: Secret | None = None
    requests_per_minute: int = Field(default=300, ge=1)
    share: float = Field(default=0.9, gt=0, le=1)
    timeout: Interval = timedelta(seconds=30)
    proxy: ProxyUrl | None = None
    ca_file: ConfigPath | None = None
    user_agent: HeaderText | None = None
    paused: bool = False
    resources: Resources = Resources()


class SourceDefaults(_SourceKeys):
    """``[source_defaults]``: what every source has that does not say otherwise; :mod:`dockbell.config.sharing`."""

    @model_validator(mode="before")
    @classmethod
    def _check_placeholders(cls, given: object) -> object:
        if isinstance(given, dict) and (problems := list(find_bad_placeholders(given))):
            raise misfit(*problems)
        return given


class SourceSettings(_SourceKeys):
    """``[sources.NAME]``: one account of the API."""

    base_url: BaseUrl
    api_key: Secret

    @property
    def account(self) -> tuple[str, Secret]:
        """What the API counts requests by: sources with an equal one share a budget."""
        return self.base_url, self.api_key


class FeedSettings(msgspec.Struct, frozen=True):
    """One feed, and its settings, those of four tables, the last first.

    They are the built-in ones, ``[resources.X]``, ``[source_defaults.resources.X]`` and ``[sources.S.resources.X]``.
    """

    source: str
    resource: str
    settings: ResourceSettings
    paused: bool = False  # its source is: it is not read


def merge_feeds(
    sources: Mapping[str, SourceSettings], common: Resources, defaults: Resources
) -> tuple[FeedSettings, ...]:
    """Return the feeds that are read, by source and in the order of the API's resources.

    Without any ``[resources]`` all five are read, otherwise those listed there, in ``[source_defaults]`` or in the
    source's own table; never one that is not ``enabled``. Those of a paused source are among them. Feeds of which the
    sources' own tables say nothing have one settings object for each resource.
    """
    layers = common.listed(), defaults.listed()
    shared = {
        name: merge(default, *(layer[name] for layer in layers if name in layer)) for name, default in BUILT_IN.items()
    }
    listed = {name for name in shared if not layers[0] or any(name in layer for layer in layers)}
    bounded = {name: bound(name, settings) for name, settings in shared.items()}
    feeds: list[FeedSettings] = []
    merged: dict[int, Mapping[str, ResourceSettings]] = {}  # by the object: many sources have the same
    for source, settings in sources.items():
        resources = settings.resources
        if (found := merged.get(id(resources))) is None:
            own = resources.listed()
            of_all = {name: each for name, each in bounded.items() if name in listed or name in own}
            of_own = {name: bound(name, merge(shared[name], each)) for name, each in own.items()}
            found = merged[id(resources)] = {name: each for name, each in (of_all | of_own).items() if each.enabled}
        feeds += [FeedSettings(source, name, each, settings.paused) for name, each in found.items()]
    return tuple(feeds)


OfferedName: TypeAlias = Literal["shipments", "packages", "items", "stock", "warehouses", "notices"]
"""What a sink may take: the resources, and dockbell's own notices to its operator."""


class StoreSettings(Settings):
    """``[store]``: where snapshots and events are kept."""

    url: StoreUrl = Field(default=f"{SQLITE}dockbell.db", validate_default=True)
    keep_events: Duration = timedelta(days=7)
    max_owed: Interval = timedelta(days=30)
    keep_attempts: int = Field(default=50_000, ge=0, le=10_000_000)
    max_disk_share: float = Field(default=0.2, gt=0, le=1)

    @property
    def path(self) -> Path | None:
        """The file of SQLite; None where the store is in PostgreSQL."""
        return Path(self.url.removeprefix(SQLITE)) if self.url.startswith(SQLITE) else None


class SinkSettings(Settings):
    """``[sinks.NAME]``: what every kind of sink has; each kind adds its own keys by a subclass in its own module."""

    type: str
    sources: Annotated[Names, *OneOrMore] | None = None
    resources: Annotated[tuple[OfferedName, ...], *OneOrMore] | None = None
    changes: Annotated[tuple[ChangeName, ...], *OneOrMore] | None = None
    where: Condition | None = None
    on_leave: Literal["skip", "send"] = "skip"
    start: Literal["now", "beginning", "state"] = "now"
    payload: Literal["full", "patch", "thin"] = "full"
    fields: Pointers = ()
    redact: Pointers = ()
    max_event_size: int = Field(default=65_536, ge=1024)
    on_dead: Literal["skip", "hold"] = "skip"
    retry: Schedule = RETRY_SCHEDULE
    requests_per_minute: int | None = Field(default=None, ge=1)
    coalesce: bool = False

    @model_validator(mode="after")
    def _need_every_patch(self) -> Self:
        if self.coalesce and self.payload == "patch":
            raise misfit((("coalesce",), 'skips changes, but payload = "patch" needs every change; remove one of them'))
        return self

    @model_validator(mode="after")
    def _need_a_filter_to_leave(self) -> Self:
        if self.on_leave == "send" and self.where is None:
            raise misfit((("on_leave",), '"send" requires where; add where, or remove on_leave'))
        return self

    def owned_by(self, dockbell: str, sink: str) -> Self:
        """Return settings for the sink of this name of one of several dockbells, which may share a receiver."""
        del dockbell, sink
        return self

    def shared_by(self, slot: int) -> Self:
        """Return settings for one of several processes of one dockbell, which have slots from 0."""
        del slot
        return self

    def claim(self) -> str:
        """Return what no two sinks may have, in words; empty where there is nothing such."""
        return ""

    def aside(self) -> Self:
        """Return settings for a short run beside the daemon's, such as a test: changed where the two would clash."""
        return self


def _choose_sink(given: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Validate ``[sinks.NAME]`` by the model of its ``type``, which the context's ``sink_types`` gives."""
    sink_types: Callable[[str], type[SinkSettings]] | None = (info.context or {}).get("sink_types")
    if not isinstance(given, dict) or sink_types is None:
        return handler(given)
    kind = given.get("type")
    if kind is None:
        raise misfit((("type",), 'missing; add one, such as type = "webhook"'))
    if not isinstance(kind, str):
        raise misfit((("type",), f"must be text in quotes, got {name_kind(kind)}"))
    try:
        model = sink_types(kind)
    except ConfigError as error:
        raise misfit(((), str(error))) from None
    return model.model_validate(given, context=info.context)


class Config(Settings):
    """The whole file."""

    _origins: Origins = PrivateAttr(default_factory=Origins)
    _written: Written = PrivateAttr(default_factory=Written)
    name: Name = "dockbell"
    include: Patterns = ()
    store: StoreSettings = Field(default_factory=StoreSettings)
    web: WebSettings | None = None
    source_defaults: SourceDefaults = Field(default_factory=SourceDefaults)
    sources: dict[Name, SourceSettings] = Field(default_factory=dict, validate_default=True)
    resources: Resources = Resources()
    sinks: dict[Name, SerializeAsAny[Annotated[SinkSettings, WrapValidator(_choose_sink)]]] = Field(
        default_factory=dict
    )

    @field_validator("sources")
    @classmethod
    def _check_sources(cls, sources: dict[str, SourceSettings], info: ValidationInfo) -> dict[str, SourceSettings]:
        store = info.data.get("store")
        may_come = store is not None and store.path is None  # from another process
        may_come = may_come or not (info.context or {}).get("needs_sources", True)
        if not sources and info.data.get("include") == () and not may_come:  # a folder of sources may be empty
            raise ValueError("no source is configured; add [sources.main] with base_url and api_key")
        problems = []
        firsts: dict[tuple[str, Secret], str] = {}
        for name, source in sources.items():
            first = firsts.setdefault(source.account, name)
            for key in ("requests_per_minute", "share"):
                got, wanted = getattr(source, key), getattr(sources[first], key)
                if got != wanted:
                    words = f"must be {wanted} as in [sources.{first}], which has the same api_key, got {got};"
                    problems.append(((name, key), f"{words} sources with one key share its budget"))
        if problems:
            raise misfit(*problems)
        return sources

    @field_validator("sinks")
    @classmethod
    def _check_filters(cls, sinks: dict[str, SinkSettings], info: ValidationInfo) -> dict[str, SinkSettings]:
        if not info.data.keys() >= {"source_defaults", "sources", "resources"}:
            return sinks  # what they hold is not known: their own problems come first
        feeds = merge_feeds(info.data["sources"], info.data["resources"], info.data["source_defaults"].resources)
        problems = [
            ((name, key), words)
            for name, sink in sinks.items()
            for key, words in (*_find_dead_filters(sink, feeds), *_find_loose_patches(sink, feeds))
        ]
        if problems:
            raise misfit(*problems)
        return sinks

    @model_validator(mode="after")
    def _need_a_feed(self) -> Self:
        idle = self.sources.keys() - {feed.source for feed in self.feeds()}
        if idle:
            raise misfit(*((("sources", name), "reads nothing; enable one of its resources") for name in sorted(idle)))
        return self

    @model_validator(mode="after")
    def _refuse_needed_drops(self) -> Self:
        problems = []
        for feed in self.feeds():
            settings = feed.settings
            if not settings.drop:
                continue
            for place, need in settings.needed:
                if (taken := find_taken(settings.drop, place)) is not None:
                    words = f'must not contain "{taken}": {need} of {feed.source}/{feed.resource} is {place}; remove it'
                    problems.append(((*self._find_table(feed), feed.resource, "drop"), words))
        if problems:
            raise misfit(*dict(problems).items())
        return self

    def _find_table(self, feed: FeedSettings) -> tuple[str, ...]:
        """Return the table of resources that says most of a feed."""
        if feed.resource in self.sources[feed.source].resources.listed():
            return ("sources", feed.source, "resources")
        return (
            ("source_defaults", "resources")
            if feed.resource in self.source_defaults.resources.listed()
            else ("resources",)
        )

    @property
    def origins(self) -> Origins:
        """Where its parts are written."""
        return self._origins

    def read_from(self, origins: Origins) -> Self:
        self._origins = origins
        return self

    @property
    def written(self) -> Written:
        """What its file says, before anything was filled in."""
        return self._written

    def written_as(self, written: Written) -> Self:
        self._written = written
        return self

    def accounts(self) -> dict[str, str]:
        """Return for each source the first one, by name, that has the same API key: they share its budget."""
        firsts: dict[tuple[str, Secret], str] = {}
        return {name: firsts.setdefault(self.sources[name].account, name) for name in sorted(self.sources)}

    def intervals(self) -> dict[str, timedelta]:
        """Return the shortest interval of the sources with each API key, by the first of them, where one has any."""
        shortest: dict[str, timedelta] = {}
        accounts = self.accounts()
        for each in self.feeds():
            if isinstance(every := each.settings.schedule, timedelta):
                first = accounts[each.source]
                shortest[first] = min(every, shortest.get(first, every))
        return shortest

    def only(self, sources: Collection[str]) -> Self:
        """Return the same with some of the sources, perhaps none."""
        left = {name: source for name, source in self.sources.items() if name in sources}
        copied = self.model_copy(update={"sources": left})
        copied.__dict__["merged_feeds"] = tuple(feed for feed in self.feeds() if feed.source in left)
        return copied

    def feeds(self) -> Sequence[FeedSettings]:
        """Return the feeds that are read, by source and in the order of the API's resources, with merged settings."""
        return self.merged_feeds

    @cached_property
    def merged_feeds(self) -> Sequence[FeedSettings]:
        return merge_feeds(self.sources, self.resources, self.source_defaults.resources)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("merged_feeds", None)  # they may be others
        return copied


def _find_dead_filters(sink: SinkSettings, feeds: Sequence[FeedSettings]) -> Iterator[tuple[str, str]]:
    """Yield the filters of a sink that name what never has an event, each with what is wrong."""
    known = {feed.source: None for feed in feeds}
    for source in sink.sources or () if known else ():
        if source not in known:
            yield "sources", f'unknown source "{source}"; {suggest(source, known)}'
    wanted = known.keys() if sink.sources is None else frozenset(sink.sources)
    read = {feed.resource: None for feed in feeds if feed.source in wanted}
    for resource in sink.resources or ():
        if read and resource not in read and resource != "notices":
            yield "resources", f'"{resource}" is not read from these sources; {suggest(resource, read)}'


def _find_loose_patches(sink: SinkSettings, feeds: Sequence[FeedSettings]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with patches to a sink that takes a feed whose arrays may change their order without one."""
    if sink.payload != "patch":
        return
    sources = None if sink.sources is None else frozenset(sink.sources)
    for feed in feeds:
        is_taken = (sources is None or feed.source in sources) and (
            sink.resources is None or feed.resource in sink.resources
        )
        if is_taken and feed.settings.unordered:
            order = f"{feed.source}/{feed.resource} ignores the order of {feed.settings.unordered[0]}"
            yield "payload", f'"patch" refers to positions in arrays, but {order}; use "full" or "thin"'
            return
