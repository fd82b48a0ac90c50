"""What a store is after its process was killed while it wrote."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import sys
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

from dockbell.app import now
from dockbell.stores.sqlite import SqliteStore
from dockbell.stores.sqlite.epoch_file import EpochFile
from tests.stores.pages import FEED, OTHER, commit, told

ROOT = Path(__file__).parents[3]
KILLS = 8
WORK = """
import itertools, pathlib, random, sys
import anyio
from dockbell.app import now
from dockbell.core.comparing.seen_rows import SeenRows
from dockbell.ports import Checkpoint
from dockbell.stores.sqlite import SqliteStore
from tests.stores.pages import (
    DETAILED, FEED, OTHER, a_run, a_statement, delete_records, close_pass, commit, complete, make_composer
)

async def work():
    store = await SqliteStore.open(pathlib.Path(sys.argv[1]), now=now)
    chance, compose = random.Random(int(sys.argv[2])), make_composer(always="true")
    states = [await store.feed(feed).open() for feed in (FEED, OTHER)]
    for version in itertools.count(int(sys.argv[2]) * 1_000_000):
        state = chance.choice(states)
        keys = chance.sample(range(60), 20)
        await commit(store, state, *({"id": f"r{key}", "x": version} for key in keys), compose=compose)
        await commit(store, state, {"id": f"d{version % 3}", "x": version}, detector=DETAILED)
        for awaited in await store.feed(state.feed).load_awaited(1):
            await complete(store, state, awaited.row, {"lines": [version]}, twice="true")
        await store.feed(state.feed).save_checkpoint(Checkpoint(str(version), b"{}", SeenRows(10), SeenRows(10), now()))
        there = (await store.feed(state.feed).find_absent(SeenRows(await store.feed(state.feed).last_row()))).rows
        rows = [row for row, *_ in chance.sample(there, 3)]
        await close_pass(store, state, suspected=rows, statements=[a_statement()])
        await delete_records(store, state, *rows)
        if version == int(sys.argv[2]) * 1_000_000:
            print("works", end="", flush=True)

anyio.run(work)
"""


async def kill(path: Path, chance: random.Random, number: int) -> None:
    """Let a process work on a store, and kill it at any moment."""
    command = [sys.executable, "-c", WORK, str(path), str(number)]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        assert process.stdout is not None
        assert await process.stdout.receive() == b"works"
        await anyio.sleep(chance.uniform(0.01, 0.3))
        process.send_signal(signal.SIGKILL)
        assert await process.wait() == -signal.SIGKILL


def examine(path: Path) -> int:
    """Check that what is stored fits together; return how many events there are."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        feeds = connection.execute("SELECT id, sequence FROM feeds").fetchall()
        events = connection.execute("SELECT feed, sequence, key, change, revision, body FROM events ORDER BY entry")
        numbers: dict[int, list[int]] = defaultdict(list)
        chains: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        for feed, sequence, key, change, revision, body in events:
            numbers[feed].append(sequence)
            data = json.loads(body)["data"]
            if key and "name" not in data:
                assert (data["change"], data["revision"]) == (change, revision)
                chains[feed, key].append(data)
        for feed, last in feeds:
            assert numbers[feed] == list(range(1, last + 1))
        records = connection.execute(
            "SELECT feed, key, revision, gone_at IS NOT NULL, body,"
            " (SELECT body FROM details WHERE details.feed = records.feed AND details.row = records.row)"
            " FROM records LEFT JOIN bodies USING (feed, row)"
        ).fetchall()
        assert {(feed, key) for feed, key, *_ in records} >= chains.keys()
        for feed, key, revision, gone, body, awaited in records:
            examine_record(chains[feed, key], revision, gone=gone, body=body, awaited=awaited)
        return sum(map(len, numbers.values()))


def examine_record(
    chain: list[dict[str, Any]], revision: int, *, gone: int, body: bytes, awaited: bytes | None
) -> None:
    """Check that a record is what its events say."""
    assert [data["revision"] for data in chain] == list(range(1, revision + 1))
    for before, after in pairwise(chain):
        assert after["before"] == before["after"]
    if awaited is None:
        assert chain, "it was stored, and nothing was told of it"
        assert chain[-1]["after"] == (None if gone else json.loads(body))


async def test_a_process_that_is_killed_at_any_moment_leaves_a_whole_store(tmp_path: Path) -> None:
    path, chance, counts = tmp_path / "dockbell.db", random.Random(), [0]
    await (await SqliteStore.open(path, now=now, epoch="epoch")).aclose()
    for number in range(1, KILLS + 1):
        await kill(path, chance, number)
        life = EpochFile(path)
        known = life.read()
        life.close()
        store = await SqliteStore.open(path, now=now)
        states = [await store.feed(feed).open() for feed in (FEED, OTHER)]
        assert [(store.epoch, state.blind) for state in states] == [("epoch", "")] * 2
        assert sum(state.sequence for state in states) == len(await told(store)) + len(await told(store, OTHER))
        await commit(store, states[0], {"id": "after", "x": number})
        await store.aclose()
        counts.append(examine(path))
        assert known is not None
        assert (known.epoch, known.entry < counts[-1]) == ("epoch", True)
    assert counts[-1] > 20 * KILLS
    assert counts == sorted(counts)
