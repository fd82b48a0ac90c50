"""Does what an operator asked of the daemon from another process, by way of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

import anyio

from dockbell.admin.purging import purge_record
from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.page_diff import Finding
from dockbell.core.model import Feed
from dockbell.detection.reader import Reader
from dockbell.detection.reconciler import Reconciler, describe
from dockbell.errors import StoreError, StoreUnavailable, is_due_to
from dockbell.ports import REWRITE_MOST, Alarm, Store, Wish, Wished
from dockbell.telemetry import Telemetry, WishFulfilled


@dataclass(slots=True)
class _Errand:
    """A wish that is seen to.

    Attributes:
        feed: Of which feed; None where it is asked of the daemon as such.
        scope: Ends it.
        ended: Set when it has ended.
    """

    feed: Feed | None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)


class Attendant:
    """Looks for wishes, and sees to each."""

    def __init__(
        self,
        store: Store,
        reconcilers: Mapping[Feed, Reconciler],
        readers: Mapping[Feed, Reader],
        telemetry: Telemetry,
        *,
        name: str = "dockbell",
    ) -> None:
        self._name = name
        self._store = store
        self._reconcilers = reconcilers
        self._readers = readers
        self._telemetry = telemetry
        self._busy: dict[int, _Errand] = {}

    async def run(self, alarm: Alarm, reload: Callable[[], Awaitable[str]] | None = None) -> None:
        """Look whenever the alarm rings, until cancelled; wishes of several feeds are seen to side by side.

        Args:
            alarm: Says when to look.
            reload: Reads the configuration again, and returns what came of it.
        """
        told = ""
        async with anyio.create_task_group() as group:
            while True:
                await alarm.wait()
                try:
                    wishes = await self._store.take_wishes()
                except StoreError as error:  # the wishes are still there when it is mended
                    if told != str(error):  # it is looked at twice a second
                        self._telemetry.emit_failure("attendant", error)
                    told = str(error)
                    continue
                told = ""
                for wished in wishes:
                    if wished.id not in self._busy:
                        self._busy[wished.id] = _Errand(wished.feed)
                        group.start_soon(self.see_to, wished, reload)

    async def see_to(self, wished: Wished, reload: Callable[[], Awaitable[str]] | None = None) -> None:
        """Do what is wished, and store what came of it."""
        errand = self._busy.setdefault(wished.id, _Errand(wished.feed))
        try:
            with errand.scope:
                await self._see_to(wished, reload)
        finally:
            del self._busy[wished.id]
            errand.ended.set()

    async def leave(self, feeds: Collection[Feed]) -> None:
        """Stop what is done of wishes for feeds, which wait then for whoever reads these feeds next."""
        while errands := [errand for errand in self._busy.values() if errand.feed in feeds]:
            for errand in errands:
                errand.scope.cancel()
                await errand.ended.wait()

    async def _see_to(self, wished: Wished, reload: Callable[[], Awaitable[str]] | None) -> None:
        try:
            if wished.wish is Wish.RELOAD:
                outcome = "complete: no daemon runs, nothing to reload" if reload is None else await reload()
            elif wished.wish is Wish.PURGE and wished.feed is not None:
                outcome = await self._purge(wished.feed, wished.key)
            elif wished.feed is not None and wished.feed in self._readers:
                outcome = await self._do(wished.wish, self._readers[wished.feed], self._reconcilers[wished.feed])
            else:
                outcome = "failed: the feed is not configured"
        except Exception as error:  # noqa: BLE001  # whatever it is, other wishes are seen to
            if is_due_to(error, StoreUnavailable):
                return  # told by the store; the wish is still there when it is mended
            self._telemetry.emit_failure(f"{wished.feed or 'dockbell'}: {wished.wish}", error)
            outcome = f"failed: {type(error).__name__}: {error}; the log has more"
        try:
            await self._store.fulfil(wished, outcome)
        except Exception as error:  # noqa: BLE001  # it will be seen to again
            self._telemetry.emit_failure(f"{wished.feed or 'dockbell'}: {wished.wish}", error)
        else:
            if wished.feed is not None:
                self._telemetry.emit(WishFulfilled(wished.feed, f"{wished.wish} {wished.key}".strip(), outcome))

    async def _purge(self, feed: Feed, key: str) -> str:
        outcome = await purge_record(self._store, feed, key, name=self._name, rewrite_most=REWRITE_MOST)
        if feed in self._readers:
            await self._readers[feed].reload()
            await self._reconcilers[feed].look()
        return outcome

    async def _do(self, wish: Wish, reader: Reader, reconciler: Reconciler) -> str:
        match wish:
            case Wish.RECONCILE:
                return await describe(reconciler)
            case Wish.APPROVE:
                return await describe(reconciler, approve=True)
            case Wish.REJECT:
                state = await reader.state()
                rows = await self._store.find_suspected(state.id) if state.held else ()
                await self._store.keep(state.id, rows, Finding.KEPT, ignored_until_seen=True)
                await reader.reload()
                await reconciler.look()
                return f"complete: {len(rows)} records are kept until they are seen again"
            case _:
                decision = Decision.ABSORB if wish is Wish.ABSORB else Decision.PUBLISH
                await self._store.decide_drift((await reader.state()).id, decision)
                await reader.reload()
                return await describe(reconciler)
