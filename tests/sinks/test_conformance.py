"""The sinks that come with dockbell do what every sink promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from dockbell.sinks import stdout
from dockbell.sinks.alert import AlertSink
from dockbell.sinks.mqtt import MqttSink
from dockbell.sinks.queues.jetstream import JetStreamSink
from dockbell.sinks.queues.kafka import KafkaSink
from dockbell.sinks.queues.rabbitmq import RabbitMqSink
from dockbell.sinks.queues.redis_streams import RedisSink
from dockbell.sinks.stdout import StdoutSink
from dockbell.sinks.webhook import WebhookSink
from dockbell.testing import Ability, Receiver, SinkConformance
from tests.rabbitmq_server import RabbitMqServer
from tests.sinks.conforming import (
    AlertReceiver,
    BatchReceiver,
    BrokerReceiver,
    KafkaReceiver,
    NatsReceiver,
    PipeReceiver,
    RabbitMqReceiver,
    RedisReceiver,
    WebhookReceiver,
)


class TestWebhook(SinkConformance):
    sink_type = WebhookSink
    lacks: ClassVar = {Ability.REJECT: "any answer in HTTP will do for a probe; certificates are tried with the sink"}

    def make_receiver(self, folder: Path) -> Receiver:
        return WebhookReceiver()


class TestWebhookBatches(TestWebhook):
    def make_receiver(self, folder: Path) -> Receiver:
        return BatchReceiver()


class TestMqtt(SinkConformance):
    sink_type = MqttSink

    def make_receiver(self, folder: Path) -> Receiver:
        return BrokerReceiver(folder)


class TestRedis(SinkConformance):
    sink_type = RedisSink
    lacks: ClassVar = {Ability.REFUSE: "Redis says of no entry that it will never take it"}

    def make_receiver(self, folder: Path) -> Receiver:
        return RedisReceiver(folder)


class TestNats(SinkConformance):
    sink_type = JetStreamSink

    def make_receiver(self, folder: Path) -> Receiver:
        return NatsReceiver(folder)


class TestKafka(SinkConformance):
    sink_type = KafkaSink

    def make_receiver(self, folder: Path) -> Receiver:
        return KafkaReceiver(folder)


class TestRabbitMq(SinkConformance):
    sink_type = RabbitMqSink
    lacks: ClassVar = {Ability.REFUSE: "RabbitMQ refuses only what is too large, which is tried with the sink"}

    @pytest.fixture(autouse=True)
    def _server(self, rabbitmq: RabbitMqServer) -> None:
        self.server = rabbitmq

    def make_receiver(self, folder: Path) -> Receiver:
        return RabbitMqReceiver(self.server)


class TestAlert(SinkConformance):
    sink_type = AlertSink
    lacks: ClassVar = {
        Ability.REFUSE: "Apprise says only that a message was not taken, not whether it ever will be",
        Ability.REJECT: "only a message shows whether a service takes messages",
    }

    def make_receiver(self, folder: Path) -> Receiver:
        return AlertReceiver()


class TestStdout(SinkConformance):
    sink_type = StdoutSink
    lacks: ClassVar = {
        Ability.REFUSE: "a pipe takes what is written",
        Ability.FAIL: "a pipe takes what is written",
        Ability.DROP: "a pipe that broke is not connected again",
        Ability.REJECT: "a pipe does not ask who writes",
    }

    @pytest.fixture(autouse=True)
    def _pipe(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self.pipe = PipeReceiver()
        # pytest puts its own sys.stdout in place again after the fixtures.
        monkeypatch.setattr(stdout, "sys", SimpleNamespace(stdout=self.pipe))
        yield
        self.pipe.close()

    def make_receiver(self, folder: Path) -> Receiver:
        return self.pipe
