"""Work that has a task only while there is something to do: a process has thousands of feeds, and few have any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from anyio.abc import TaskGroup


class OnDemand:
    """Does its work when it is asked to, once at a time.

    Args:
        work: Does all that is to be done, and returns; it is begun again where it was asked for meanwhile.

    Attributes:
        is_working: Whether there is a task.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._group: TaskGroup | None = None
        self._is_asked = False
        self.is_working = False

    @contextmanager
    def working_in(self, group: TaskGroup) -> Iterator[None]:
        """Work in a task group while the block lasts; what goes on at its end is the group's to end."""
        self._group = group
        self._begin()
        try:
            yield
        finally:
            self._group = None

    def ask(self) -> None:
        """Begin, or begin again after the end of what goes on; it is remembered until there is a group to work in."""
        self._is_asked = True
        self._begin()

    def _begin(self) -> None:
        if self._group is not None and self._is_asked and not self.is_working:
            self.is_working = True
            self._group.start_soon(self._run)

    async def _run(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                await self._work()
        finally:
            self.is_working = False
