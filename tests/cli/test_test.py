from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

from anyio import to_thread
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from tests.brokers import Broker, Subscriber
from tests.cli.programs import run
from tests.oracle import Account
from tests.receivers import Receiver

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


async def test_a_sink_that_is_not_configured_is_wrong_usage(configure: Configure) -> None:
    result = await run_test("uot", configure(NOWHERE))
    assert result.returncode == 2
    assert 'no sink "uot"; did you mean "out"?' in result.stderr
    result = await run_test("out", configure(NOWHERE, ""))
    assert 'no sink "out"; none is configured' in result.stderr
