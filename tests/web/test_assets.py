from __future__ import annotations

from importlib.resources import files

import pytest

from tests.web.sites import Served

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def test_whoever_accepts_a_page_is_given_the_page_and_others_the_index(shared: Served) -> None:
    page = await shared.client.get("/", headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text.startswith("<!doctype html>")
    index = await shared.client.get("/")
    assert index.json()["name"] == "acme"
    assert page.headers["vary"] == "Accept-Encoding, Accept"
    assert index.headers["vary"] == "Accept"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("index.html", "text/html; charset=utf-8"),
        ("page.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_of_the_page_says_what_it_is(shared: Served, name: str, media_type: str) -> None:
    answer = await shared.client.get(f"/page/{name}")
    assert answer.headers["content-type"] == media_type
    assert answer.content == (files("dockbell.web") / "page" / name).read_bytes()


async def test_a_file_that_is_known_is_not_sent_again(shared: Served) -> None:
    tag = (await shared.client.get("/page/icon.svg")).headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}'):
        again = await shared.client.get("/page/icon.svg", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert (await shared.client.get("/page/icon.svg", headers={"if-none-match": '"x"'})).status_code == 200


@pytest.mark.parametrize("name", ["nothing.js", "..%2fsite.py", "%2e%2e", "site.py", "icon.svg%00", "Icon.svg"])
async def test_nothing_else_is_served(shared: Served, name: str) -> None:
    assert (await shared.client.get(f"/page/{name}")).status_code == 404


async def test_a_file_is_sent_compressed_to_whom_accepts_that(shared: Served) -> None:
    plain = await shared.client.get("/page/style.css", headers={"accept-encoding": "identity"})
    small = await shared.client.get("/page/style.css", headers={"accept-encoding": "gzip, deflate, br"})
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert plain.content == small.content
    assert int(small.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    assert plain.headers["etag"] != small.headers["etag"]
    assert plain.headers["vary"] == small.headers["vary"] == "Accept-Encoding"
