"""How commands and the page reach a store: beside the process that works on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from dockbell.ports import Footprint, Member
from dockbell.stores.sql.connection import Connection

_T = TypeVar("_T")
_P = ParamSpec("_P")


class Session(Protocol):
    """A connection beside the process that works on the store."""

    epoch: str

    async def do(self, function: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function with the connection.

        Raises:
            StoreError: The store cannot be used.
        """

    async def measure(self) -> Footprint:
        """Return how much of its disk the store uses."""

    async def load_members(self) -> Sequence[Member]:
        """Return the processes that share the store; none where it has one process at most."""

    async def load_holders(self) -> Mapping[str, str]:
        """Return which of them has each source that one has, by its name."""

    async def aclose(self) -> None:
        """Close it."""
