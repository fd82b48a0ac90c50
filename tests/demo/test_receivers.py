from __future__ import annotations

import json
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx
import pytest
from anyio import to_thread
from paho.mqtt import publish

from dockbell.core.publishing.signature import parse_secret, sign
from dockbell.demo import receivers
from dockbell.demo.arrival import Arrival
from dockbell.demo.receivers import HOST, Broker, find_free_port, receive, start_broker, subscribe
from tests import brokers
from tests.sinks.mqtt.conftest import needs_mosquitto


@pytest.fixture
def no_mosquitto(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide an installed Mosquitto; return the only folder on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(receivers, "_ADMIN_FOLDERS", str(folder))
    return folder


async def check_serves(broker: Broker | str) -> None:
    assert isinstance(broker, Broker), broker
    arrivals: list[Arrival] = []
    async with subscribe(broker, arrivals.append):
        pass


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


@needs_mosquitto
async def test_an_installed_mosquitto_serves_although_the_path_does_not_lead_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    async with start_broker(tmp_path) as broker:
        await check_serves(broker)
        assert isinstance(broker, Broker)
        assert broker.name == "Mosquitto"
    assert is_free(broker.port)


@pytest.mark.usefixtures("no_mosquitto")
async def test_otherwise_the_broker_of_the_demo_extra_serves(tmp_path: Path) -> None:
    async with start_broker(tmp_path) as broker:
        await check_serves(broker)
        assert isinstance(broker, Broker)
        assert broker.name == "iotcore"
    assert is_free(broker.port)


@pytest.mark.usefixtures("no_mosquitto")
async def test_without_any_the_remedy_is_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "find_spec", lambda _: None)
    async with start_broker(tmp_path) as broker:
        assert broker == "no broker found; pip install 'dockbell[demo]' installs one"


async def test_a_broker_that_does_not_start_says_why_and_gives_way(
    tmp_path: Path, no_mosquitto: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(no_mosquitto / "mosquitto", "echo 'Error: broken' >&2; exit 3")
    async with start_broker(tmp_path) as broker:
        assert isinstance(broker, Broker)
        assert broker.name == "iotcore"
    monkeypatch.setattr(receivers, "find_spec", lambda _: None)
    async with start_broker(tmp_path) as broker:
        assert broker == "Mosquitto did not start: Error: broken"


async def test_a_broker_that_neither_serves_nor_ends_is_killed(
    tmp_path: Path, no_mosquitto: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(no_mosquitto / "mosquitto", "trap '' TERM; exec /bin/sleep 30")
    monkeypatch.setattr(receivers, "find_spec", lambda _: None)
    monkeypatch.setattr(receivers, "_START_LIMIT", 0.2)
    monkeypatch.setattr(receivers, "_STOP_LIMIT", 0.2)
    async with start_broker(tmp_path) as broker:
        assert broker == "Mosquitto did not start: no reason given"


async def test_a_broker_is_ended_with_the_block_even_when_it_fails(tmp_path: Path) -> None:
    ports = []

    async def fail() -> None:
        async with start_broker(tmp_path) as broker:
            assert isinstance(broker, Broker)
            ports.append(broker.port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert is_free(ports[0])


async def test_it_takes_events_in_the_event_loop_and_nothing_else(mosquitto: brokers.Broker) -> None:
    arrivals: list[Arrival] = []
    arrived = anyio.Event()

    def take(arrival: Arrival) -> None:
        arrivals.append(arrival)
        arrived.set()

    def publish_both() -> None:
        event = json.dumps({"id": "evt_1"})
        for topic in ("dockbell/state/main/shipments/shp_1", "dockbell/event/main/shipments/shp_1/updated"):
            publish.single(topic, event, qos=1, hostname=mosquitto.host, port=mosquitto.port)

    async with subscribe(Broker("test", mosquitto.port), take):
        await to_thread.run_sync(publish_both)
        with anyio.fail_after(5):
            await arrived.wait()
    assert [(each.sink, each.event["id"]) for each in arrivals] == [("mqtt", "evt_1")]


def test_a_port_on_which_something_listens_is_not_taken() -> None:
    free = brokers.find_free_port()
    with socket.create_server((HOST, 0)) as listener:
        used = listener.getsockname()[1]
        assert find_free_port(used, free) == free
        assert find_free_port(used) not in (used, free)


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = json.dumps({"id": "evt_1", "data": {"key": "shp_1"}}).encode()


async def post(url: str, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(url, content=BODY, headers=headers)


def make_headers(event_id: str = "evt_1", *, age: int = 0) -> dict[str, str]:
    timestamp = int(time.time()) - age
    signature = sign([parse_secret(SECRET)], event_id, timestamp, BODY)
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}


async def test_what_is_signed_is_taken() -> None:
    taken: list[Arrival] = []
    refused: list[str] = []
    async with receive(SECRET, taken.append, refused.append) as url:
        assert (await post(url, make_headers())).status_code == 204
    assert [(each.sink, each.event["id"]) for each in taken] == [("hook", "evt_1")]
    assert refused == []


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (lambda: make_headers() | {"webhook-id": "evt_2"}, "no signature matches"),
        (lambda: make_headers(age=600), "the timestamp is too old"),
        (dict, "the timestamp is not a number of seconds"),
    ],
)
async def test_what_is_not_signed_is_refused(headers: Callable[[], dict[str, str]], reason: str) -> None:
    taken: list[Arrival] = []
    refused: list[str] = []
    async with receive(SECRET, taken.append, refused.append) as url:
        response = await post(url, headers())
    assert (response.status_code, response.text) == (401, reason)
    assert (taken, refused) == ([], [reason])
