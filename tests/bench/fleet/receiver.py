"""A receiver that counts: it keeps of each event what is needed to tell what is missing, and what came twice."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from hashlib import blake2b
from multiprocessing.connection import Connection

import msgspec

from tests.bench.fleet.http import Peer, serve


class _After(msgspec.Struct):
    version: int


class _Data(msgspec.Struct):
    key: str | None = None
    revision: int = 0
    after: _After | None = None
    statement: str = ""
    reason: str = ""


class _Event(msgspec.Struct):
    id: str
    source: str
    type: str
    sequence: str
    data: _Data


_decode = msgspec.json.Decoder(_Event).decode


class Account(msgspec.Struct):
    """What the receiver was told.

    Attributes:
        deliveries: All that were answered.
        events: The different ones among them.
        gaps: Numbers that no event had, between the first and the last of their feeds.
        doubles: Numbers that two events had, and ids that had two contents.
        repeats: Deliveries of what had arrived before.
        late: The repeats that arrived after a younger event of the same record.
        disorder: Events that arrived for the first time after a younger one of the same record.
        cut: Deliveries whose sender was gone before the answer.
        statements: Events about feeds, by type and reason.
        versions: The last version of each record, by source.
        heard_at: When it arrived.
    """

    deliveries: int
    events: int
    gaps: int
    doubles: int
    repeats: int
    late: int
    disorder: int
    cut: int
    statements: dict[str, int]
    versions: dict[str, dict[str, int]]
    heard_at: dict[str, dict[str, float]]


class Ledger:
    """Notes events."""

    def __init__(self) -> None:
        self.deliveries = self.doubles = self.repeats = self.late = self.disorder = self.cut = 0
        self.statements: dict[str, int] = defaultdict(int)
        self.contents: dict[str, bytes] = {}
        self.numbers: dict[str, dict[int, str]] = defaultdict(dict)
        self.versions: dict[str, dict[str, int]] = defaultdict(dict)
        self.heard_at: dict[str, dict[str, float]] = defaultdict(dict)
        self.revisions: dict[tuple[str, str], int] = {}

    def hear(self, body: bytes) -> None:
        event, digest = _decode(body), blake2b(body, digest_size=8).digest()
        self.deliveries += 1
        source = event.source.split("/")[-2]
        place, revision = (source, event.data.key or ""), event.data.revision
        if (known := self.contents.setdefault(event.id, digest)) is not digest:
            self.repeats += 1
            self.doubles += known != digest
            self.late += event.data.key is not None and revision < self.revisions.get(place, 0)
            return
        numbers = self.numbers[event.source]
        self.doubles += numbers.setdefault(int(event.sequence), event.id) != event.id
        if event.data.key is None:
            self.statements[f"{event.type} {event.data.reason}".strip()] += 1
            return
        self.disorder += revision < self.revisions.get(place, 0)
        self.revisions[place] = max(revision, self.revisions.get(place, 0))
        if event.data.after is not None:
            self.versions[source][event.data.key] = event.data.after.version
            self.heard_at[source][event.data.key] = time.monotonic()

    def testify(self) -> Account:
        gaps = sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in self.numbers.values())
        return Account(
            self.deliveries,
            len(self.contents),
            gaps,
            self.doubles,
            self.repeats,
            self.late,
            self.disorder,
            self.cut,
            self.statements,
            self.versions,
            self.heard_at,
        )


class _Peer(Peer):
    def __init__(self, ledger: Ledger, late: float) -> None:
        self._ledger = ledger
        self._late = late

    def take(self, path: str, headers: Mapping[bytes, bytes], body: bytes) -> None:
        match path:
            case "/testimony":
                self.answer_with(self._ledger.testify())
            case "/count":
                self.answer_with(self._ledger.deliveries)
            case _:
                self._ledger.hear(body)
                if self._late:
                    asyncio.get_running_loop().call_later(self._late, self._accept)
                else:
                    self._accept()

    def _accept(self) -> None:
        self._ledger.cut += self.transport.is_closing()
        self.answer(204)


def serve_receiver(parent: Connection, late: float) -> None:
    """Take events until the process is ended, and answer each after ``late`` seconds."""

    async def run() -> None:
        ledger = Ledger()
        await serve(parent, lambda: _Peer(ledger, late))

    asyncio.run(run())
