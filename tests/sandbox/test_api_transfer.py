from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sandbox.conftest import Open


@pytest.mark.parametrize("kind", ["strong", "weak"])
async def test_what_a_client_has_is_not_sent_again_until_it_changes(opened: Open, kind: str) -> None:
    sandbox, client = await opened(etag=kind)
    first = await client.get("/v1/stock")
    tag = first.headers["etag"]
    assert tag.startswith("W/") == (kind == "weak")
    again = await client.get("/v1/stock", headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "content-type" not in again.headers
    assert again.headers["x-ratelimit-remaining"] == "298"
    sandbox.edit("stock")
    changed = await client.get("/v1/stock", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.headers["etag"] == tag) == (200, False)


async def test_errors_and_the_sandbox_s_own_answers_have_no_etag(opened: Open) -> None:
    _, client = await opened(etag="strong")
    for path in ("/v1/shipments/shp_0", "/sandbox/changes"):
        assert "etag" not in (await client.get(path)).headers
    assert "etag" not in (await client.post("/v1/sales-orders", json={})).headers


async def test_without_the_option_there_is_neither(opened: Open) -> None:
    _, client = await opened()
    response = await client.get("/v1/stock", headers={"If-None-Match": "*"})
    assert response.status_code == 200
    assert not {"etag", "content-encoding", "vary"} & set(response.headers)


async def test_answers_are_compressed_for_those_who_accept_it(opened: Open) -> None:
    sandbox, client = await opened()
    plain = await client.get("/v1/stock")
    sandbox.set(gzip=True)
    small = await client.get("/v1/stock")
    assert small.headers["content-encoding"] == "gzip"
    assert small.content == plain.content
    assert int(small.headers["content-length"]) < len(plain.content) / 3
    other = await client.get("/v1/stock", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in other.headers
    assert other.content == plain.content


async def test_both_go_together(opened: Open) -> None:
    _, client = await opened(etag="weak", gzip=True)
    first = await client.get("/v1/stock")
    assert first.headers["content-encoding"] == "gzip"
    again = await client.get("/v1/stock", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
