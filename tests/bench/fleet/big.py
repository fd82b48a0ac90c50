"""What small feeds lose when one with very many records is read beside them, by the same processes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from tests.bench.fleet.api import Options, Testimony, serve_api
from tests.bench.fleet.daemons import Fleet, Layout, wait_until
from tests.bench.fleet.http import ask, tell
from tests.bench.fleet.receiver import Account, serve_receiver
from tests.bench.processes import serving as serving_by
from tests.bench.table import print_table
from tests.postgres import serving

_BIG: Final = "big"
_LINES: Final = """
requests_per_minute = 6000
share = 1.0
resources = { shipments = { every = "5s", reconcile = "1m" } }
"""
_PROCESSES: Final = 2
_CHANGES: Final = 10.0


def measure_big(sources: int, records: int, every: float, seconds: float) -> None:
    """Print the delays of the small ones alone, beside the first reading of the large one, and beside later ones."""
    names = [f"s{number:05}" for number in range(sources)]
    rows: list[tuple[str, ...]] = []
    for count in (0, records):
        layout = Layout([*names, *([_BIG] if count else [])], every, special={_BIG: _LINES})
        rows += _measure(layout, count, seconds)
    print_table(
        (f"{sources:,} small feeds, read every {every:g} s", "changes", "mean, s", "p50, s", "p99, s", "rest"), *rows
    )


def _measure(layout: Layout, records: int, seconds: float) -> list[tuple[str, ...]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(serving(shared_buffers="512MB", max_wal_size="4GB", autovacuum="on"))
        database = urlsplit(server.make_database()).path.strip("/")
        api = stack.enter_context(serving_by(serve_api, Options(large={_BIG: records}, changes=_CHANGES)))
        receiver = stack.enter_context(serving_by(serve_receiver, 0.0))
        config = layout.write(folder / "dockbell.toml", store=server.url(database), api=api, receiver=receiver)
        fleet = Fleet(folder, server, database, [config] * _PROCESSES)
        stack.callback(fleet.close)
        for daemon in fleet.daemons.values():
            daemon.start()
        fleet.settle(len(layout.sources), _PROCESSES, 1200)
        small = len([each for each in layout.sources if each != _BIG])
        assert wait_until(lambda: fleet.count_read() >= small, 1800, every=2) is not None
        tell(f"{api}/start")

        def count_stored() -> int:
            query = "SELECT count(*) FROM records JOIN feeds ON feeds.id = records.feed WHERE source = 'big'"
            ((count,),) = fleet.query(query)
            return int(count)

        def time_changes(what: str, most: float) -> tuple[str, ...]:
            began, before = time.monotonic(), count_stored()
            time.sleep(most)
            ended, after = time.monotonic(), count_stored()
            time.sleep(2 * layout.every)  # what was changed last has arrived by then
            delays = _find_delays(api, receiver, began, ended)
            return (
                what,
                f"{len(delays):,}",
                f"{mean(delays):.1f}",
                f"{_at(delays, 0.5):.1f}",
                f"{_at(delays, 0.99):.1f}",
                f"{before:,} to {after:,} rows in the large one" if records else "",
            )

        if not records:
            return [time_changes("alone", seconds)]
        first = time_changes("while the large one is read for the first time", seconds)
        assert wait_until(lambda: count_stored() >= records, 3600, every=5) is not None
        return [first, time_changes("while it is read again, all the time", seconds)]


def _find_delays(api: str, receiver: str, began: float, ended: float) -> list[float]:
    """Return how long the changes of a time took from the API to the receiver, the last ones of their records."""
    seen, heard = ask(f"{api}/testimony", Testimony), ask(f"{receiver}/testimony", Account)
    return sorted(
        heard.heard_at[source][key] - at
        for source, times in seen.changed_at.items()
        for key, at in times.items()
        if source != _BIG
        and began <= at < ended
        and heard.versions.get(source, {}).get(key) == seen.versions[source][key]
    )


def _at(values: Sequence[float], part: float) -> float:
    return values[min(len(values) - 1, int(part * len(values)))]
