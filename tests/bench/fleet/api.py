"""An API of many accounts, each with a small table of shipments that changes now and then; it notes each request."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tests.bench.fleet.http import Peer, serve

WINDOW: Final = 60.0
_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_PAGE: Final = 25
_FILLING: Final = "x" * 300
"""What else a record has: half a kilobyte is usual."""


class Options(msgspec.Struct, frozen=True):
    """How the API behaves."""

    records: int = 5  # of each account
    large: Mapping[str, int] = msgspec.field(default_factory=dict)  # other numbers of records, by account
    limits: Mapping[str, int] = msgspec.field(default_factory=dict)  # requests a minute, by account; others have none
    changes: float = 0  # a second, over all accounts
    late: float = 0  # seconds until an answer


class Testimony(msgspec.Struct):
    """What the API saw and did; times are those of the machine's steady clock."""

    requests: dict[str, list[float]]  # by account, but those that were refused
    refused: dict[str, int]  # answers 429, by account
    fullest: dict[str, int]  # the most requests within a window, wherever it begins
    versions: dict[str, dict[str, int]]  # of the records that were changed, by account
    changed_at: dict[str, dict[str, float]]  # when that was done last


class Account:
    """One table; the record that was changed last is its last one."""

    def __init__(self, count: int) -> None:
        self.versions = dict.fromkeys(range(count), 0)
        self.stamps: dict[int, datetime] = {}
        self.changed_at: dict[int, float] = {}
        self.requests: list[float] = []
        self.window: deque[float] = deque()
        self.fullest = self.refused = 0

    def change(self, number: int) -> None:
        self.versions[number] += 1
        self.stamps.pop(number, None)
        self.stamps[number] = datetime.now(UTC)
        self.changed_at[number] = time.monotonic()

    def show(self, since: datetime | None, start: int, limit: int) -> tuple[list[bytes], int | None]:
        """Return the records of a page, and where the next one starts."""
        if since is None:
            until = min(start + limit, len(self.versions))
            return [self._render(each) for each in range(start, until)], until if until < len(self.versions) else None
        found = [*self._find_since(since)]
        page = found[start : start + limit]
        return [self._render(each) for each in page], start + limit if start + limit < len(found) else None

    def _find_since(self, since: datetime) -> Iterator[int]:
        for number, stamp in reversed(self.stamps.items()):
            if stamp < since:
                return
            yield number
        if since <= _EPOCH + timedelta(days=1):
            yield from (number for number in self.versions if number not in self.stamps)

    def _render(self, number: int) -> bytes:
        stamp = self.stamps.get(number, _EPOCH + timedelta(seconds=number % 86400))
        version = self.versions[number]
        return b'{"id":"shp_%07d","status":"packed","updated_at":"%b","version":%d,"weight":%d.5,"note":"%b"}' % (
            number,
            stamp.isoformat(timespec="milliseconds").encode(),
            version,
            number % 40,
            _FILLING.encode(),
        )

    def count(self, now: float, limit: int) -> int:
        """Count a request that arrives now, if it may be answered; return how many the window has left, or -1."""
        while self.window and self.window[0] <= now - WINDOW:
            self.window.popleft()
        if len(self.window) >= limit:
            self.refused += 1
            return -1
        self.window.append(now)
        self.requests.append(now)
        self.fullest = max(self.fullest, len(self.window))
        return limit - len(self.window)


class Api:
    """All accounts, made as they are asked for."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.accounts: dict[str, Account] = {}
        self.is_changing = False

    def find(self, key: str) -> Account:
        if key not in self.accounts:
            self.accounts[key] = Account(self.options.large.get(key, self.options.records))
        return self.accounts[key]

    async def change(self) -> None:
        """Change records of accounts that were asked for, picked by chance, at the pace of the options."""
        dice, began, count = random.Random(7), 0.0, 0
        while True:
            await asyncio.sleep(0.02)
            if not self.is_changing or not self.accounts:
                began, count = time.monotonic(), 0
                continue
            names = [*self.accounts]
            while count < (time.monotonic() - began) * self.options.changes:
                account = self.accounts[dice.choice(names)]
                account.change(dice.randrange(len(account.versions)))
                count += 1

    def testify(self) -> Testimony:
        accounts = self.accounts.items()
        return Testimony(
            {key: account.requests for key, account in accounts},
            Counter({key: account.refused for key, account in accounts if account.refused}),
            {key: account.fullest for key, account in accounts},
            {
                key: {f"shp_{number:07}": account.versions[number] for number in account.stamps}
                for key, account in accounts
                if account.stamps
            },
            {
                key: {f"shp_{number:07}": at for number, at in account.changed_at.items()}
                for key, account in accounts
                if account.stamps
            },
        )


class _Peer(Peer):
    def __init__(self, api: Api) -> None:
        self._api = api

    def take(self, path: str, headers: Mapping[bytes, bytes], body: bytes) -> None:
        url = urlsplit(path)
        match url.path:
            case "/v1/shipments":
                late = self._api.options.late
                args = (headers[b"authorization"].decode().removeprefix("Bearer "), dict(parse_qsl(url.query)))
                if late:
                    asyncio.get_running_loop().call_later(late, self._list, *args, time.monotonic())
                else:
                    self._list(*args, time.monotonic())
            case "/testimony":
                self.answer_with(self._api.testify())
            case "/start" | "/stop":
                self._api.is_changing = url.path == "/start"
                self.answer_with(None)
            case "/change":
                for key, number in parse_qsl(url.query):
                    self._api.find(key).change(int(number))
                self.answer_with(None)
            case _:
                self.answer(404)

    def _list(self, key: str, query: Mapping[str, str], arrived: float) -> None:
        account, limit = self._api.find(key), self._api.options.limits.get(key, 1_000_000)
        left = account.count(arrived, limit)
        reset = int(time.time() + (account.window[0] + WINDOW - arrived))
        told = b"x-ratelimit-limit: %d\r\nx-ratelimit-remaining: %d\r\nx-ratelimit-reset: %d\r\n" % (
            limit,
            max(0, left),
            reset,
        )
        if left < 0:
            self.answer(429, b"{}", told)
            return
        since = datetime.fromisoformat(query["updated_since"]) if "updated_since" in query else None
        records, following = account.show(since, int(query.get("cursor", 0)), int(query.get("limit", _PAGE)))
        cursor = b"null" if following is None else b'"%d"' % following
        now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT").encode()
        self.answer(
            200, b'{"shipments":[%b],"next_cursor":%b}' % (b",".join(records), cursor), told + b"date: %b\r\n" % now
        )


def serve_api(parent: Connection, options: Options) -> None:
    """Serve an API until the process is ended."""

    async def run() -> None:
        api = Api(options)
        changing = asyncio.ensure_future(api.change())
        await serve(parent, lambda: _Peer(api))
        await changing

    asyncio.run(run())
