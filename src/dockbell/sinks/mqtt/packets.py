"""The packets of MQTT: the content of a PUBLISH and its size, and the meaning of a CONNACK."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, Final

import msgspec
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from dockbell.errors import SinkError, SinkRejected, SinkUnavailable

EVENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
STATE_TYPE: Final = "application/json"

_REPLAY_MARK: Final = ("dockbell-replay", "true")
MOST_REMAINING: Final = 268_435_455
"""The largest Remaining Length of a packet (MQTT 5.0, 1.5.5)."""
_VERSION_REFUSED: Final = 0x84
_RETAIN_REFUSED: Final = 0x9A
# Refusals that pass: unspecified, implementation specific, unavailable, busy, quota, connection rate.
_PASSING: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9F})


class Publication(msgspec.Struct, frozen=True):
    """The content of one PUBLISH."""

    topic: str
    payload: bytes
    content_type: str = ""
    retain: bool = False
    expiry: timedelta | None = None
    replayed: bool = False
    qos: int = 1


class Packed(Properties):
    """Properties that are packed once: paho packs them anew for each PUBLISH, at a fifth of its cost."""

    @cached_property
    def packed(self) -> bytes:
        return bytes(super().pack())  # type: ignore[no-untyped-call]  # paho's own are not typed

    def pack(self) -> bytes:
        return self.packed


def properties_of(publication: Publication, packet_type: int = PacketTypes.PUBLISH) -> Packed:
    """Return the properties that go with a publication, or with a will, in MQTT 5."""
    return _make_properties(publication.content_type, publication.expiry, packet_type, publication.replayed)


@cache
def _make_properties(content_type: str, expiry: timedelta | None, packet_type: int, replayed: bool) -> Packed:
    properties = Packed(packet_type)  # type: ignore[no-untyped-call]  # paho's own are not typed
    if content_type:
        properties.PayloadFormatIndicator = 1
        properties.ContentType = content_type
    if expiry is not None:
        properties.MessageExpiryInterval = int(expiry.total_seconds())
    if replayed:
        properties.UserProperty = _REPLAY_MARK
    return properties


def remaining_length(publication: Publication, properties: Packed | None) -> int:
    packed = 0 if properties is None else len(properties.packed)
    return 2 + len(publication.topic.encode()) + 2 + packed + len(publication.payload)


def packet_size(remaining: int) -> int:
    """Return the size of a packet by its Remaining Length, itself a number of one to four bytes (MQTT 5.0, 1.5.5)."""
    return 2 + sum(remaining >> bits > 0 for bits in (7, 14, 21)) + remaining


class Protocol(StrEnum):
    V5 = "5"
    V3 = "3.1.1"


class VersionRefused(SinkRejected):
    """The broker says that it does not speak this version of MQTT."""


class VersionUnclear(SinkUnavailable):
    """The broker accepts TCP, but does not answer a CONNECT in this version of MQTT, perhaps because of the version.

    It closed the connection without an answer (``is_closed``), or gave one that is not of this version
    (``is_answered``), or no answer came in time.
    """

    def __init__(self, message: str, *, is_closed: bool = False, is_answered: bool = False) -> None:
        super().__init__(message)
        self.is_closed = is_closed
        self.is_answered = is_answered


class RetainRefused(SinkRejected):
    """The broker retains nothing, and so refuses a retained will."""


def find_refusal(code: ReasonCode, properties: Any) -> SinkError | None:
    if code.is_failure:
        kind = {_VERSION_REFUSED: VersionRefused, _RETAIN_REFUSED: RetainRefused}.get(
            code.value, SinkUnavailable if code.value in _PASSING else SinkRejected
        )
        return kind(f"refused by the broker, {describe(code)}")
    if getattr(properties, "MaximumQoS", 1) == 0:
        return SinkRejected("the broker accepts only QoS 0, which does not confirm delivery")
    return None


def describe(code: ReasonCode) -> str:
    """Return a reason code for people, ``not authorized (0x87)``."""
    return f"{code.getName().lower()} (0x{code.value:02x})"
