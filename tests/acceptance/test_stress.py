"""Numbered lives, and a daemon that is killed every few seconds: every life must be told as it was.

``pytest tests/acceptance/test_stress.py --stress-seconds=7200`` goes on for two hours.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

import anyio
import pytest

from dockbell.stores.postgres.holder import TTL_SECONDS
from tests.lives import Life, Lives
from tests.oracle import Account, Place, Story
from tests.receivers import Receiver
from tests.services import Daemon
from tests.serving import listening
from tests.stores.places import url_of

pytestmark = pytest.mark.acceptance

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

CONFIG = """
name = "acme"

[store]
url = "{store}"

[sources.main]
base_url = "{api}"
api_key = "lives"
requests_per_minute = 30000

[resources]
shipments = {{ every = "1s", reconcile = "6s", confirm_after = "1s", stale_window = "0s", first_pass = "emit" }}
packages = {{ every = "1s", reconcile = "6s", confirm_after = "1s", stale_window = "0s", first_pass = "emit" }}
stock = {{ every = "2s", confirm_after = "1s", stale_window = "0s", first_pass = "emit" }}

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = "{secret}"
lanes = 8
"""


def tell(lives: Lives) -> Story:
    """Return what every record went through, as the oracle wants it."""
    story = Story({}, [])
    for resource, records in lives.lives.items():
        for key, life in records.items():
            story.versions[place_of(resource, key)] = [record_of(resource, key, step) for step in life.steps]
    return story


def place_of(resource: str, key: str) -> Place:
    return resource, f"{key},w%2F1" if resource == "stock" else key


def record_of(resource: str, key: str, number: int | None) -> dict[str, object] | None:
    if number is None:
        return None
    if resource == "stock":
        return {"sku": key, "warehouse_id": "w/1", "available": number}
    return {"id": key, "number": number}


async def test_every_life_is_told_as_it_was_whenever_the_daemon_is_killed(
    tmp_path: Path, place: Path | str, request: pytest.FixtureRequest
) -> None:
    lives, account, dice = Lives(7, keys=40), Account(), random.Random(7)
    receiver = Receiver(SECRET, account)
    left_by_the_last = 0 if isinstance(place, Path) else TTL_SECONDS  # so long a store waits for the process before
    config = CONFIG.format(store=url_of(place), api=lives.url, receiver=receiver.url, secret=SECRET)
    (tmp_path / "dockbell.toml").write_text(config)
    async with listening(lives.app, lives.port), receiver.listening():
        with Daemon(tmp_path) as daemon:
            daemon.start()
            async with anyio.create_task_group() as group:
                group.start_soon(lives.live, 20)
                with anyio.move_on_after(request.config.getoption("--stress-seconds")):
                    while True:
                        await anyio.sleep(left_by_the_last + dice.uniform(0.5, 6))
                        daemon.end(signal.SIGKILL)
                        daemon.start()
                group.cancel_scope.cancel()
            lives.faults = 0
            story = tell(lives)
            with anyio.move_on_after(60):
                while account.state() != story.final():  # noqa: ASYNC110  # another process fills the account
                    await anyio.sleep(0.5)
            assert daemon.end(signal.SIGTERM) == 0
    assert account.judge(story) == []
    steps = sum(len(life.steps) for records in lives.lives.values() for life in records.values())
    told = sum(len(events) for events in account.events.values())
    deleted = sum(life.steps.count(None) for records in lives.lives.values() for life in records.values())
    print(f"{steps} steps, {deleted} of them deletions; {told} events, {account.deliveries} deliveries")


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ([1, 3, None, 5], ""),
        ([3, 5], ""),
        ([1, 2, 3, 5], ""),
        ([1, 3, 2, 5], "was before"),
        ([1, 4, 5], "never was"),
        ([1, None, 3, 5], "never was"),
        ([1, 3], "is not as it was told"),
        ([3, None], "was never told"),
    ],
)
def test_the_oracle_takes_the_legal_coalescings_and_nothing_else(told: list[int | None], fault: str) -> None:
    lives, account = Lives(1, keys=1), Account()
    lives.lives = {"packages": {"p0": Life([1, 2, 3, None, 5])}}
    before = None
    for revision, number in enumerate(told):
        after = record_of("packages", "p0", number)
        data = {"resource": "packages", "key": "p0", "revision": revision, "before": before, "after": after}
        account.hear({"id": f"evt_{revision}", "data": data})
        before = after
    problems = account.judge(tell(lives))
    assert any(fault in problem for problem in problems) if fault else problems == []
