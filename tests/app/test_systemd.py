from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from dockbell.app.systemd import Supervisor


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Return what a service manager listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(5)
        yield sock


def found(manager: socket.socket, **variables: str) -> Supervisor:
    return Supervisor.from_environment({"NOTIFY_SOCKET": manager.getsockname(), **variables})


def hear(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_it_tells_ready_and_stopping_with_how_it_stands(manager: socket.socket) -> None:
    supervisor = found(manager)
    supervisor.ready("5 feeds, 2 sinks")
    supervisor.stopping("delivering what is in flight")
    assert hear(manager) == ["READY=1", "STATUS=5 feeds, 2 sinks"]
    assert hear(manager) == ["STOPPING=1", "STATUS=delivering what is in flight"]


def test_a_reload_is_told_with_when_it_began(manager: socket.socket) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    found(manager).reloading()
    word, moment = hear(manager)
    assert word == "RELOADING=1"
    assert before <= int(moment.removeprefix("MONOTONIC_USEC=")) <= before + 5_000_000


def test_no_words_make_a_line_of_their_own(manager: socket.socket) -> None:
    found(manager).ready("feed\nMAINPID=1\r\x1b[2J\u2028ends ")
    assert hear(manager) == ["READY=1", "STATUS=feed MAINPID=1 [2J ends"]


def test_an_abstract_socket_is_a_socket_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0dockbell-{os.getpid()}")
        manager.settimeout(5)
        Supervisor.from_environment({"NOTIFY_SOCKET": f"@dockbell-{os.getpid()}"}).ready("up")
        assert hear(manager) == ["READY=1", "STATUS=up"]


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "/" + "long" * 50, "vsock:2:1", "relative"])
async def test_where_nobody_listens_nothing_is_lost(address: str) -> None:
    Supervisor.from_environment({"NOTIFY_SOCKET": address}).ready("up")


async def test_it_answers_the_watchdog_again_and_again_in_half_of_its_time(manager: socket.socket) -> None:
    async def look() -> str:
        return "all is well"

    supervisor = found(manager, WATCHDOG_USEC="200000", WATCHDOG_PID=str(os.getpid()))
    began = time.monotonic()
    async with anyio.create_task_group() as group:
        group.start_soon(supervisor.watch, look)
        told = [await anyio.to_thread.run_sync(hear, manager) for _ in range(4)]
        group.cancel_scope.cancel()
    assert told == [["WATCHDOG=1", "STATUS=all is well"]] * 4
    assert 0.3 <= time.monotonic() - began < 5


@pytest.mark.parametrize("hangs", [True, False])
async def test_what_does_not_answer_is_not_vouched_for(manager: socket.socket, *, hangs: bool) -> None:
    asked = anyio.Event()

    async def look() -> str:
        asked.set()
        if hangs:
            await anyio.sleep_forever()
        raise OSError("disk I/O error")

    with anyio.move_on_after(0.2):
        await found(manager, WATCHDOG_USEC="100000").watch(look)
    assert asked.is_set()
    assert select.select([manager], [], [], 0)[0] == []


@pytest.mark.parametrize("variables", [{"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}, {}])
async def test_without_a_watchdog_of_ours_only_the_status_is_told(
    manager: socket.socket, variables: dict[str, str]
) -> None:
    async def look() -> str:
        return "all is well"

    with anyio.move_on_after(0.1):
        await found(manager, **variables).watch(look)
    assert hear(manager) == ["STATUS=all is well"]


async def test_with_nobody_to_tell_it_does_not_look() -> None:
    async def look() -> str:
        raise AssertionError

    await Supervisor("", timedelta(seconds=1)).watch(look)
