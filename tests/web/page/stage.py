"""The real daemon with what it reads and what it tells: a shop of few records, and a receiver that can refuse some."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.brokers import find_free_port
from tests.cli.programs import Program, started

TOKEN: Final = "canary+web/token-7c1e"  # a form would decode the plus
SECRET: Final = "whsec_Y2FuYXJ5LXdlYmhvb2stc2VjcmV0LWEx"
CONFIG: Final = """
name = "acme"

[web]
listen = "127.0.0.1:{port}"
token = "{token}"

[sources.main]
base_url = "{shop}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "200ms" }}
items = {{ every = "200ms", freshness_goal = "1m" }}
stock = {{ every = "500ms" }}
warehouses = {{ every = "500ms" }}

[sinks.floor]
type = "webhook"
url = "{shop}/hooks/floor"
secret = "{secret}"

[sinks.erp]
type = "webhook"
url = "{shop}/hooks/erp"
secret = "{secret}"
"""
MANY: Final = 20
"""Sources, of five feeds each."""
MANY_CONFIG: Final = """
name = "many"

[web]
listen = "127.0.0.1:{port}"

[resources.shipments]
every = "15s"
[resources.packages]
[resources.items]
[resources.stock]
[resources.warehouses]
"""
MANY_SOURCE: Final = """
[sources.s{n}]
base_url = "{shop}"
api_key = "sandbox"
requests_per_minute = 6000
"""


class Shop:
    """Serves records as the API would, and takes events as receivers would.

    Attributes:
        records: By resource and id.
        refused: Keys whose events the sink ``erp`` will never take.
        taken: The sink and key of each event that was taken.
        is_failing: The API answers nothing.
    """

    def __init__(self) -> None:
        self.records: dict[str, dict[str, dict[str, Any]]] = {
            resource: {} for resource in ("shipments", "packages", "items", "stock", "warehouses")
        }
        self.refused: set[str] = set()
        self.taken: list[tuple[str, str]] = []
        self.url = ""
        self.is_failing = False
        for n in range(40):
            self.put("stock", f"stk_{n:02}", available=n)
            self.put("warehouses", f"whs_{n:02}", name=f"Dock {n}")
        for n in range(3):
            self.put("shipments", f"shp_{n}", status="packed")
            self.put("packages", f"pkg_{n}", weight=n)
            self.put("items", f"itm_{n}", name=f"Item {n}")

    def put(self, resource: str, key: str, **fields: Any) -> None:
        """Create or change a record."""
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        known = self.records[resource].get(key, {"id": key})
        self.records[resource] = self.records[resource] | {key: known | fields | {"updated_at": at}}

    def put_again(self, resource: str, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Let records be there again, dated now."""
        for key, record in records.items():
            self.put(resource, key, **record)

    def find(self, resource: str, since: str) -> list[dict[str, Any]]:
        """Return what a listing shows, the oldest change first."""
        found = [record for record in self.records[resource].values() if record["updated_at"] >= since]
        return sorted(found, key=lambda record: record["updated_at"])

    @contextmanager
    def open(self) -> Iterator[None]:
        """Be there while inside."""
        shop = self

        class CommandStore(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if shop.is_failing:
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"{}")
                    return
                parts = urlsplit(self.path)
                since = parse_qs(parts.query).get("updated_since", [""])[0]
                page = {"data": shop.find(parts.path.rpartition("/")[2], since), "next_cursor": None}
                self._answer(HTTPStatus.OK, json.dumps(page).encode())

            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["content-length"])))
                sink, key = self.path.rpartition("/")[2], event["data"].get("key", "")
                if sink == "erp" and key in shop.refused:
                    self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, b"<b>quantity</b> must be positive")
                else:
                    shop.taken.append((sink, key))
                    self._answer(HTTPStatus.OK, b"")

            def _answer(self, status: HTTPStatus, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = _Server(("127.0.0.1", 0), CommandStore)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a hundred feeds begin at once

    def handle_error(self, *_: object) -> None:
        """Say nothing of a daemon that was killed half-way."""


@dataclass
class Stage:
    """A daemon that runs in a folder, and its shop.

    Attributes:
        folder: With the configuration and the store.
        shop: What it reads, and whom it tells.
        port: Where its page is.
    """

    folder: Path
    shop: Shop
    port: int = field(default_factory=find_free_port)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def signed_in(self) -> str:
        """Where the page is for whoever has the token."""
        return f"{self.url}#token={TOKEN}"

    @contextmanager
    def running(self) -> Iterator[Program]:
        """Let the daemon run inside."""
        with started(self.folder, "run") as program:
            program.until("web: answers at")
            yield program

    def read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return what a query of the store finds."""
        with closing(sqlite3.connect(f"file:{self.folder}/dockbell.db?mode=ro", uri=True, timeout=10)) as connection:
            return connection.execute(query, values).fetchall()

    def count_events(self, resource: str, change: str) -> int:
        """Return how many events of a kind there are."""
        query = "SELECT count(*) FROM events JOIN feeds ON feeds.id = feed WHERE resource = ? AND change = ?"
        return int(self.read(query, resource, change)[0][0])

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so."""
        end = time.monotonic() + 40
        while not condition():
            assert time.monotonic() < end, f"it never came to be: {(self.folder / 'run.err').read_text()[-3000:]}"
            time.sleep(0.02)

    def until_read(self, feeds: int) -> None:
        """Wait until so many feeds were read whole."""
        query = "SELECT count(DISTINCT feed) FROM runs WHERE kind = 'pass' AND complete"
        self.until(lambda: self.read(query)[0][0] >= feeds)


@contextmanager
def staged(folder: Path, config: str = CONFIG) -> Iterator[Stage]:
    """Set a stage; its daemon is not started."""
    shop = Shop()
    with shop.open():
        stage = Stage(folder, shop)
        text = config.format(port=stage.port, token=TOKEN, shop=shop.url, secret=SECRET)
        path = folder / "dockbell.toml"
        path.touch(mode=0o600)  # it holds secrets
        path.write_text(text)
        yield stage


@contextmanager
def staged_with_many(folder: Path, sources: int = MANY) -> Iterator[Stage]:
    """Set a stage of many sources, each of five feeds, on which nobody may act."""
    with staged(folder, MANY_CONFIG) as stage, (folder / "dockbell.toml").open("a") as config:
        config.writelines(MANY_SOURCE.format(n=n, shop=stage.shop.url) for n in range(sources))
        config.flush()
        yield stage
