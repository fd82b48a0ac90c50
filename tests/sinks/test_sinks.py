from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from dockbell import sinks
from dockbell.errors import ConfigError
from dockbell.sinks import find_sink_types, load_sink_type
from dockbell.sinks.mqtt import MqttSettings, MqttSink
from dockbell.sinks.stdout import StdoutSettings


def test_the_three_kinds_are_found() -> None:
    assert {"mqtt", "stdout", "webhook"} <= find_sink_types().keys()


def test_a_kind_is_loaded_with_the_model_of_its_settings() -> None:
    assert load_sink_type("mqtt") is MqttSink
    assert load_sink_type("mqtt").Settings is MqttSettings


def test_an_unknown_kind_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match=r'^sink type "webhok": unknown; did you mean "webhook"\?$'):
        load_sink_type("webhok")
    with pytest.raises(
        ConfigError, match=r'"pulsar": unknown; available: alert, amqp, kafka, mqtt, nats, redis, stdout, webhook$'
    ):
        load_sink_type("pulsar")


@pytest.mark.parametrize("target", ["dockbell_pager:Pager", "dockbell.sinks.mqtt:Pager"])
def test_a_kind_that_cannot_be_imported_is_told(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    broken = EntryPoint("pager", target, "dockbell.sinks")
    monkeypatch.setattr(sinks, "entry_points", lambda **_: [broken])
    with pytest.raises(ConfigError, match=r'^sink type "pager": cannot be imported, .*[pP]ager.*; install its'):
        load_sink_type("pager")


def test_no_package_takes_the_name_of_a_kind_that_dockbell_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    other = EntryPoint("mqtt", "dockbell.sinks.stdout:StdoutSink", "dockbell.sinks")
    monkeypatch.setattr(sinks, "entry_points", lambda **_: [other])
    assert load_sink_type("mqtt") is MqttSink
    assert find_sink_types()["mqtt"].load() is MqttSink


def test_settings_for_a_run_beside_the_daemon_differ_where_the_two_would_clash() -> None:
    settings = MqttSettings(type="mqtt", url="mqtt://localhost", client_id="dock")
    aside = settings.aside()
    assert aside.client_id not in (None, "dock", settings.aside().client_id)
    assert aside == settings.model_copy(
        update={"client_id": aside.client_id, "status_topic": "", "discovery_prefix": None}
    )
    assert settings.owned_by("acme", "floor").client_id == "dock"
    assert StdoutSettings(type="stdout").owned_by("acme", "out") == StdoutSettings(type="stdout")
    assert StdoutSettings(type="stdout").aside() == StdoutSettings(type="stdout")
