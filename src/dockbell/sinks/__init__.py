"""Where events go; each module is one kind of sink, found by the entry point ``dockbell.sinks``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints, distribution, entry_points
from typing import Any, Final, Protocol, cast

from dockbell.config import SinkSettings, suggest
from dockbell.errors import ConfigError
from dockbell.ports import Sink
from dockbell.telemetry import Telemetry

_GROUP: Final = "dockbell.sinks"


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
    return {entry.name: entry for entry in [*entry_points(group=_GROUP), *_find_own()]}


def load_sink_type(name: str) -> SinkType:
    """Import one kind of sink; ConfigError where there is none of that name, or it cannot be imported."""
    # All that is installed is looked through for the kinds of others only: it takes four times as long.
    entry = next((own for own in _find_own() if own.name == name), None) or find_sink_types().get(name)
    if entry is None:
        raise ConfigError(f'sink type "{name}": unknown; {suggest(name, sorted(find_sink_types()))}')
    try:
        return cast("SinkType", entry.load())
    except (ImportError, AttributeError) as error:
        raise ConfigError(f'sink type "{name}": cannot be imported, {error}; install its dependencies') from error


def _find_own() -> EntryPoints:
    """Return the kinds that dockbell brings; no other package can take their names."""
    return distribution("dockbell").entry_points.select(group=_GROUP)
