"""Take the pictures that the README shows: ``python -m tests.pictures [MINUTES]``.

The demo, from twenty seconds of it. The status page, in both themes: a sandbox, a daemon, a broker and a receiver run
for as long as told, 28 minutes if nothing is, so that the page has something to draw. They go into ``docs/images``.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Browser, expect

from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import find_free_port, make_broker
from tests.brokers import started as broker_started
from tests.cli.programs import started
from tests.demo.picture import draw
from tests.web.page.browser import running, visiting
from tests.web.page.stage import SECRET, TOKEN, Shop

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
SIZE: Final = {"width": 1360, "height": 860}
BYTES_MOST: Final = 250_000
CONFIG: Final = """
name = "acme"

[web]
listen = "127.0.0.1:{port}"
token = "{token}"

[sources.main]
base_url = "{api}"
api_key = "sandbox"
requests_per_minute = 60

[resources]
shipments = {{ every = "5s" }}
packages = {{ every = "6s" }}
items = {{ every = "15s", query = {{ status = "all" }} }}
stock = {{ every = "60s" }}
warehouses = {{ every = "5m" }}

[sinks.floor]
type = "mqtt"
url = "{broker}"

[sinks.erp]
type = "webhook"
url = "{receiver}/hooks/erp"
secret = "{secret}"
"""


@contextmanager
def acting(folder: Path) -> Iterator[tuple[str, Sandbox]]:
    """Let everything run; yield where the page is, and what moves the records."""
    sandbox = Sandbox(SandboxOptions(seed=1, records=1200, activity=1, requests_per_minute=60))
    shop, port = Shop(), find_free_port()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve(sandbox)) as api,
        shop.open(),
        broker_started(make_broker(folder)) as broker,
    ):
        values = {"api": api, "broker": broker.url, "receiver": shop.url, "port": port, "secret": SECRET}
        path = folder / "dockbell.toml"
        path.touch(mode=0o600)  # it holds secrets
        path.write_text(CONFIG.format(token=TOKEN, **values))
        with started(folder, "run") as daemon:
            daemon.until("web: answers at")
            yield f"http://127.0.0.1:{port}/#token={TOKEN}", sandbox


def take(browser: Browser, url: str, theme: Any) -> Path:
    """Take one picture."""
    with visiting(browser, url, viewport=SIZE, color_scheme=theme) as page:
        expect(page.locator("#verdict-words")).to_have_text("All is well")
        page.locator(".event").filter(has_text="updated").nth(1).click()
        expect(page.locator(".event-rows .deliveries")).to_be_visible()
        page.locator("#event-scroll").evaluate("node => { node.scrollTop = 0; document.activeElement.blur(); }")
        path = IMAGES / ("page.png" if theme == "light" else "page-dark.png")
        path.write_bytes(page.screenshot())
    return path


def main() -> None:
    """Take all pictures."""
    draw()
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 28
    with tempfile.TemporaryDirectory() as folder, acting(Path(folder)) as (url, sandbox):
        end = time.monotonic() + minutes * 60
        while (left := end - time.monotonic()) > 0:
            sandbox.activity.rate = 1.2 + math.sin(left / 150)
            time.sleep(min(left, 5))
        with running() as browser:
            for theme in ("light", "dark"):
                path = take(browser, url, theme)
                size = path.stat().st_size
                assert size < BYTES_MOST, f"{path}: {size} bytes are too many for a README"
                print(f"{path}: {size} bytes")


if __name__ == "__main__":
    main()
