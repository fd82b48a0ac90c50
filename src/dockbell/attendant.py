"""Does what an operator asked of the daemon from another process, by way of the store."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from dockbell.core.comparing.drift import Decision
from dockbell.core.comparing.judgement import Finding
from dockbell.core.model import Feed
from dockbell.ports import Alarm, Store, Wish, Wished
from dockbell.reading import Reader
from dockbell.reconciler import Reconciler, describe
from dockbell.telemetry import AgentFails, Telemetry, WishFulfilled


class Attendant:
    """Looks for wishes, and sees to each."""

    def __init__(
        self,
        store: Store,
        reconcilers: Mapping[Feed, Reconciler],
        readers: Mapping[Feed, Reader],
        telemetry: Telemetry,
    ) -> None:
        self._store = store
        self._reconcilers = reconcilers
        self._readers = readers
        self._telemetry = telemetry
        self._busy: set[int] = set()

    async def run(self, alarm: Alarm) -> None:
        """Look whenever the alarm rings, until cancelled; wishes of several feeds are seen to side by side."""
        async with anyio.create_task_group() as group:
            while True:
                await alarm.wait()
                for wished in await self._store.take_wishes():
                    if wished.id not in self._busy:
                        self._busy.add(wished.id)
                        group.start_soon(self.see_to, wished)

    async def see_to(self, wished: Wished) -> None:
        """Do what is wished, and store what came of it."""
        try:
            outcome = await self._do(wished) if wished.feed in self._readers else "failed: the feed is not configured"
            await self._store.fulfil(wished, outcome)
        except Exception as error:  # noqa: BLE001  # whatever it is, other wishes are seen to, and so will this one be
            self._telemetry.emit(AgentFails(f"{wished.feed} {wished.wish}", error))
        else:
            self._telemetry.emit(WishFulfilled(wished.feed, wished.wish, outcome))
        finally:
            self._busy.discard(wished.id)

    async def _do(self, wished: Wished) -> str:
        reader, reconciler = self._readers[wished.feed], self._reconcilers[wished.feed]
        match wished.wish:
            case Wish.RECONCILE:
                return await describe(reconciler)
            case Wish.APPROVE:
                return await describe(reconciler, approve=True)
            case Wish.REJECT:
                state = await reader.state()
                rows = await self._store.find_suspected(state.id) if state.held else ()
                await self._store.spare(state.id, rows, Finding.KEPT, dormant=True)
                await reader.reload()
                return f"complete: {len(rows)} records are kept until they are seen again"
            case Wish.ABSORB | Wish.PUBLISH:
                decision = Decision.ABSORB if wished.wish is Wish.ABSORB else Decision.PUBLISH
                await self._store.decide_drift((await reader.state()).id, decision)
                await reader.reload()
                return await describe(reconciler)
