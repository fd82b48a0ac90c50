"""How long after a change can be read it is delivered: the real daemon, a real webhook, and a sandbox that is changed.

Every change is an edit of a record picked at random, at random times (Poisson), each resource at its own rate. The
store is filled first, without a limit, so that the daemon begins with everything known but what changes how often.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil, inf, nan
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import anyio
import httpx
import msgspec
from starlette.applications import Starlette
from starlette.routing import Route

from dockbell.core.publishing.signature import mint
from dockbell.sandbox.table import RESOURCES
from tests.bench.bare_delivery import SECRET
from tests.bench.delays import Changes, Receiver, Told, Wait, count_invented, find_waits
from tests.bench.floor import Demand, Floor, find_floor
from tests.bench.processes import cpu_seconds, run_alone, serving
from tests.bench.reading import UNPACED, read_all
from tests.bench.servers import Request, Testimony, serve_witnessed
from tests.bench.table import print_table
from tests.brokers import find_free_port
from tests.services import Daemon
from tests.serving import listening

SHARE: Final = 0.9
"""The daemon's default."""
_LIMIT: Final = 300
_PER_PAGE: Final = 200
_MINUTE: Final = 60
_LOOK: Final = 2.0
_SETTLE: Final = 3.0
_FOREIGN: Final = "somebody else"
_BENCH: Final = "bench"


class Times(NamedTuple):
    """How long a run takes, in seconds."""

    learn: float  # before anything is measured
    measure: float
    drain: float  # the most that the last changes have to arrive


SMOKE: Final = Times(8, 15, 15)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the run that has figures of its own; times in seconds since the start."""

    name: str
    start: float
    end: float
    rates: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What there is and how it changes."""

    rates: Mapping[str, float]  # changes a second, by resource
    then: Mapping[str, float] | None = None  # the rates after the flip
    flip_at: float = 15 * _MINUTE
    records: Mapping[str, int] = field(
        default_factory=lambda: {
            "shipments": 100_000,
            "packages": 120_000,
            "items": 50_000,
            "stock": 50_000,
            "warehouses": 200,
        }
    )
    accounts: int = 1  # each reads everything with a key of its own
    foreign: int = 0  # requests a minute of another user of each key
    limit: int = _LIMIT  # requests a minute
    settings: str = ""  # of the daemon, beyond where to read and where to deliver

    @property
    def keys(self) -> list[str]:
        """The keys of the accounts, which are the names of the sources too."""
        return [f"account{number}" for number in range(1, self.accounts + 1)]

    def demands(self, rates: Mapping[str, float]) -> dict[str, Demand]:
        """Return what each feed of an account asks for at some rates."""
        costs = {name: 1 if RESOURCES[name].since else ceil(self.records[name] / _PER_PAGE) for name in rates}
        return {name: Demand(rate, costs[name]) for name, rate in rates.items()}

    def floor(self, rates: Mapping[str, float]) -> Floor:
        """Return the floor of the daemon's share of the limit."""
        return find_floor(self.demands(rates), (self.limit * SHARE - self.foreign) / _MINUTE)

    def spans(self, learn: float, measure: float) -> Iterator[Span]:
        """Yield the parts of a run that learns first."""
        end = learn + measure
        if self.then is None:
            yield Span("measured", learn, end, self.rates)
            return
        again = self.flip_at + learn
        for span in (
            Span("before the flip", learn, min(self.flip_at, end), self.rates),
            Span("learning again", max(learn, self.flip_at), min(again, end), self.then),
            Span("after the flip", again, end, self.then),
        ):
            if span.start < span.end:
                yield span

    def smoke(self) -> Load:
        """Return a load of the same form for less than a minute: few records, read often, with room for it."""
        every = "".join(f'[resources.{name}]\nevery = "1s"\n' for name in self.rates)
        return dataclasses.replace(
            self,
            rates=_quicken(self.rates),
            then=self.then and _quicken(self.then),
            records={"shipments": 400, "packages": 500, "items": 200, "stock": 1000, "warehouses": 10},
            flip_at=15,
            accounts=min(self.accounts, 3),
            limit=6000,
            settings=every,
        )


def _quicken(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: 4 * rate for name, rate in rates.items()}


_LISTS: Final = Load(rates={"shipments": 1.5, "packages": 1.5, "items": 1.0, "stock": 0.9, "warehouses": 0.1})
_SHIPMENTS: Final = Load(rates={"shipments": 3.0, "packages": 1.0, "items": 0.5, "stock": 0.4, "warehouses": 0.1})
LOADS: Final = {
    "lists": _LISTS,
    "stock": Load(rates={"shipments": 2.0, "packages": 0.7, "items": 0.25, "stock": 2.0, "warehouses": 0.05}),
    "shipments": _SHIPMENTS,
    "flip": dataclasses.replace(_SHIPMENTS, then=dict(_SHIPMENTS.rates, shipments=0.5, stock=4.0)),
    "accounts": Load(
        rates={name: rate / 5 for name, rate in _LISTS.rates.items()},
        records={"shipments": 2000, "packages": 2400, "items": 1000, "stock": 2000, "warehouses": 20},
        accounts=20,
    ),
    "foreign": dataclasses.replace(_LISTS, foreign=120),
}


@dataclass(frozen=True, slots=True)
class _Run:
    """All that is known of a run afterwards; times are Unix times."""

    began: float
    waits: Sequence[Wait]
    told: Sequence[Told]
    invented: int
    requests: Sequence[Request]
    cpu: Sequence[float]  # seconds that the daemon used in each span


def measure_freshness(load: Load, times: Times, *, at_most: float = inf) -> bool:
    """Print how fresh events are beside the floor; return whether all is well.

    It is not when a change was lost, an event invented, a request refused by the limit, or when the mean is more than
    ``at_most`` times the floor.
    """
    options = {**load.records, "requests_per_minute": 0, "api_keys": (*load.keys, _BENCH)}
    spans = list(load.spans(times.learn, times.measure))
    with TemporaryDirectory() as name, serving(serve_witnessed, options) as url:
        folder = Path(name)
        run_alone(_fill, url, folder / "dockbell.db", load.keys)
        run = anyio.run(_measure, load, spans, times.drain, url, folder)
    ratios = [_print_span(load, span, run, cpu) for span, cpu in zip(spans, run.cpu, strict=True)]
    refused = sum(request.status == HTTPStatus.TOO_MANY_REQUESTS for request in run.requests)
    lost = sum(wait.is_lost for wait in run.waits)
    print_table(
        ("the whole run", ""), ("answers 429", f"{refused}"), ("lost", f"{lost}"), ("invented", f"{run.invented}")
    )
    return not (refused or lost or run.invented) and max(ratios) <= at_most


def _fill(url: str, path: Path, keys: Sequence[str]) -> None:
    """Read everything for the first time, by another key: none of it counts in the limit later."""
    read_all(url, path, sources={key: {"base_url": url, "api_key": _BENCH, **UNPACED} for key in keys})


async def _measure(load: Load, spans: Sequence[Span], drain: float, url: str, folder: Path) -> _Run:
    changes, receiver, port = Changes(), Receiver(), find_free_port()
    app = Starlette(routes=[Route("/hook", receiver.take, methods=["POST"])])
    (folder / "dockbell.toml").write_text(_configure(load, url, f"http://127.0.0.1:{port}/hook"))
    headers, cpu = {"authorization": f"Bearer {_BENCH}"}, []
    async with (
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client,
        listening(app, port),
    ):
        await client.post("/sandbox/options", params={"requests_per_minute": load.limit})
        with Daemon(folder) as daemon:
            daemon.start()
            async with anyio.create_task_group() as others:
                began = time.time()
                others.start_soon(_change, client, load, began)
                for key in load.keys if load.foreign else ():
                    others.start_soon(_use, url, key, _MINUTE / load.foreign)
                for span in spans:
                    await _sleep_until(began + span.start)
                    before = cpu_seconds(daemon.pid)
                    await _sleep_until(began + span.end)
                    cpu.append(cpu_seconds(daemon.pid) - before)
                await changes.follow(client)
                with anyio.move_on_after(drain):
                    while _count_open(changes, receiver, load, began + spans[0].start, began + spans[-1].end):
                        await anyio.sleep(_LOOK)
                        await changes.follow(client)
                others.cancel_scope.cancel()
            await anyio.sleep(_SETTLE)
            await changes.follow(client)
            ended = time.time()
            testimony = msgspec.json.decode((await client.get("/witness")).content, type=Testimony)
            code = await anyio.to_thread.run_sync(daemon.end, signal.SIGTERM)
            assert code == 0, (folder / "dockbell.log").read_text()
    return _Run(
        began,
        list(find_waits(changes, receiver.told, testimony.shown, load.keys, ended)),
        receiver.told,
        count_invented(changes, receiver.told),
        [request for request in testimony.requests if request.key != _BENCH],
        cpu,
    )


def _configure(load: Load, url: str, hook: str) -> str:
    """Return a configuration with everything at its default that can be."""
    limit = f"requests_per_minute = {load.limit}\n" * (load.limit != _LIMIT)
    sources = "".join(f'[sources.{key}]\nbase_url = "{url}"\napi_key = "{key}"\n{limit}' for key in load.keys)
    return f'{sources}{load.settings}[sinks.bench]\ntype = "webhook"\nurl = "{hook}"\nsecret = "{mint(SECRET)}"\n'


async def _sleep_until(at: float) -> None:
    await anyio.sleep(max(0.0, at - time.time()))


async def _change(client: httpx.AsyncClient, load: Load, began: float) -> None:
    """Edit records for ever, at random, each resource at its rate."""
    dice, due = random.Random(1), began
    while True:
        rates = load.rates if load.then is None or due < began + load.flip_at else load.then
        due += dice.expovariate(sum(rates.values()))
        await _sleep_until(due)
        (resource,) = dice.choices(list(rates), list(rates.values()))
        identity = f"{RESOURCES[resource].prefix}{dice.randint(1, load.records[resource])}"
        (await client.post(f"/sandbox/edit/{resource}", params={"id": identity})).raise_for_status()


async def _use(url: str, key: str, pause: float) -> None:
    """Read with a key for ever, as its other user."""
    headers = {"authorization": f"Bearer {key}", "user-agent": _FOREIGN}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        due = time.time()
        while True:
            await client.get("/v1/shipments", params={"limit": 1})
            due += pause
            await _sleep_until(due)


def _count_open(changes: Changes, receiver: Receiver, load: Load, start: float, end: float) -> int:
    """Return how many changes within two times have not arrived."""
    waits = find_waits(changes, receiver.told, (), load.keys, end)
    return sum(start <= wait.changed_at < end and not wait.is_told for wait in waits)


def _print_span(load: Load, span: Span, run: _Run, cpu: float) -> float:
    """Print the figures of a span; return how many times the floor its mean is."""
    start, end = run.began + span.start, run.began + span.end
    minutes = (end - start) / _MINUTE
    waits = [wait for wait in run.waits if start <= wait.changed_at < end]
    told = [event.place[0] for event in run.told if start <= event.at < end]
    floor = load.floor(span.rates)
    rows = []
    for name in span.rates:
        of_feed = [wait for wait in waits if wait.resource == name]
        rows.append((name, *_describe(of_feed, told.count(name), minutes, *floor.of(name))))
    rows.append(("all", *_describe(waits, len(told), minutes, floor.mean, floor.p99)))
    columns = (
        "changes/s",
        "changes",
        "events",
        "open",
        "mean, s",
        "p99, s",
        "floor: mean, s",
        "p99, s",
        "mean / floor",
    )
    print_table((f"{span.name}, {minutes:.1f} minutes", *columns), *rows)

    requests = [request for request in run.requests if start <= request.at < end]
    foreign = sum(request.agent == _FOREIGN for request in requests)
    rate = (len(requests) - foreign) / minutes / load.accounts
    delays = [wait.from_reading for wait in waits if wait.from_reading is not None]
    print_table(
        (span.name, ""),
        ("requests/minute of a key", f"{rate:.0f}"),
        (f"of the {load.limit} that it is allowed", f"{rate / load.limit:.0%}"),
        ("by its other user", f"{foreign / minutes / load.accounts:.0f}"),
        ("from the answer to the event, median, ms", f"{1000 * median(delays):.0f}" if delays else "-"),
        ("CPU, s/minute", f"{cpu / minutes:.1f}"),
    )
    return fmean(wait.delay for wait in waits) / floor.mean if waits else inf


def _describe(waits: Sequence[Wait], events: int, minutes: float, *floor: float) -> Iterator[str]:
    """Yield the columns of a feed; what is open waits at least as long as is shown."""
    count_open = sum(not wait.is_told for wait in waits)
    mark = "≥ " * bool(count_open)
    yield f"{len(waits) / minutes / _MINUTE:.2f}"
    yield f"{len(waits):,}"
    yield f"{events:,}"
    yield f"{count_open:,}"
    delays = sorted(wait.delay for wait in waits)
    measured = (fmean(delays), delays[ceil(len(delays) * 0.99) - 1]) if delays else (nan, nan)
    for seconds in measured:
        yield f"{mark}{seconds:.1f}"
    for seconds in floor:
        yield f"{seconds:.1f}"
    yield f"{measured[0] / floor[0]:.2f}"
