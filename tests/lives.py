"""A small API whose records each walk a numbered life: 1 → 2 → 3 → deleted → 4 … (for the stress test)."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.brokers import find_free_port

_PAGE_MOST = 20
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass
class Life:
    """One record's life.

    Attributes:
        steps: Its numbers in their order, None where it was deleted.
        shown: How many of the steps can be seen.
        stamp: Of the last step that can be seen.
    """

    steps: list[int | None] = field(default_factory=list)
    shown: int = 0
    stamp: datetime = _NEVER

    @property
    def number(self) -> int | None:
        """The number that is to be seen now."""
        return self.steps[self.shown - 1] if self.shown else None


class Lives:
    """Records of three resources that live by chance; what they went through is remembered.

    Shipments and packages are listed by ``updated_at`` with offset cursors, so that pages drift; stock by its key,
    with neither id nor timestamp. One step in five can be seen only up to two seconds after its timestamp, one request
    in fifty fails.
    """

    def __init__(self, seed: int, *, keys: int) -> None:
        self.dice = random.Random(seed)
        self.lives: dict[str, dict[str, Life]] = {
            resource: {f"{resource[0]}{number}": Life() for number in range(keys)}
            for resource in ("shipments", "packages", "stock")
        }
        self.faults = 0.02
        self.port = find_free_port()
        self._due: dict[str, list[tuple[datetime, str, datetime]]] = defaultdict(list)
        for resource, lives in self.lives.items():
            for key in lives:
                self._step(resource, key, deleted=False, late=0)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    # Life -------------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Take some record one step on."""
        resource = self.dice.choice(list(self.lives))
        key = self.dice.choice(list(self.lives[resource]))
        gone = sum(life.number is None for life in self.lives[resource].values())
        # So few at a time that no deletion is held.
        deleted = self.lives[resource][key].steps[-1] is not None and gone < 3 and self.dice.random() < 0.03
        self._step(resource, key, deleted=deleted, late=self.dice.uniform(0, 2) if self.dice.random() < 0.2 else 0)

    def _step(self, resource: str, key: str, *, deleted: bool, late: float) -> None:
        life, now = self.lives[resource][key], datetime.now(UTC)
        number = max((step for step in life.steps if step is not None), default=0) + 1
        life.steps.append(None if deleted else number)
        due = self._due[resource]
        shown_at = max([now + timedelta(seconds=late), *(at for at, each, _ in due if each == key)])
        due.append((shown_at, key, now))
        self._show(resource)

    def _show(self, resource: str) -> None:
        """Let be seen what is due."""
        now, due = datetime.now(UTC), self._due[resource]
        for shown_at, key, stamp in list(due):
            if shown_at <= now:
                life = self.lives[resource][key]
                life.shown += 1
                life.stamp = stamp
                due.remove((shown_at, key, stamp))

    async def live(self, rate: float) -> None:
        """Live until cancelled, ``rate`` steps a second."""
        while True:
            await anyio.sleep(self.dice.expovariate(rate))
            self.step()

    def numbers(self, resource: str) -> dict[str, int]:
        """Return what is to be seen of a resource."""
        self._show(resource)
        return {key: life.number for key, life in self.lives[resource].items() if life.number is not None}

    # HTTP -------------------------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        resource = request.path_params["resource"]
        self._show(resource)
        if self.dice.random() < self.faults:
            return Response("<html>busy</html>", status_code=503, headers=_date())
        asked = request.query_params
        start, most = int(asked.get("cursor", 0)), min(int(asked.get("limit", 50)), _PAGE_MOST)
        found = self._find(resource, asked.get("updated_since"))
        following = start + most
        page = {resource: found[start:following], "next_cursor": str(following) if following < len(found) else None}
        return JSONResponse(page, headers=_date())

    def _find(self, resource: str, since: str | None) -> list[dict[str, Any]]:
        there = [(key, life) for key, life in self.lives[resource].items() if life.number is not None]
        if resource == "stock":
            return [{"sku": key, "warehouse_id": "w/1", "available": life.number} for key, life in sorted(there)]
        there.sort(key=lambda pair: (pair[1].stamp, pair[0]))
        if since is not None:
            moment = datetime.fromisoformat(since)
            there = there[bisect_left(there, moment, key=lambda pair: pair[1].stamp) :]
        return [_record(key, life) for key, life in there]

    async def _read(self, request: Request) -> Response:
        self._show("shipments")
        life = self.lives["shipments"].get(request.path_params["key"])
        if life is None or life.number is None:
            return JSONResponse({"error": {"code": "not_found"}}, status_code=404, headers=_date())
        return JSONResponse(_record(request.path_params["key"], life), headers=_date())

    @property
    def app(self) -> Starlette:
        """The API."""
        return Starlette(routes=[Route("/v1/shipments/{key}", self._read), Route("/v1/{resource}", self._list)])


def _record(key: str, life: Life) -> dict[str, Any]:
    return {"id": key, "number": life.number, "updated_at": life.stamp.isoformat().replace("+00:00", "Z")}


def _date() -> dict[str, str]:
    return {"date": format_datetime(datetime.now(UTC), usegmt=True)}
