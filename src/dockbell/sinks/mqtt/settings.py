"""What ``[sinks.NAME]`` with ``type = "mqtt"`` may say."""

from __future__ import annotations

import secrets
from datetime import timedelta
from functools import partial
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from dockbell.config import ConfigPath, Duration, Secret, SinkSettings
from dockbell.config.values import split_url
from dockbell.core.model import NOTICES
from dockbell.core.publishing.topic import FEED_FIELDS, check_topic

PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Of the schemes of url, where it has none: TCP, TLS, and the same with WebSockets."""
TLS_SCHEMES: Final = ("mqtts", "wss")
WEB_SOCKET_SCHEMES: Final = ("ws", "wss")


def _check_url(url: str) -> str:
    parts = split_url(url, '"mqtts://broker.example.com:8883"', schemes=PORTS)
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; use the keys username and password")
    if parts.query or parts.fragment:
        raise ValueError("must not contain a query or a fragment")
    if parts.path.strip("/") and parts.scheme not in WEB_SOCKET_SCHEMES:
        raise ValueError("must end with the host and port; a path is for ws: and wss:")
    return url


def _check_state_topic(template: str) -> str:
    return template and check_topic(template, fields=("source", "resource", "key"), required=("key",))


def _check_own_topic(template: str) -> str:
    return template and check_topic(template, fields=("client_id",))  # which each client of a broker has of its own


class MqttSettings(SinkSettings):
    """``[sinks.NAME]`` with ``type = "mqtt"``."""

    type: Literal["mqtt"]
    url: Annotated[str, AfterValidator(_check_url)]
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    qos: Literal[0, 1, 2] = 1
    username: str | None = None
    password: Secret | None = None
    ca_file: ConfigPath | None = None
    cert_file: ConfigPath | None = None
    key_file: ConfigPath | None = None
    client_id: str | None = Field(default=None, min_length=1)
    keepalive: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(hours=18))] = timedelta(seconds=30)
    topic: Annotated[str, AfterValidator(check_topic)] = "dockbell/event/{source}/{resource}/{key}/{change}"
    feed_topic: Annotated[str, AfterValidator(partial(check_topic, fields=FEED_FIELDS))] = (
        "dockbell/feed/{source}/{resource}/{change}"
    )
    state_topic: Annotated[str, AfterValidator(_check_state_topic)] = "dockbell/state/{source}/{resource}/{key}"
    positions_topic: Annotated[str, AfterValidator(_check_own_topic)] = "dockbell/positions/{client_id}"
    status_topic: Annotated[str, AfterValidator(_check_own_topic)] = "dockbell/status/{client_id}"
    discovery_prefix: Annotated[str, AfterValidator(partial(check_topic, fields=()))] | None = None
    expiry: Annotated[Duration, Field(ge=timedelta(seconds=1))] | None = None
    in_flight: int = Field(default=20, ge=1, le=1000)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.password is not None and self.username is None:
            raise ValueError("password needs a username")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs a cert_file")
        if (self.ca_file or self.cert_file) and urlsplit(self.url).scheme not in TLS_SCHEMES:
            raise ValueError('ca_file and cert_file need a url that begins with "mqtts:" or "wss:"')
        if self.protocol == "3.1.1" and self.expiry is not None:
            raise ValueError('expiry needs MQTT 5; remove protocol, or set it to "5"')
        return self

    @model_validator(mode="after")
    def _check_state(self) -> Self:
        """Refuse a topic on which the states of several feeds, or states and events, would overwrite each other."""
        if not self.state_topic:
            return self
        if self.state_topic == self.topic:
            raise ValueError(f'state_topic must differ from topic, got "{self.topic}" twice')
        resources = [each for each in self.resources or () if each != NOTICES.resource]  # which have no state
        for field, taken in (("source", self.sources or ()), ("resource", resources)):
            if len(taken) != 1 and f"{{{field}}}" not in self.state_topic:
                raise ValueError(
                    f"state_topic must contain {{{field}}}, or feeds overwrite each other's records, got"
                    f' "{self.state_topic}"; or set {field}s to exactly one'
                )
        return self

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        if self.status_topic and self.status_topic == self.positions_topic:
            raise ValueError(f'status_topic and positions_topic must differ, got "{self.status_topic}" twice')
        if self.discovery_prefix is not None and not self.status_topic:
            raise ValueError("discovery_prefix needs status_topic, which is empty; set or remove both")
        return self

    def owned_by(self, dockbell: str, sink: str) -> Self:
        """Return settings with a client id of the sink's own, where none is chosen."""
        return self.model_copy(update={"client_id": self.client_id or f"{dockbell}-{sink}"})

    def shared_by(self, slot: int) -> Self:
        """Return settings with a client id of the process's own: a broker allows one connection for each."""
        return self.model_copy(update={"client_id": f"{self.client_id}-{slot}"}) if slot else self

    def claim(self) -> str:
        """Return the client id at its broker: a second client of that name throws the first out."""
        parts = urlsplit(self.url)
        return f"client_id {self.client_id} at {parts.hostname}:{parts.port or PORTS[parts.scheme]}"

    def aside(self) -> Self:
        """Return settings for a short second connection: one as the daemon's client would throw the daemon's out."""
        return self.model_copy(
            update={"client_id": f"dockbell-{secrets.token_hex(4)}", "status_topic": "", "discovery_prefix": None}
        )
