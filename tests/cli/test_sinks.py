"""What is done with one sink, while no daemon runs: tests, pauses, replays."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.brokers import Broker, Subscriber
from tests.cli.filled import NO_DAEMON, Filled
from tests.cli.programs import run
from tests.cli.terminal import on_terminal
from tests.oracle import Account
from tests.receivers import Receiver
from tests.stores.standings import block, kill, read, stand


def test_a_sink_is_paused_until_it_is_resumed_and_status_says_why(filled: Filled) -> None:
    stand(filled.store, "erp", 4)
    assert filled.run("pause", "erp", "--reason", "moving house") == (
        'sink erp is paused; its events wait until "dockbell resume erp"\n'
    )
    status = filled.ask("status", code=1)
    (reason,) = [reason for reason in status["reasons"] if reason.startswith("sink")]
    assert re.fullmatch(
        r'sink erp: paused [0-3]s ago, 2 events owed: moving house; "dockbell resume erp" resumes delivery', reason
    )
    assert status["sinks"][0]["paused"] == "moving house"
    again = filled.run("pause", "erp")
    assert re.fullmatch(r"sink erp is already paused, since \S+ \S+Z: moving house\n", again)
    assert filled.run("resume", "erp").splitlines() == [
        "resumed sink erp; it is owed 2 events",
        'no daemon is running: "dockbell run" starts one, which sends them',
    ]
    told = 'sink erp is not paused; "dockbell retry erp" retries its waiting events now\n'
    assert filled.run("resume", "erp") == told
    assert filled.ask("status", code=1)["sinks"][0]["paused"] is None


def test_json_tells_whether_anything_changed(filled: Filled) -> None:
    paused = filled.ask("pause", "floor")  # which has not begun yet
    assert (paused["sink"], paused["paused"], paused["changed"]) == ("floor", "by an operator", True)
    assert filled.ask("pause", "floor", "--reason", "other") == paused | {"changed": False}
    assert filled.ask("resume", "floor") == {"sink": "floor", "changed": True, "owed": 0, "daemon": None}
    assert filled.ask("resume", "floor")["changed"] is False


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("pause", "epr"), 'no sink "epr"; did you mean "erp"?'),
        (("resume", "zebra"), 'no sink "zebra"; available: erp, floor'),
        (("replay", "epr", "--all"), 'no sink "epr"; did you mean "erp"?'),
        (("replay", "erp", "--feed", "stok"), 'feed "stok" is not configured; did you mean "stock"?'),
    ],
)
def test_what_does_not_exist_is_a_problem(filled: Filled, args: tuple[str, ...], told: str) -> None:
    assert filled.misuse(*args, code=1) == f"error: {told}"


def test_a_pause_without_a_reason_is_wrong_usage(filled: Filled) -> None:
    assert filled.misuse("pause", "erp", "--reason", " ") == "Error: --reason: must not be empty"


def test_what_waits_for_its_next_attempt_is_sent_at_once_by_retry(filled: Filled) -> None:
    block(filled.store, "erp", "b", 5)
    lines = filled.run("retry", "erp").splitlines()
    assert lines == [
        "sink erp: 1 waiting record and 0 waiting replays are due now",
        'no daemon is running: "dockbell run" starts one, which sends them',
    ]
    assert filled.ask("retry", "erp") == {"sink": "erp", "keys": 1, "replays": 0, "paused": None, "daemon": None}


def test_events_that_are_chosen_wait_to_be_sent_again(filled: Filled) -> None:
    assert filled.run("replay", "erp", "--key", "a").splitlines() == [
        "feed            chosen  waiting  owed  filtered",
        "main/shipments       2        0     0         0",
        "",
        "queued 2 events for replay; 2 replays waiting for erp",
        "they have lower priority than live traffic, no guaranteed order, and the mark dockbell-replay: true",
        NO_DAEMON,
    ]
    assert filled.waiting() == [1, 4]
    found = filled.ask("replay", "erp", "--all")
    assert (found["chosen"], found["replays"], found["paused"], found["daemon"]) == (4, 6, None, None)
    assert found["feeds"] == [
        {"feed": "main/shipments", "chosen": 4, "waiting": 2, "owed": 0, "filtered": 0},
        {"feed": "main/stock", "chosen": 0, "waiting": 0, "owed": 0, "filtered": 0},
    ]
    sinks = filled.ask("status", code=1)["sinks"]
    assert [(sink["sink"], sink["replays"]) for sink in sinks] == [("erp", 6), ("floor", 0)]


def test_a_dry_run_counts_shows_the_first_and_writes_nothing(filled: Filled) -> None:
    lines = filled.run("replay", "erp", "--feed", "shipments", "--dry-run").splitlines()
    assert lines[1].split() == ["main/shipments", "6", "0", "0", "0"]
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d shipment.created +a +.*", lines[3])
    assert lines[8:] == ["and 1 more", "6 events would be sent again; nothing was written"]
    found = filled.ask("replay", "erp", "--feed", "shipments", "--sequence", "2-3", "--dry-run")
    assert (found["chosen"], found["dry_run"]) == (2, True)
    assert [(each["sequence"], each["key"]) for each in found["sample"]] == [(2, "b"), (3, "c")]
    assert filled.waiting() == []


def test_every_way_to_choose_events(filled: Filled) -> None:
    kill(filled.store, "erp", "b", 5)
    stand(filled.store, "erp", 6, origin=2)
    ids = read(filled.store, "SELECT id FROM events ORDER BY sequence")
    chosen = {
        ("--event", str(ids[2][0]), "--event", str(ids[0][0])): 2,
        ("--sequence", "5-", "--feed", "shipments"): 2,
        ("--key", "x/1"): 1,  # as the API writes it
        ("--since", "2026-11-21T12:00", "--until", "2026-11-21T12:00:01Z"): 6,
        ("--until", "2026-11-21T12:00"): 0,
        ("--since", "36500d"): 6,
        ("--failed",): 1,
        ("--never-sent",): 2,
        ("--failed", "--never-sent", "--key", "b"): 2,
    }
    assert {args: filled.ask("replay", "erp", "--dry-run", *args)["chosen"] for args in chosen} == chosen


def test_nothing_that_is_chosen_is_fine_but_what_is_not_there_is_a_problem(filled: Filled) -> None:
    assert filled.run("replay", "erp", "--failed") == "no kept event matches\n"
    lines = filled.run("replay", "erp", "--event", "evt_none", code=1).splitlines()
    assert lines[1:] == ["! event evt_none: is not among the kept events of these feeds"]
    found = filled.ask("replay", "erp", "--feed", "shipments", "--sequence", "6-9", code=1)
    assert (found["chosen"], found["problems"]) == (1, ["feed main/shipments: its last event is 6"])


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("erp",), "select events with at least one option, or pass only --all"),
        (("erp", "--all", "--failed"), "select events with at least one option, or pass only --all"),
        (
            ("floor", "--feed", "shipments"),
            "sink floor takes no events of main/shipments; check its sources and resources",
        ),
        (("erp", "--sequence", "5"), "--sequence applies to one feed; select it with --feed"),
        (("erp", "--sequence", "x"), '--sequence: must be a sequence or a range such as "5-10", got "x"'),
        (("erp", "--key", ""), "--key: a key must not be empty"),
        (("erp", "--since", "noon"), '--since: must be a time such as "2026-11-21T02:30" or "2h" for two hours ago,'),
        (("erp", "--cancel", "--failed"), "--cancel cancels all waiting replays of the sink; remove the other options"),
    ],
)
def test_a_replay_that_makes_no_sense_is_wrong_usage(filled: Filled, args: tuple[str, ...], told: str) -> None:
    assert filled.misuse("replay", *args).startswith(f"Error: {told}")
    assert filled.waiting() == []


def test_what_keeps_the_events_from_being_sent_is_told(filled: Filled) -> None:
    filled.run("pause", "erp", "--reason", "moving house")
    assert filled.run("replay", "erp", "--key", "c").splitlines()[-2:] == [
        'sink erp is paused (moving house): "dockbell resume erp" sends them',
        NO_DAEMON,
    ]
    assert filled.ask("replay", "erp", "--key", "c")["paused"] == "moving house"


def test_replays_that_wait_can_be_forgotten(filled: Filled) -> None:
    filled.run("replay", "erp", "--all")
    assert filled.run("replay", "erp", "--cancel") == "cancelled 6 replays\n"
    assert filled.waiting() == []
    assert filled.ask("replay", "erp", "--cancel") == {"sink": "erp", "forgotten": 0}


def test_a_terminal_shows_how_far_it_is(filled: Filled) -> None:
    with on_terminal(filled.folder, "replay", "erp", "--all") as terminal:
        terminal.until("sink erp ━+ 6 of 6 events checked, 6 chosen")
        terminal.until("queued 6 events for replay")
        assert terminal.finish() == 0


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOWHERE = "http://127.0.0.1:9"

Configure = Callable[..., Path]


async def run_test(sink: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return await to_thread.run_sync(partial(run, "test", sink, cwd=folder))


def webhook(url: str) -> str:
    return f'[sinks.erp]\ntype = "webhook"\nurl = "{url}"\nsecret = "{SECRET}"\n'


async def test_a_webhook_receives_a_signed_event_that_says_what_it_is(configure: Configure) -> None:
    account = Account()
    receiver = Receiver(SECRET, account)
    folder = configure(NOWHERE, webhook(receiver.url))
    async with receiver.listening():
        result = await run_test("erp", folder)
    assert (result.returncode, result.stderr) == (0, "")
    event = account.events["test", "erp"][0]
    assert result.stdout == f"{event['id']} delivered\n"
    assert (event["type"], event["source"]) == ("dockbell.test", "dockbell://dockbell/dockbell/test")
    assert not (folder / "dockbell.db").exists()


async def test_a_receiver_that_is_away_gives_its_reason(configure: Configure) -> None:
    result = await run_test("erp", configure(NOWHERE, webhook("http://127.0.0.1:9/hook")))
    assert result.returncode == 1
    assert re.fullmatch(r"evt_\w+ unreachable: connection refused\n", result.stdout)


async def test_the_daemons_mqtt_connection_and_status_are_left_alone(configure: Configure, mosquitto: Broker) -> None:
    lost = Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "dockbell-floor", protocol=paho.MQTTv5)
    client.on_disconnect = lambda *_: lost.set()
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()
    with Subscriber(mosquitto) as subscriber:
        sink = f'[sinks.floor]\ntype = "mqtt"\nurl = "mqtt://{mosquitto.host}:{mosquitto.port}"\n'
        result = await run_test("floor", configure(NOWHERE, sink))
        await subscriber.until(bool)
    assert result.returncode == 0
    assert not lost.is_set()
    assert subscriber.topics[0] == "dockbell/event/dockbell/test/floor/test"
    assert not any(topic.startswith("dockbell/status") for topic in subscriber.topics)
    client.disconnect()
    client.loop_stop()


async def test_standard_output_takes_an_event(configure: Configure) -> None:
    event, outcome = (await run_test("out", configure(NOWHERE))).stdout.splitlines()
    assert outcome == f"{json.loads(event)['id']} delivered"


async def test_a_sink_that_does_not_exist_is_a_problem(configure: Configure) -> None:
    result = await run_test("uot", configure(NOWHERE))
    assert result.returncode == 1
    assert 'no sink "uot"; did you mean "out"?' in result.stderr
    result = await run_test("out", configure(NOWHERE, ""))
    assert 'no sink "out"; no sinks are configured' in result.stderr
