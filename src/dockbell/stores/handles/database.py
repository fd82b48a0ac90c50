"""Where a store is, a file or a database on a server, and the ways in which processes open it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from dockbell.ports import Configurations

if TYPE_CHECKING:
    from dockbell.stores.handles.command_store import SqlCommandStore
    from dockbell.stores.handles.engine import Clock
    from dockbell.stores.handles.read_store import SqlReadStore
    from dockbell.stores.handles.store import SqlStore
    from dockbell.telemetry import Telemetry


class HeldConfigurations(Configurations, Protocol):
    """Those of a store that was opened for them."""

    async def aclose(self) -> None:
        """Close it."""


class Database(ABC):
    """The place of one store; who opens something in it closes it."""

    @abstractmethod
    async def open_store(
        self, *, now: Clock, epoch: str | None = None, telemetry: Telemetry | None = None, shared: bool = False
    ) -> SqlStore:
        """Return the store to work on it.

        One that is missing is made, under a new epoch; one of an older dockbell is brought up to date.

        ``telemetry`` reports outages. Where it is ``shared`` and the database allows that, others may work on it too.

        Raises:
            StoreInUse: Another process works on it, and one of the two must be alone.
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: It cannot be opened.
        """

    @abstractmethod
    async def open_read_store(self) -> SqlReadStore:
        """Return what looks at the store, whether a process works on it or not.

        Raises:
            StoreMissing: There is none yet.
            StoreIncompatible: It is not a store, or one of another dockbell.
            StoreError: It cannot be opened.
        """

    @abstractmethod
    async def open_command_store(self) -> SqlCommandStore:
        """Return what leaves commands and decisions in the store; raises as :meth:`open_read_store` does."""

    @abstractmethod
    async def open_configurations(self) -> HeldConfigurations:
        """Return the revisions of the configuration that processes share; raises as :meth:`open_read_store` does.

        Raises:
            StoreError: Also where the processes of such a store share none.
        """

    @abstractmethod
    def find_holder(self) -> str:
        """Return who works on the store, ``process 4711``; empty when none does.

        Raises:
            StoreError: It cannot be asked.
        """

    @abstractmethod
    async def probe(self) -> str:
        """Look whether a daemon could open the store, without making one; return in a few words what was found.

        Raises:
            StoreIncompatible: It is not a store, or one of a newer dockbell.
            StoreError: It cannot be opened, or not be made.
        """
