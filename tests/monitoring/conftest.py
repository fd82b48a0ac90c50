"""What a real daemon under load answers at ``/metrics``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dockbell.core.publishing.signature import mint
from dockbell.sandbox import Sandbox, SandboxOptions, serve
from tests.brokers import find_free_port
from tests.cli.programs import Program
from tests.oracle import Account
from tests.receivers import Receiver

TOKEN = "canary-metrics-token-7c2e"
SECRET = mint(b"0123456789abcdef01234567")
CONFIG = """
[web]
listen = "127.0.0.1:{web}"
token = {{ env = "DOCKBELL_WEB_TOKEN" }}

[sources.main]
base_url = "http://127.0.0.1:{api}"
api_key = "sandbox"
requests_per_minute = 6000

[resources]
shipments = {{ every = "500ms" }}
stock = {{ every = "1s" }}

[sinks.erp]
type = "webhook"
url = "{receiver}"
secret = {{ env = "ERP_SECRET" }}

[sinks.swallowed]
type = "webhook"
url = "{receiver}"
secret = {{ env = "ERP_SECRET" }}
resources = ["shipments"]
where = "key == 'nobody'"

[sinks.away]
type = "webhook"
url = "http://127.0.0.1:{nobody}/"
secret = {{ env = "ERP_SECRET" }}
"""
_WAITED_FOR = {
    "dockbell_delivery_delay_seconds_count": "erp",
    "dockbell_change_commit_delay_seconds_count": "shipments",
    "dockbell_change_delivery_delay_seconds_count": "erp",
    "dockbell_sink_failures_total": "away",
    "dockbell_feed_freshness_seconds": "stock",
    "dockbell_runs_total": "poll",
    "dockbell_changes_total": "updated",
    "dockbell_events_sifted_total": "swallowed",
    "dockbell_sink_silence": "filtered",
}
"""Samples that must be above zero, each with a label of theirs, before the scrape is worth a look."""


@dataclass(frozen=True)
class Scraped:
    """What was scraped.

    Attributes:
        text: In the usual form.
        openmetrics: As OpenMetrics, a moment later.
        took: How many seconds one scrape took.
    """

    text: str
    openmetrics: str
    took: float

    @property
    def samples(self) -> list[Sample]:
        """All samples."""
        return [sample for family in text_string_to_metric_families(self.text) for sample in family.samples]

    @property
    def names(self) -> set[str]:
        """The names of all metrics, and of their samples."""
        types = {line.split()[2] for line in self.text.splitlines() if line.startswith("# TYPE ")}
        return types | {sample.name for sample in self.samples}

    def find(self, name: str, **labels: str) -> float:
        """Return a sample."""
        [value] = [
            sample.value for sample in self.samples if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return value


@pytest.fixture(scope="session")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Scraped:
    """Return what a daemon answers that reads changes and delivers some, while one of its receivers is away."""
    return anyio.run(_observe, tmp_path_factory.mktemp("monitored"))


async def _observe(folder: Path) -> Scraped:
    api, web, receiver = find_free_port(), find_free_port(), Receiver(SECRET, Account())
    (folder / "dockbell.toml").write_text(
        CONFIG.format(api=api, web=web, receiver=receiver.url, nobody=find_free_port())
    )
    sandbox = Sandbox(SandboxOptions(records=300, activity=60, requests_per_minute=0))
    async with serve(sandbox, port=api), receiver.listening():
        program = Program(folder, "run", env={"DOCKBELL_WEB_TOKEN": TOKEN, "ERP_SECRET": SECRET})
        try:
            await anyio.to_thread.run_sync(program.until, "web: answers at")
            return await _scrape(web, sandbox)
        finally:
            program.close()


async def _scrape(port: int, sandbox: Sandbox) -> Scraped:
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
        with anyio.fail_after(30):
            while True:
                response = await client.get("/metrics")
                response.raise_for_status()
                lack = _find_lack(response.text)
                if not lack:
                    break
                if lack == {"dockbell_sink_silence"}:  # a sink that owes what came just now is late, not silent
                    sandbox.activity.rate = 0
                await anyio.sleep(0.2)
        accept = {"accept": "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"}
        openmetrics = await client.get("/metrics", headers=accept)
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    return Scraped(response.text, openmetrics.text, response.elapsed.total_seconds())


def _find_lack(text: str) -> set[str]:
    lack = set(_WAITED_FOR)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.value > 0 and _WAITED_FOR.get(sample.name) in sample.labels.values():
                lack.discard(sample.name)
    return lack
