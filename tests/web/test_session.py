from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from dockbell.config import Secret
from dockbell.web.session import Sessions
from dockbell.web.tokens import Tokens
from tests.fakes import Ear
from tests.web.sites import Served, serve

TOKEN = "a-token-of-the-operator"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """Return a site with a token in a file."""
    (tmp_path / "token").write_text(TOKEN)
    async with serve(tmp_path, token={"file": str(tmp_path / "token")}) as site:
        yield site


async def sign_in(site: Served, token: str = TOKEN, **headers: str) -> httpx.Response:
    return await site.client.post("/session", json={"token": token}, headers=headers)


async def read_parts(site: Served, **headers: str) -> dict[str, object]:
    answer = await site.client.get("/session", headers=headers)
    assert answer.status_code == 200
    told: dict[str, object] = answer.json()
    return told


NOBODY = {"signed_in": False, "can_act": False, "csrf": None, "needs_token": True}


async def test_whoever_shows_the_token_once_reads_and_acts_with_a_cookie(guarded: Served) -> None:
    assert await read_parts(guarded) == NOBODY
    answer = await sign_in(guarded)
    csrf = answer.json()["csrf"]
    assert await read_parts(guarded) == {"signed_in": True, "can_act": True, "csrf": csrf, "needs_token": True}
    assert (await guarded.client.get("/feeds")).status_code == 200
    act = await guarded.client.post("/sinks/erp/pause", json={}, headers={"x-dockbell-csrf": csrf})
    assert act.status_code == 200


async def test_the_cookie_is_kept_from_scripts_and_other_sites(guarded: Served) -> None:
    (cookie,) = (await sign_in(guarded)).headers.get_list("set-cookie")
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert attributes == {"httponly", "samesite=strict", "path=/", "max-age=43200"}
    assert TOKEN not in cookie


@pytest.mark.parametrize(
    "headers",
    [{"x-forwarded-proto": "https"}, {"origin": "https://public.example.com"}],
    ids=["forwarded", "origin"],
)
async def test_behind_tls_the_cookie_never_goes_without_it(tmp_path: Path, headers: dict[str, str]) -> None:
    async with serve(
        tmp_path, token={"value": TOKEN}, url="https://public.example.com", trusted_proxies="127.0.0.1"
    ) as site:
        (cookie,) = (await sign_in(site, **headers)).headers.get_list("set-cookie")
    assert "; Secure" in cookie


async def test_tls_is_believed_of_nobody_but_a_trusted_proxy(guarded: Served) -> None:
    (cookie,) = (await sign_in(guarded, **{"x-forwarded-proto": "https"})).headers.get_list("set-cookie")
    assert "; Secure" not in cookie  # a browser would keep it back from the address that it has asked


async def test_a_wrong_token_begins_nothing(guarded: Served) -> None:
    answer = await sign_in(guarded, TOKEN + "x")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert await read_parts(guarded) == NOBODY
    assert await read_parts(guarded, authorization=f"Bearer {TOKEN}x") == NOBODY


async def test_a_token_in_a_header_needs_no_session(guarded: Served) -> None:
    known = await read_parts(guarded, authorization=f"Bearer {TOKEN}")
    assert known == {"signed_in": True, "can_act": True, "csrf": None, "needs_token": True}


async def test_where_there_is_no_token_everybody_reads_and_nobody_acts(shared: Served) -> None:
    assert await read_parts(shared) == {"signed_in": False, "can_act": False, "csrf": None, "needs_token": False}
    for answer in (await sign_in(shared), await shared.client.post("/sinks/erp/pause", json={})):
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:dockbell:problem:token")
        assert 'set token = { env = "DOCKBELL_WEB_TOKEN" } in [web]' in answer.json()["detail"]


async def test_another_token_ends_all_sessions(guarded: Served, tmp_path: Path) -> None:
    await sign_in(guarded)
    (tmp_path / "token").write_text("another")
    assert await read_parts(guarded) == NOBODY
    assert (await guarded.client.get("/feeds")).status_code == 401


async def test_a_session_can_be_ended(guarded: Served) -> None:
    await sign_in(guarded)
    assert (await guarded.client.delete("/session")).status_code == 204
    assert not guarded.client.cookies
    assert await read_parts(guarded) == NOBODY
    assert (await guarded.client.delete("/session")).status_code == 401


async def test_a_cookie_that_was_tampered_with_is_none(guarded: Served) -> None:
    await sign_in(guarded)
    ((name, cookie),) = guarded.client.cookies.items()
    guarded.client.cookies.clear()
    assert (await read_parts(guarded, cookie=f"other=1; {name}={cookie}"))["signed_in"]
    for tampered in (
        "",
        cookie[:-1],
        "9" + cookie,
        cookie + ".x",
        cookie.replace(".", "..", 1),
        "..",
        f"{int(time.time()) + 10**6}.{cookie.split('.', 1)[1]}",
    ):
        assert await read_parts(guarded, cookie=f"{name}={tampered}") == NOBODY


async def test_a_session_ends_after_half_a_day_and_has_a_word_of_its_own() -> None:
    sessions = Sessions(Tokens(Secret(value=TOKEN), Ear().telemetry), "salt")
    cookie, word = await sessions.begin(TOKEN, 1000)
    assert await sessions.find(cookie, 1000 + 12 * 3600 - 1) == word
    assert await sessions.find(cookie, 1000 + 12 * 3600) is None
    assert (await sessions.begin(TOKEN, 1000))[1] != word


async def test_another_dockbell_with_the_same_token_has_other_sessions() -> None:
    tokens = Tokens(Secret(value=TOKEN), Ear().telemetry)
    cookie, _ = await Sessions(tokens, "salt").begin(TOKEN, 1000)
    assert await Sessions(tokens, "another").find(cookie, 1000) is None


async def test_two_dockbells_of_one_host_keep_a_session_each(guarded: Served, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with serve(tmp_path / "other", token={"value": TOKEN}) as other:
        other.client.cookies.jar = guarded.client.cookies.jar  # a browser keeps them by host, whatever the port
        for site in (guarded, other):
            await sign_in(site)
        assert len(guarded.client.cookies) == 2
        names = set()
        for site in (guarded, other):
            assert (await read_parts(site))["signed_in"]
            told = (await site.client.get("/openapi.json")).json()
            names.add(told["components"]["securitySchemes"]["session"]["name"])
        assert names == set(guarded.client.cookies)
        assert (await other.client.delete("/session")).status_code == 204
        assert (await read_parts(guarded))["signed_in"]
