"""Processes that share thousands of sources are killed and stopped, and their database too: who takes over, and when.

A *death* is a ``kill -9`` or a SIGSTOP. For each source of the dead process, the first request after it is another's.
"""

from __future__ import annotations

import random
import signal
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from tests.bench.fleet.api import Options, Testimony, serve_api
from tests.bench.fleet.daemons import Fleet, Layout, wait_until
from tests.bench.fleet.http import ask, tell
from tests.bench.fleet.receiver import Account, serve_receiver
from tests.bench.processes import serving as serving_by
from tests.bench.table import print_table
from tests.pooler import pooling
from tests.postgres import serving

LATE: Final = 0.05
"""So long the API and the receiver take for each answer, so that many a death finds requests under way."""
UNDER_WAY: Final = 0.1 + LATE
"""So long after a death its last requests may arrive."""
GOAL: Final = 10.0
BURIED: Final = 6.0
"""So long after a death others may find out: nobody asks for what is due meanwhile."""
LIMIT: Final = 30
_BUSY_EACH: Final = 200
_LATE_MOST: Final = 5.0
_STOPPED: Final = (7.0, 12.0)
_IN_TIME_SECONDS: Final = 600
"""So long after a death polls may be late before the next one comes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How large it is, and what is done.

    Attributes:
        deaths: Of processes, half of them by ``kill -9``.
        rest: Seconds between the end of one death and the next.
        outages: Whether the database is killed, is away for a minute, and is taken over from by a standby.
        pooler: Whether pgbouncer stands between the database and every other process.
    """

    processes: int = 6
    sources: int = 10_000
    every: float = 180
    changes: float = 10
    deaths: int = 12
    rest: float = 5
    outages: bool = True
    pooler: bool = False


@dataclass(slots=True)
class Death:
    how: str
    at: float
    sources: set[str]
    was_writing: bool


def measure_takeover(trial: Trial) -> bool:
    """Print what came of it; return whether nothing was lost, used twice or over a limit."""
    names = [f"s{number:05}" for number in range(trial.sources)]
    layout = Layout(names, trial.every, dict.fromkeys(names[::_BUSY_EACH], LIMIT))
    options = Options(limits=layout.busy, changes=trial.changes, late=LATE)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o755)  # the pooler follows the link in it
        server = stack.enter_context(serving(shared_buffers="256MB", max_connections="200", autovacuum="on"))
        database = urlsplit(server.make_database()).path.strip("/")
        link = folder / "server"
        link.symlink_to(server.folder)
        urls = [server.url(database).replace(str(server.folder), str(link))]
        if trial.pooler:
            urls.append(stack.enter_context(pooling(server, 12, by_way_of=link)).lead_to(server.url(database)))
        api = stack.enter_context(serving_by(serve_api, options))
        receiver = stack.enter_context(serving_by(serve_receiver, LATE))
        configs = [
            layout.write(folder / f"{number}.toml", store=url, api=api, receiver=receiver)
            for number, url in enumerate(urls)
        ]
        fleet = Fleet(folder, server, database, [configs[each % len(urls)] for each in range(trial.processes)])
        stack.callback(fleet.close)
        run = _Run(trial, layout, fleet, (api, receiver))
        run.start()
        run.disturb()
        if trial.outages:
            run.interrupt("database killed, seconds", 1)
            run.interrupt("database away, seconds", 60)
            stack.enter_context(run.failing_over(link))
        return run.finish()


class _Run:
    def __init__(self, trial: Trial, layout: Layout, fleet: Fleet, urls: tuple[str, str]) -> None:
        self._trial = trial
        self._layout = layout
        self._fleet = fleet
        self._api, self._receiver = urls
        self._deaths: list[Death] = []
        self._dice = random.Random(16)

    def start(self) -> None:
        """Start the processes, and let the API change things once all sources have been read."""
        fleet, count = self._fleet, len(self._layout.sources)
        began = time.monotonic()
        for daemon in fleet.daemons.values():
            daemon.start()
        self._settle(1200)
        say(f"all {count:,} sources shared after {time.monotonic() - began:.0f} s")
        if wait_until(lambda: fleet.count_read() == count, 1800, every=2) is None:
            raise TimeoutError("not all sources were read")
        shown = ", ".join(f"{mb:.0f}" for mb in fleet.measure_memory())
        say(f"all read whole after {time.monotonic() - began:.0f} s; MB of each process: {shown}")
        tell(f"{self._api}/start")
        if wait_until(self._is_in_time, 1800, every=5) is None:
            raise TimeoutError("the processes do not poll as often as they are to")
        say(f"all polled in time after {time.monotonic() - began:.0f} s")
        time.sleep(self._trial.rest)

    def _is_in_time(self) -> bool:
        """Return whether no source waits for its next poll much longer than it is to: else more than a death shows."""
        latest = time.monotonic() - self._layout.every - _LATE_MOST
        requests = ask(f"{self._api}/testimony", Testimony).requests
        return all(requests.get(source, [0.0])[-1] >= latest for source in self._layout.sources)

    def disturb(self) -> None:
        for number in range(self._trial.deaths):
            self._let_die("kill -9" if number % 2 else "SIGSTOP", while_writing=number % 4 >= 2)

    def _let_die(self, how: str, *, while_writing: bool) -> None:
        fleet, dice = self._fleet, self._dice
        victim = dice.choice([*fleet.daemons])
        time.sleep(dice.uniform(0, 2))
        if while_writing:
            wait_until(lambda: fleet.is_writing(victim), 10, every=0)
        at = time.monotonic()
        if how == "kill -9":
            fleet.daemons[victim].end(signal.SIGKILL)
        else:
            fleet.stop(victim)
        time.sleep(0.2)  # what was under way when it was stopped has ended, unless it waits for this process
        death = Death(how, at, fleet.find_held(victim), how == "SIGSTOP" and fleet.is_writing(victim))
        say(f"{how} of a process with {len(death.sources):,} sources{', inside a transaction' * death.was_writing}")
        if how == "SIGSTOP":
            time.sleep(max(0.0, at + dice.uniform(*_STOPPED) - time.monotonic()))
            fleet.resume(victim)
        else:
            time.sleep(max(0.0, at + GOAL + 2 - time.monotonic()))
            fleet.daemons[victim].start()
        self._settle()
        say(f"all shared {time.monotonic() - at:.0f} s after it")
        wait_until(self._is_in_time, _IN_TIME_SECONDS, every=2)  # else the next one shows what this one has left late
        say(f"all polled in time {time.monotonic() - at:.0f} s after it")
        time.sleep(self._trial.rest)
        self._deaths.append(death)

    def interrupt(self, what: str, seconds: float) -> None:
        """Kill the database, and start it again some time later."""
        at = time.monotonic()
        self._fleet.server.stop()
        time.sleep(seconds)
        self._fleet.server.start()
        say(f"{what}: {time.monotonic() - at:.0f}")
        self._go_on()

    @contextmanager
    def failing_over(self, link: Path) -> Iterator[None]:
        """Kill the database, and let a standby take over that has all that was committed."""
        with self._fleet.server.followed() as standby:
            time.sleep(self._trial.rest)
            at = time.monotonic()
            self._fleet.server.stop()
            standby.promote()
            link.unlink()
            link.symlink_to(standby.folder)
            self._fleet.server = standby
            say(f"a standby has taken over from the database after {time.monotonic() - at:.1f} s")
            self._go_on()
            yield

    def _go_on(self) -> None:
        at = time.monotonic()
        self._settle()
        say(f"all sources shared {time.monotonic() - at:.0f} s later")
        time.sleep(self._trial.rest + 15)

    def _settle(self, most: float = 300) -> None:
        self._fleet.settle(len(self._layout.sources), self._trial.processes, most)

    def finish(self) -> bool:
        tell(f"{self._api}/stop")
        is_told = wait_until(self._is_told, 2 * self._trial.every + 60, every=5) is not None
        seen, heard = ask(f"{self._api}/testimony", Testimony), ask(f"{self._receiver}/testimony", Account)
        judge = Judge(self._layout, self._deaths, seen, heard)
        judge.print(self._fleet.count_logged("nothing was stored"))
        return judge.is_clean and is_told

    def _is_told(self) -> bool:
        seen, heard = ask(f"{self._api}/testimony", Testimony), ask(f"{self._receiver}/testimony", Account)
        return not find_untold(seen, heard)


def find_untold(seen: Testimony, heard: Account) -> list[str]:
    """Return the records whose last version did not arrive."""
    return [
        f"{source}/{key}"
        for source, versions in seen.versions.items()
        for key, version in versions.items()
        if heard.versions.get(source, {}).get(key) != version
    ]


class Judge:
    """Holds what the API saw and the receiver heard against what may be."""

    def __init__(self, layout: Layout, deaths: Sequence[Death], seen: Testimony, heard: Account) -> None:
        self._layout = layout
        self._deaths = deaths
        self._seen = seen
        self._heard = heard

    @property
    def over(self) -> Mapping[str, int]:
        """The fullest window of the keys that were over their limit, and those that were refused."""
        return {
            key: self._seen.fullest[key] + self._seen.refused.get(key, 0)
            for key, limit in self._layout.busy.items()
            if self._seen.fullest.get(key, 0) > limit or self._seen.refused.get(key)
        }

    @property
    def is_clean(self) -> bool:
        heard = self._heard
        return not (heard.gaps or heard.doubles or heard.disorder or self.over)

    def find_takeovers(self, death: Death) -> tuple[list[float], list[float], int]:
        """Return how long sources waited after a death, how late those were that were due later, and how many are lost.

        A source is due an interval after its last request; those that were due while nobody could ask wait since the
        death, others of the next ten seconds since they were due. The busy ones are left out: a successor may have to
        wait until the budget of their keys allows a request.
        """
        waited, late, lost = [], [], 0
        for source in death.sources - self._layout.busy.keys():
            times = self._seen.requests[source]
            place = bisect_right(times, death.at + UNDER_WAY)
            due = (times[place - 1] if place else death.at) + self._layout.every
            if due > death.at + GOAL:
                continue
            if place == len(times):
                lost += 1
            elif due <= death.at + BURIED:
                waited.append(times[place] - death.at)
            else:
                late.append(max(0.0, times[place] - due))
        return waited, late, lost

    def print(self, refused: int) -> None:
        rows = [
            ("death", "sources", "due by then", "within 10 s", "p50, s", "p99, s", "due later", "late, p99, s", "never")
        ]
        for how in ("kill -9", "SIGSTOP"):
            deaths = [each for each in self._deaths if each.how == how]
            found = [self.find_takeovers(death) for death in deaths]
            waited = [seconds for some, _, _ in found for seconds in some]
            late = [seconds for _, some, _ in found for seconds in some]
            never = sum(lost for _, _, lost in found)
            rows.append(
                (
                    f"{how}, {len(deaths)} times",
                    f"{sum(len(each.sources) for each in deaths):,}",
                    f"{len(waited):,}",
                    f"{sum(each <= GOAL for each in waited) / max(1, len(waited) + never):.1%}",
                    f"{_at(waited, 0.5):.1f}",
                    f"{_at(waited, 0.99):.1f}",
                    f"{len(late):,}",
                    f"{_at(late, 0.99):.1f}",
                    f"{never}",
                )
            )
        print_table(*rows)
        heard, busy = self._heard, self._layout.busy
        fullest = max((self._seen.fullest.get(each, 0) for each in busy), default=0)
        print_table(
            ("", ""),
            ("processes stopped inside a transaction", f"{sum(each.was_writing for each in self._deaths)}"),
            ("commits refused", f"{refused}"),
            ("requests", f"{sum(map(len, self._seen.requests.values())):,}"),
            (
                f"keys over their limit, of {len(busy)} that are always at it",
                f"{len(self.over)} {dict(self.over) or ''}",
            ),
            (f"most requests of one of them in a minute, of {LIMIT}", f"{fullest}"),
            ("events", f"{heard.events:,}"),
            ("numbers missing", f"{heard.gaps}"),
            ("numbers or ids used twice", f"{heard.doubles}"),
            ("events that came after a younger one of their record", f"{heard.disorder}"),
            ("deliveries repeated", f"{heard.repeats}"),
            ("of these after a younger event of their record", f"{heard.late}"),
            ("deliveries whose sender was gone before the answer", f"{heard.cut}"),
            ("records whose last version never arrived", f"{len(find_untold(self._seen, heard))}"),
            ("statements", ", ".join(f"{what}: {count}" for what, count in sorted(heard.statements.items()))),
        )


def _at(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
