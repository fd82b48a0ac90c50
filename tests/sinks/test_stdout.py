from __future__ import annotations

import json
import os
import pty
import sys

import anyio
import pytest

from dockbell.core.model import Outcome, OutcomeKind
from dockbell.errors import SinkUnavailable
from dockbell.sinks.stdout import StdoutSettings, StdoutSink
from tests.sinks.conftest import Facts, make_delivery, running


def make_sink() -> StdoutSink:
    return StdoutSink("console", StdoutSettings(type="stdout"), Facts().telemetry)


def pipe_stdout(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Put a pipe in the place of standard output; return its reading and its writing end."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdout", os.fdopen(writing, "w", closefd=False))
    return reading, writing


async def test_each_event_is_one_line_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    async with running(make_sink()) as run:
        run.deliver(*map(make_delivery, range(200)))
        await run.until_settled(200)
    assert run.fates == [OutcomeKind.DELIVERED] * 200
    assert capfd.readouterr().out.splitlines() == [f'{{"subject": "shp_{number}"}}' for number in range(200)]


async def test_a_reader_that_pauses_does_not_hold_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = pipe_stdout(monkeypatch)
    body, received = b"x" * 200_000, b""
    async with running(make_sink()) as run:
        run.deliver(make_delivery(body=body))
        await anyio.sleep(0.05)
        assert not run.settled
        while len(received) <= len(body):
            received += await anyio.to_thread.run_sync(os.read, reading, 65536)
        await run.until_settled(1)
    assert received == body + b"\n"
    os.close(reading)
    os.close(writing)


async def test_a_closed_pipe_is_told_and_nobody_judged_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = pipe_stdout(monkeypatch)
    os.close(reading)
    async with running(make_sink()) as run:
        run.deliver(make_delivery(1), make_delivery(2))
        outcomes = await run.until_settled(2)
    assert outcomes == [Outcome(OutcomeKind.UNREACHABLE, "standard output: broken pipe")] * 2
    os.close(writing)


async def test_a_probe_says_whether_standard_output_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = pipe_stdout(monkeypatch)
    assert await make_sink().probe() == "standard output is open"
    os.close(reading)
    os.close(writing)
    with pytest.raises(SinkUnavailable, match="standard output: bad file descriptor"):
        await make_sink().probe()


async def test_a_terminal_obeys_nothing_that_others_have_written_into_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, other = pty.openpty()
    monkeypatch.setattr(sys, "stdout", os.fdopen(other, "w", closefd=False))
    body = '{"name":"a\x9b2J\u202eb"}'.encode()
    async with running(make_sink()) as run:
        run.deliver(make_delivery(body=body))
        await run.until_settled(1)
    shown = os.read(terminal, 4096).decode().removesuffix("\r\n")
    assert shown.isprintable()
    assert json.loads(shown) == json.loads(body)
    os.close(terminal)
    os.close(other)
