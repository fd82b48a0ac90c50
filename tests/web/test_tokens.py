from __future__ import annotations

from itertools import count
from pathlib import Path

import httpx
import pytest

from dockbell.web.tokens import REMEMBERED_MOST, BruteForceLimiter, TokensGuessed
from tests.fakes import Ear
from tests.web.sites import Served, serve

marks = map(str, count())


def guess(limiter: BruteForceLimiter, peer: str, now: float, times: int) -> None:
    """Send so many wrong tokens, each another, as far as they are looked at."""
    for _ in range(times):
        if not limiter.delay(peer, now):
            limiter.note_wrong(peer, next(marks), now)


def test_whoever_guesses_has_to_wait_and_nobody_else() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "192.0.2.1", 0, 9)
    assert limiter.delay("192.0.2.1", 0) == 0
    guess(limiter, "192.0.2.1", 0, 1)
    assert limiter.delay("192.0.2.1", 0) == 6
    assert limiter.delay("192.0.2.1", 5) == pytest.approx(1)
    assert limiter.delay("192.0.2.2", 0) == 0


def test_after_a_minute_all_is_forgiven() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "192.0.2.1", 0, 10)
    guess(limiter, "192.0.2.1", 60, 9)
    assert limiter.delay("192.0.2.1", 60) == 0


def test_many_who_guess_together_have_to_wait_but_not_who_was_right() -> None:
    limiter = BruteForceLimiter()
    limiter.note_right("192.0.2.255")
    for number in range(200):
        guess(limiter, f"198.51.100.{number}", 0, 1)
    assert limiter.delay("203.0.113.1", 0) == pytest.approx(0.6)
    assert limiter.delay("192.0.2.255", 0) == 0


def test_a_whole_network_of_ipv6_is_one_address() -> None:
    limiter = BruteForceLimiter()
    for number in range(10):
        guess(limiter, f"2001:db8::{number}", 0, 1)
    assert limiter.delay("2001:db8::ffff", 0) > 0
    assert limiter.delay("2001:db8:0:1::", 0) == 0


def test_an_ipv4_address_in_ipv6_clothes_is_itself() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "::ffff:192.0.2.1", 0, 10)
    assert limiter.delay("192.0.2.1", 0) > 0
    assert limiter.delay("::ffff:192.0.2.2", 0) == 0


def test_a_peer_without_an_address_is_one_too() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "", 0, 10)
    assert limiter.delay("", 0) > 0


def test_a_clock_that_goes_backwards_harms_nobody() -> None:
    limiter = BruteForceLimiter()
    guess(limiter, "192.0.2.1", 100, 10)
    assert limiter.delay("192.0.2.1", 50) == 6


def test_what_was_wrong_is_known() -> None:
    limiter = BruteForceLimiter()
    limiter.note_wrong("192.0.2.1", "mark", 0)
    assert limiter.was_wrong("mark")
    assert not limiter.was_wrong("another")


def test_only_so_much_is_remembered() -> None:
    limiter = BruteForceLimiter()
    for number in range(REMEMBERED_MOST + 5):
        limiter.note_wrong(f"10.0.{number // 256}.{number % 256}", str(number), 0)
        limiter.note_right(f"10.1.{number // 256}.{number % 256}")
    assert not limiter.was_wrong("4")
    assert limiter.was_wrong("5")
    assert all(len(memory) == REMEMBERED_MOST for memory in (limiter._buckets, limiter._wrong, limiter._right))


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
        "web: too many wrong tokens, the last from 127.0.0.1; dockbell checks none for a while"
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
        "web: too many wrong tokens, the last from 203.0.113.9 through 127.0.0.1; dockbell checks none for a while"
    ]


async def test_whoever_shows_no_token_guesses_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path, token={"value": TOKEN}) as site:
        assert {(await site.client.get("/feeds")).status_code for _ in range(20)} == {401}
        assert (await ask(site, TOKEN)).status_code == 200
