"""One odd value, one odd answer: neither may cost more than itself."""

from __future__ import annotations

import random
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from dockbell.telemetry import ListingChanged
from tests.acceptance.altering import Answer, alter
from tests.acceptance.deployment import deploy
from tests.virtual_time import SkippingLoop


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SkippingLoop}


@pytest.mark.parametrize("value", [rb'"cut \ud83d"', b"NaN", b'"\xff\xfe"', b'"\x01"', b"[" * 2000 + b"]" * 2000])
async def test_a_record_with_an_unsound_value_is_in_quarantine_and_all_others_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    def spoil(answer: Answer) -> None:
        answer.body = re.sub(rb'"id": ?"pkg_3"', lambda found: found[0] + b',"note":' + value, answer.body)

    async with deploy(tmp_path, monkeypatch, resources=["packages"]) as dockbell:
        await dockbell.run(300)
        alter(dockbell, spoil)
        for identity in ("pkg_1", "pkg_3", "pkg_5", "pkg_9"):
            dockbell.sandbox.edit("packages", identity=identity)
        await dockbell.run(300)
        state = await dockbell.state("packages")
        assert (state.problem, state.quarantined) == ("", 1)
        assert [key for _, key in await dockbell.told("updated")] == ["pkg_1", "pkg_5", "pkg_9"]
    ((key, problem),) = sqlite3.connect(tmp_path / "dockbell.db").execute("SELECT key, problem FROM quarantine")
    assert key == "pkg_3"
    assert problem.startswith("key pkg_3: not ")


async def test_two_answers_of_five_that_are_no_page_blind_no_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(7)

    def break_some(answer: Answer) -> None:
        if 100 <= answer.at < 160 and dice.random() < 0.4:
            answer.body = b'{"data": null}'

    async with deploy(tmp_path, monkeypatch, resources=["packages"]) as dockbell:
        await dockbell.run(95)
        alter(dockbell, break_some)
        dockbell.sandbox.edit("packages", 2)
        await dockbell.run(60)
        assert (await dockbell.state("packages")).problem == ""
        assert await dockbell.judge() == []
        assert len(await dockbell.told("updated")) == 2


async def test_an_array_of_records_that_a_deploy_renames_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deploy(tmp_path, monkeypatch, resources=["packages"]) as dockbell:
        await dockbell.run(300)
        dockbell.sandbox.set(envelope="data")
        await dockbell.run(60)
        dockbell.sandbox.edit("packages", 2)
        await dockbell.run(60)
        assert (await dockbell.state("packages")).problem == ""
        assert len(await dockbell.told("updated")) == 2
        told = [str(fact) for fact in dockbell.facts if isinstance(fact, ListingChanged)]
        name = 'the API behaves differently: the records\' array was "packages" and is now "data"'
        assert told == [f"main/packages: {name}"]
