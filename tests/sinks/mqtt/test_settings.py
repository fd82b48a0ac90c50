from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.sinks.mqtt import MqttSettings
from tests.sinks.mqtt.conftest import make_sink


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = MqttSettings(type="mqtt", url="mqtts://broker.example.com")
    assert settings.topic == "dockbell/event/{source}/{resource}/{key}/{change}"
    assert settings.feed_topic == "dockbell/feed/{source}/{resource}/{change}"
    assert settings.state_topic == "dockbell/state/{source}/{resource}/{key}"
    assert (settings.status_topic, settings.in_flight) == ("dockbell/status/{client_id}", 20)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"url": "http://localhost"},
            'must be a URL such as "mqtts://broker.example.com:8883", got "http://localhost"',
        ),
        ({"url": "mqtt://"}, "must be a URL such as"),
        ({"url": "mqtt://localhost:99999"}, "must have a port from 1 to 65535"),
        (
            {"url": "mqtt://me:secret@localhost"},
            "must not contain a user or password; use the keys username and password",
        ),
        ({"url": "mqtt://localhost/dockbell"}, "must end with the host and port; a path is for ws: and wss:"),
        ({"url": "wss://localhost/mqtt?token=1"}, "must not contain a query or a fragment"),
        ({"url": "ws://localhost/mqtt", "ca_file": "ca.pem"}, 'need a url that begins with "mqtts:" or "wss:"'),
        ({"discovery_prefix": "a/#"}, "must not contain a wildcard"),
        ({"discovery_prefix": "homeassistant", "status_topic": ""}, "discovery_prefix needs status_topic"),
        ({"qos": 3}, "must be 0, 1 or 2, got 3"),
        ({"topic": "a/#"}, r"must not contain a wildcard \(\+ or #\), got \"a/#\""),
        ({"feed_topic": "a/{key}"}, r"must not contain \{key\}; known: \{source\} \{resource\} \{change\}"),
        ({"feed_topic": ""}, "empty level"),
        ({"state_topic": "a/{key}/{change}"}, r"must not contain \{change\}; known: \{source\} \{resource\} \{key\}"),
        ({"state_topic": "a/{source}"}, r"must contain \{key\}, or records overwrite each other"),
        ({"status_topic": "a/{source}"}, r"must not contain \{source\}; known: \{client_id\}"),
        ({"password": "secret"}, "password needs a username"),
        ({"key_file": "key.pem"}, "key_file needs a cert_file"),
        ({"ca_file": "ca.pem"}, 'ca_file and cert_file need a url that begins with "mqtts:" or "wss:"'),
        ({"protocol": "3.1.1", "expiry": "1h"}, 'expiry needs MQTT 5; remove protocol, or set it to "5"'),
        ({"positions_topic": "a/{key}"}, r"must not contain \{key\}; known: \{client_id\}"),
        ({"state_topic": "a/{key}"}, r"state_topic must contain \{source\}, or feeds overwrite each other's records"),
        ({"state_topic": "a/{source}/{key}", "resources": ["stock", "items"]}, r"or set resources to exactly one"),
        ({"state_topic": "a/{resource}/{key}", "sources": ["a", "b"]}, r"or set sources to exactly one"),
        (
            {"state_topic": "a/{source}/{resource}/{key}", "topic": "a/{source}/{resource}/{key}"},
            r'state_topic must differ from topic, got "a/\{source\}/\{resource\}/\{key\}" twice',
        ),
        ({"status_topic": "a", "positions_topic": "a"}, 'status_topic and positions_topic must differ, got "a" twice'),
        ({"in_flight": 0}, "must be at least 1"),
        ({"keepalive": "0s"}, "must be at least 1s"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as error:
        MqttSettings.model_validate({"type": "mqtt", "url": "mqtt://localhost"} | settings)
    assert "secret" not in str(error.value).replace("secret@", "")


def test_a_state_topic_need_not_name_what_there_is_only_one_of() -> None:
    only = {"sources": ["main"], "resources": ["stock", "notices"]}
    settings = MqttSettings.model_validate({"type": "mqtt", "url": "mqtt://localhost", "state_topic": "a/{key}"} | only)
    assert settings.state_topic == "a/{key}"


def test_a_missing_password_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        make_sink("mqtt://localhost", username="dock", password=Secret(env="NO_SUCH_VARIABLE"))


def test_a_client_id_that_cannot_be_part_of_a_topic_is_told_at_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"^\[sinks.floor\]: client_id is part of a topic, which must not contain a wildcard"
    ):
        make_sink("mqtt://localhost", client_id="a+b")
    assert make_sink("mqtt://localhost", client_id="a+b", positions_topic="dockbell/positions", status_topic="status")
