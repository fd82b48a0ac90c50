"""Where events go; each module is one kind of sink, found by the entry point ``dockbell.sinks``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, cast

from dockbell.config import SinkSettings, suggest
from dockbell.errors import ConfigError
from dockbell.ports import Sink
from dockbell.telemetry import Telemetry


class SinkType(Protocol):
    """A kind of sink, which an entry point names."""

    @property
    def Settings(self) -> type[SinkSettings]:  # noqa: N802  # a class, where it is found
        """The model of ``[sinks.NAME]``."""

    def __call__(self, name: str, settings: Any, telemetry: Telemetry) -> Sink:
        """Return the sink ``[sinks.NAME]``, not yet connected; ConfigError where a secret or a file cannot be used."""
        ...


def find_sink_types() -> dict[str, EntryPoint]:
    """Return the kinds of sinks that are installed, by the ``type`` that names them; none is imported."""
    return {entry.name: entry for entry in entry_points(group="dockbell.sinks")}


def load_sink_type(name: str) -> SinkType:
    """Import one kind of sink; ConfigError where there is none of that name, or it cannot be imported."""
    known = find_sink_types()
    if name not in known:
        raise ConfigError(f'sink type "{name}": unknown; {suggest(name, sorted(known))}')
    try:
        return cast("SinkType", known[name].load())
    except (ImportError, AttributeError) as error:
        raise ConfigError(f'sink type "{name}": cannot be imported, {error}; install its dependencies') from error
