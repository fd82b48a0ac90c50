"""What ``docs/pull-feeds.md`` shows works."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import httpx
import pytest

from tests.web.sites import Served

TEXT = (Path(__file__).parents[2] / "docs/pull-feeds.md").read_text(encoding="utf-8")


class _Enough(Exception):  # it is none
    pass


async def test_the_reader_reads_every_event_and_goes_on(shared: Served) -> None:
    filled = await shared.fill(*"abc")
    read: list[dict[str, Any]] = []
    asked: list[httpx.URL] = []

    def get(url: httpx.URL, *, timeout: int) -> httpx.Response:
        if asked:
            raise _Enough
        asked.append(url)
        return httpx.get(url, timeout=timeout)

    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    code = code.replace("http://127.0.0.1:8470", str(shared.client.base_url)).replace(
        "main/shipments", str(filled.feed)
    )
    names = {"httpx": SimpleNamespace(URL=httpx.URL, get=get), "read": read}
    with pytest.raises(_Enough):
        await anyio.to_thread.run_sync(partial(exec, code.replace("...", "read.append(event)"), names))
    assert [int(event["sequence"]) for event in read] == [1, 2, 3]
    assert names["url"].params["after"] == f"{shared.store.epoch}.3"  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", re.findall(r'curl [^"]*(?:"Accept[^"]*" )?"http://127.0.0.1:8470([^"]*)"', TEXT))
async def test_what_is_asked_for_is_there(shared: Served, path: str) -> None:
    filled = await shared.fill("shp_371")
    assert (await shared.client.get(path.replace("main/shipments", str(filled.feed)))).status_code == 200
