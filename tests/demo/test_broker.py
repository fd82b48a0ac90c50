from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from dockbell.demo import broker as brokers
from dockbell.demo.arrival import Arrival
from dockbell.demo.broker import HOST, Broker, start_broker
from dockbell.demo.subscriber import subscribe
from tests.brokers import MOSQUITTO


@pytest.fixture
def no_mosquitto(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide an installed Mosquitto; return the only folder on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(brokers, "_ADMIN_FOLDERS", str(folder))
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


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed")
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
    monkeypatch.setattr(brokers, "find_spec", lambda _: None)
    async with start_broker(tmp_path) as broker:
        assert broker == "no broker here; pip install 'dockbell[demo]' brings one"


async def test_a_broker_that_does_not_start_says_why_and_gives_way(
    tmp_path: Path, no_mosquitto: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(no_mosquitto / "mosquitto", "echo 'Error: broken' >&2; exit 3")
    async with start_broker(tmp_path) as broker:
        assert isinstance(broker, Broker)
        assert broker.name == "iotcore"
    monkeypatch.setattr(brokers, "find_spec", lambda _: None)
    async with start_broker(tmp_path) as broker:
        assert broker == "Mosquitto did not start: Error: broken"


async def test_a_broker_that_neither_serves_nor_ends_is_killed(
    tmp_path: Path, no_mosquitto: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(no_mosquitto / "mosquitto", "trap '' TERM; exec /bin/sleep 30")
    monkeypatch.setattr(brokers, "find_spec", lambda _: None)
    monkeypatch.setattr(brokers, "_START_LIMIT", 0.2)
    monkeypatch.setattr(brokers, "_STOP_LIMIT", 0.2)
    async with start_broker(tmp_path) as broker:
        assert broker == "Mosquitto did not start: it does not say why"


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
