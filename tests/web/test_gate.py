from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread

from dockbell.web.tokens import TokenUnreadable
from tests.fakes import Ear
from tests.web.sites import Served, serve

TOKEN = "a-token-of-the-operator"


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Return a site with a token in a file and names of its own."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(TOKEN + "\n")
    settings: dict[str, Any] = {
        "listen": "0.0.0.0:0",
        "token": {"file": str(folder / "token")},
        "hosts": ["Bell.example.com", "[2001:DB8::0:7]"],
        "url": "https://public.example.com/bell",
    }
    async with serve(folder, **settings) as site:
        site.client.headers["authorization"] = f"Bearer {TOKEN}"
        yield site


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8470",
        "localhost.",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.8.9.10",
        "[::1]:8470",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
    ],
)
async def test_a_name_of_this_machine_is_answered(shared: Served, host: str) -> None:
    assert (await shared.client.get("/", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "bell.example.com",
        "localhost.evil.example.com",
        "evil.example.com:8470",
        "127.0.0.1.evil.example.com",
        "127.0.0.1:8470@evil.example.com",
        "127.0.0.1:http",
        "192.168.0.7",
        "[2001:db8::7]",
        "2001:db8::7",
        "localhost,evil.example.com",
        "",
        ":8470",
        "[",
        "[]",
    ],
)
async def test_another_name_is_refused_before_all_else(shared: Served, host: str) -> None:
    answer = await shared.client.post("/nowhere", headers={"host": host})
    assert answer.status_code == 421
    assert answer.json()["type"] == "urn:dockbell:problem:unknown-host"
    assert "add it to [web] hosts" in answer.json()["detail"]


@pytest.mark.parametrize(
    "host", ["bell.example.com", "BELL.EXAMPLE.COM.:443", "[2001:db8::7]:80", "public.example.com", "localhost"]
)
async def test_a_configured_name_is_answered(guarded: Served, host: str) -> None:
    assert (await guarded.client.get("/", headers={"host": host})).status_code == 200


async def test_the_address_that_was_connected_to_is_no_made_up_name(guarded: Served) -> None:
    url = f"http://127.0.0.2:{guarded.site.port}/"
    assert (await guarded.client.get(url)).status_code == 200
    assert (await guarded.client.get(url, headers={"host": "192.0.2.1"})).status_code == 421


PLACES = ["/", "/feeds", "/feeds/a/b", "/state/a/b", "/state/a/b/c", "/live", "/status", "/openapi.json", "/nowhere"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("authorization", ["", "Bearer", f"Basic {TOKEN}", TOKEN])
async def test_without_the_token_there_is_nothing(guarded: Served, place: str, authorization: str) -> None:
    answer = await guarded.client.get(place, headers={b"authorization": authorization.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["type"] == "urn:dockbell:problem:token"


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xe9"])
async def test_a_wrong_token_is_none(guarded: Served, authorization: str) -> None:
    answer = await guarded.client.get("/feeds", headers={b"authorization": authorization.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["type"] == "urn:dockbell:problem:token"
    assert TOKEN[:-1] not in answer.text


async def test_the_first_of_two_tokens_counts(guarded: Served) -> None:
    url = str(guarded.client.base_url)
    async with httpx.AsyncClient() as client:
        for first, second, status in (("x", TOKEN, 401), (TOKEN, "x", 200)):
            headers = [("authorization", f"bearer {first}"), ("authorization", f"bearer {second}")]
            assert (await client.get(url, headers=headers)).status_code == status


async def test_a_token_that_is_changed_counts_at_once(tmp_path: Path) -> None:
    place = tmp_path / "token"
    place.write_text("old")
    async with serve(tmp_path, token={"file": str(place)}) as site:

        async def ask(token: str) -> int:
            return (await site.client.get("/", headers={"authorization": f"Bearer {token}"})).status_code

        assert (await ask("old"), await ask("new")) == (200, 401)
        place.write_text("new")
        assert (await ask("old"), await ask("new")) == (401, 200)


async def test_a_token_that_cannot_be_read_is_told_to_the_operator_once_and_to_nobody_else(tmp_path: Path) -> None:
    ear, place = Ear(), tmp_path / "token"
    async with serve(tmp_path, telemetry=ear.telemetry, token={"file": str(place)}) as site:
        for expected in (1, 2):
            for _ in range(3):
                answer = await site.client.get("/", headers={"authorization": "Bearer t"})
                assert (answer.status_code, str(tmp_path) in answer.text) == (503, False)
            told = [str(fact) for fact in ear.facts if isinstance(fact, TokenUnreadable)]
            assert (
                told
                == [f"web: [web] token: file {place}: no such file or directory; make it readable, or use another"]
                * expected
            )
            place.write_text("t")
            assert (await site.client.get("/", headers={"authorization": "Bearer t"})).status_code == 200
            place.unlink()


async def test_nobody_waits_for_a_token_on_a_dead_disk_but_those_who_need_it(tmp_path: Path) -> None:
    place, is_late = tmp_path / "token", threading.Event()
    os.mkfifo(place)  # who reads it waits for somebody to write

    def write() -> None:
        is_late.set()
        place.write_text("t")

    async with serve(tmp_path, token={"file": str(place)}) as site, anyio.create_task_group() as group:
        writing = threading.Timer(3, write)
        writing.start()
        group.start_soon(partial(site.client.get, "/", headers={"authorization": "Bearer t"}))
        for _ in range(5):
            assert (await site.client.get("/", headers={"host": "evil.example.com"})).status_code == 421
        assert not is_late.is_set()
        writing.cancel()
        await to_thread.run_sync(place.write_text, "t")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_nothing_can_be_changed(shared: Served, method: str) -> None:
    headers = {"origin": "http://evil.example.com", "access-control-request-method": "GET"}
    answer = await shared.client.request(method, "/feeds", headers=headers)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert not [name for name in answer.headers if name.startswith("access-control-")]


async def test_other_origins_are_allowed_nothing(shared: Served) -> None:
    answer = await shared.client.get("/", headers={"origin": "http://evil.example.com"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_body_is_not_taken(shared: Served) -> None:
    answer = await shared.client.request("GET", "/", content=b"x" * 1_000_000)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert (await shared.client.request("GET", "/", headers={"content-length": "0"})).status_code == 200


async def _exchange(port: int, sent: bytes) -> bytes:
    """Send bytes and return what is answered until the connection is closed."""
    answer = b""
    with anyio.fail_after(5):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(sent)
            try:
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return answer


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000, b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /?" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x:\r\n" * 5_000 + b"\r\n", b"431"),
    ],
)
async def test_what_no_library_sends_is_refused(shared: Served, sent: bytes, status: bytes) -> None:
    answer = await _exchange(shared.site.port, sent)
    assert answer.split()[1] == status
    assert b"\r\ncontent-type: application/problem+json\r\n" in answer
    assert b"\r\nx-content-type-options: nosniff\r\n" in answer


async def test_whoever_comes_when_there_are_too_many_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.web.connection.CONNECTIONS_MOST", 1)
    async with serve(tmp_path) as site, await anyio.connect_tcp("127.0.0.1", site.site.port) as first:
        filled = await site.fill("a")
        asked = f"GET {filled.events_url}?after={site.store.epoch}.1&wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        await first.send(asked.encode())
        await site.until_waiting(1)
        answer = await _exchange(site.site.port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.split()[1] == b"503"
        assert b"urn:dockbell:problem:too-many-connections" in answer
        answer = await _exchange(site.site.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.split()[1] == b"200"  # a probe is answered all the same
        await filled.put("b")
        assert (await first.receive()).split()[1] == b"200"


async def test_a_body_that_drips_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.web.connection.CONNECTIONS_MOST", 1)
    async with serve(tmp_path) as site, await anyio.connect_tcp("127.0.0.1", site.site.port) as dripping:
        await dripping.send(b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        answer = await _exchange(site.site.port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answer.split()[1] == b"200"
        with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await dripping.receive()


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/healthz", "localhost", b"200"),
        ("HTTP://LOCALHOST:80/healthz", "evil.example.com", b"200"),  # what the target says is what counts
        ("https://[::1]/healthz", "[", b"200"),
        ("http://127.0.0.1", "localhost", b"200"),
        ("http://127.0.0.1?x=1", "localhost", b"400"),
        ("http://localhost/nowhere", "[", b"404"),
        ("http://evil.example.com/healthz", "localhost", b"421"),
        ("http://localhost@evil.example.com/", "localhost", b"421"),
        ("http://evil@localhost/", "localhost", b"421"),
        ("http:///healthz", "localhost", b"421"),
        ("ftp://localhost/healthz", "localhost", b"400"),
        ("[::1", "localhost", b"400"),
        ("@[x", "localhost", b"400"),
        ("*", "localhost", b"400"),
        ("localhost:80", "localhost", b"400"),
    ],
)
async def test_a_target_is_a_path_or_a_url_of_this_machine(
    shared: Served, target: str, host: str, status: bytes
) -> None:
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    answer = await _exchange(shared.site.port, request.encode())
    assert answer.split()[1] == status


@pytest.mark.parametrize("sent", [b"G", b"GET / HTTP/1.1\r\nHost: localh"])
async def test_a_client_that_does_not_say_what_it_wants_is_hung_up_on(
    shared: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockbell.web.connection._HEAD_SECONDS", 0.1)
    assert await _exchange(shared.site.port, sent) == b""


async def test_a_second_request_has_the_same_time(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.web.connection._HEAD_SECONDS", 0.1)
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with await anyio.connect_tcp("127.0.0.1", shared.site.port) as stream:
        for _ in range(2):
            await stream.send(request)
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            await anyio.sleep(0.2)  # idle: nobody is in a hurry
        await stream.send(request[:20])
        with anyio.fail_after(5), pytest.raises(anyio.EndOfStream):
            await stream.receive()


# Acts ----------------------------------------------------------------------------------------------------------------

PAUSE = "/sinks/erp/pause"


async def test_whoever_has_the_token_acts(guarded: Served) -> None:
    assert (await guarded.client.post(PAUSE, json={})).status_code == 200
    assert (await guarded.client.post("/sinks/erp/resume")).json() == {
        "outcome": "it is resumed, and gets all events that it is owed"
    }


async def test_without_the_token_nobody_acts(guarded: Served) -> None:
    async with httpx.AsyncClient(base_url=guarded.client.base_url) as stranger:
        answer = await stranger.post(PAUSE, json={})
    assert (answer.status_code, answer.json()["type"]) == (401, "urn:dockbell:problem:token")


@pytest.mark.parametrize("origin", ["http://localhost:{port}", "http://LOCALHOST:{port}", "https://public.example.com"])
async def test_a_page_of_our_own_acts(guarded: Served, origin: str) -> None:
    headers = {"host": f"localhost:{guarded.site.port}", "origin": origin.format(port=guarded.site.port)}
    answer = await guarded.client.post("/sinks/erp/resume", headers=headers | {"sec-fetch-site": "same-origin"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example.com"},
        {"origin": "http://localhost:1"},  # another program of this machine
        {"origin": "http://localhost"},
        {"origin": "http://public.example.com"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:99999"},
        {"origin": "file://"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("host", ["localhost:8470", "localhost:99999"])
async def test_a_page_of_another_origin_acts_never(guarded: Served, headers: dict[str, str], host: str) -> None:
    for method, place in (("POST", PAUSE), ("POST", "/session"), ("DELETE", "/session")):
        answer = await guarded.client.request(method, place, headers={"host": host} | headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:dockbell:problem:origin")


@pytest.mark.parametrize("word", [None, "", "x", "\xe9"])
async def test_a_session_acts_by_its_word_only(guarded: Served, word: str | None) -> None:
    async with httpx.AsyncClient(base_url=guarded.client.base_url) as browser:
        csrf = (await browser.post("/session", json={"token": TOKEN})).json()["csrf"]
        headers = {} if word is None else {b"x-dockbell-csrf": word.encode("latin-1")}
        answer = await browser.post(PAUSE, json={}, headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:dockbell:problem:csrf")
        assert (await browser.post("/sinks/erp/resume", headers={"x-dockbell-csrf": csrf})).status_code == 200


async def test_only_a_bounded_body_is_taken(guarded: Served) -> None:
    head = f"POST {PAUSE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    for rest in (
        b"Content-Length: 65537\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n10001\r\n" + b"x" * 0x10001 + b"\r\n0\r\n\r\n",
    ):
        assert (await _exchange(guarded.site.port, head.encode() + rest)).startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_does_not_come_is_not_waited_for(guarded: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dockbell.web.params._BODY_SECONDS", 0.1)
    head = f"POST {PAUSE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 9\r\n\r\n{{"
    answer = await _exchange(guarded.site.port, head.encode())
    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "application/json", 200),
        (b"{}", "application/json; charset=utf-8", 200),
        (b"", "", 200),
        (b"{}", "text/plain", 415),  # what a form of another site could send
        (b"{}", "", 415),
        (b"reason=x", "application/x-www-form-urlencoded", 415),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'"\xff"', "application/json", 400),
        (b'{"reason": "\\ud800"}', "application/json", 400),
        (b"[" * 60_000, "application/json", 400),
        (b'{"reason": 1}', "application/json", 400),
        (b'{"reason": ""}', "application/json", 400),
        (b'{"reason": "a\\nb"}', "application/json", 400),
        (b'{"reasons": "x"}', "application/json", 400),
    ],
)
async def test_a_body_is_json_as_it_was_said_to_be(guarded: Served, content: bytes, kind: str, status: int) -> None:
    headers = {"content-type": kind} if kind else {}
    answer = await guarded.client.post(PAUSE, content=content, headers=headers)
    assert answer.status_code == status
    assert status == 200 or answer.json()["type"] in ("urn:dockbell:problem:body", "urn:dockbell:problem:bad-request")


# The page ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/", "/page/index.html", "/page/icon.svg", "/healthz", "/session"])
async def test_the_page_and_health_need_no_token(guarded: Served, place: str) -> None:
    async with httpx.AsyncClient(base_url=guarded.client.base_url) as stranger:
        answer = await stranger.get(place, headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
        assert answer.status_code == 200


@pytest.mark.parametrize("place", ["/", "/feeds", "/nowhere", "/page/icon.svg", "/live?x=1"])
async def test_every_answer_is_kept_from_scripts_frames_and_guesses_of_its_type(shared: Served, place: str) -> None:
    answer = await shared.client.get(place)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "trusted-types 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    for name in ("content-security-policy", "cache-control"):
        assert len(answer.headers.get_list(name)) == 1
