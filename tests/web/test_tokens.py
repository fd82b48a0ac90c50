from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from dockbell.web.tokens import TokensGuessed
from tests.fakes import Ear
from tests.web.sites import Served, serve

TOKEN = "a-token-of-the-operator"


async def ask(site: Served, token: str) -> httpx.Response:
    return await site.client.get("/feeds", headers={"authorization": f"Bearer {token}"})


async def test_guesses_are_slowed_down_and_told_once(tmp_path: Path) -> None:
    ear = Ear()
    async with serve(tmp_path, telemetry=ear.telemetry, token={"value": TOKEN}) as site:
        answers = [await ask(site, f"guess-{number}") for number in range(13)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 3
        assert answers[-1].json()["type"] == "urn:dockbell:problem:too-many-tokens"
        assert 0 < int(answers[-1].headers["retry-after"]) <= 6
        late = await ask(site, TOKEN)
        assert late.status_code == 429  # else they could go on to guess
    assert [str(fact) for fact in ear.facts if isinstance(fact, TokensGuessed)] == [
        "web: too many wrong tokens, the last from 127.0.0.1; for a while none is looked at"
    ]


async def test_a_program_that_goes_on_with_an_old_token_keeps_nobody_out(tmp_path: Path) -> None:
    async with serve(tmp_path, token={"value": TOKEN}) as site:
        assert {(await ask(site, "old")).status_code for _ in range(50)} == {401}
        assert (await ask(site, TOKEN)).status_code == 200


async def test_an_old_token_that_is_right_again_is_right(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("new")
    async with serve(tmp_path, token={"file": str(tmp_path / "token")}) as site:
        assert (await ask(site, "old")).status_code == 401
        (tmp_path / "token").write_text("old")
        assert (await ask(site, "old")).status_code == 200


async def test_guesses_keep_no_session_out_and_no_other_address(tmp_path: Path) -> None:
    async with serve(tmp_path, token={"value": TOKEN}, trusted_proxies=["127.0.0.1"]) as site:
        assert (await site.client.post("/session", json={"token": TOKEN})).status_code == 200
        for number in range(20):
            await site.client.post("/session", json={"token": f"guess-{number}"})
        assert (await site.client.post("/session", json={"token": TOKEN})).status_code == 429
        assert (await site.client.get("/feeds")).status_code == 200
        site.client.headers["x-forwarded-for"] = "192.0.2.7"  # as a proxy on this machine says
        assert (await ask(site, TOKEN)).status_code == 200


async def test_nobody_guesses_under_other_addresses_by_a_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    ear = Ear()
    async with serve(tmp_path, telemetry=ear.telemetry, token={"value": TOKEN}) as site:
        statuses = []
        for number in range(13):
            site.client.headers["x-forwarded-for"] = f"192.0.2.{number}"
            statuses.append((await ask(site, f"guess-{number}")).status_code)
    assert statuses == [401] * 10 + [429] * 3
    assert [fact for fact in ear.facts if isinstance(fact, TokensGuessed)] == [TokensGuessed("127.0.0.1")]


async def test_guesses_through_a_trusted_proxy_are_told_with_both_addresses(tmp_path: Path) -> None:
    ear = Ear()
    proxies = ["127.0.0.0/8"]
    async with serve(tmp_path, telemetry=ear.telemetry, token={"value": TOKEN}, trusted_proxies=proxies) as site:
        for number in range(11):
            site.client.headers["x-forwarded-for"] = f"192.0.2.{number}, 203.0.113.9"
            await ask(site, f"guess-{number}")
    assert [str(fact) for fact in ear.facts if isinstance(fact, TokensGuessed)] == [
        "web: too many wrong tokens, the last from 203.0.113.9 through 127.0.0.1; for a while none is looked at"
    ]


async def test_whoever_shows_no_token_guesses_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, token={"value": TOKEN}) as site:
        assert {(await site.client.get("/feeds")).status_code for _ in range(20)} == {401}
        assert (await ask(site, TOKEN)).status_code == 200
