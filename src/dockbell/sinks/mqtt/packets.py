"""The packets of MQTT: the content of a PUBLISH and its size, and the meaning of a CONNACK."""

from __future__ import annotations

import sys
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

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
PUBLISH: Final = 0x30
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBCOMP: Final = 0x70
"""The first byte of packets (MQTT 5.0, 2.1.2)."""
_MORE_FOLLOWS: Final = 0x80
"""The bit of each byte of a length but the last."""
_LENGTH_SIZE_MOST: Final = 4
FAILURES_FROM: Final = 0x80
"""Reason codes from here on say that something failed (MQTT 5.0, 2.4)."""
_ID_SIZE: Final = 2
_ID_NOT_FOUND: Final = 0x92  # in a PUBCOMP alone
_VERSION_REFUSED: Final = 0x84
_RETAIN_REFUSED: Final = 0x9A
# Refusals that pass: unspecified, implementation specific, unavailable, busy, quota, connection rate.
_PASSING: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9F})


class Protocol(StrEnum):
    V5 = "5"
    V3 = "3.1.1"


class Publication(msgspec.Struct, frozen=True):
    """The content of one PUBLISH."""

    topic: str
    payload: bytes
    content_type: str = ""
    retain: bool = False
    expiry: timedelta | None = None
    replayed: bool = False
    qos: int = 1


class Length(NamedTuple):
    value: int
    size: int
    """The bytes that it takes itself."""


class Answer(NamedTuple):
    """A PUBACK, PUBREC or PUBCOMP."""

    kind: int
    packet_id: int
    code: int


def make_will_properties(will: Publication) -> Properties:
    """Return the properties that go with a will in MQTT 5."""
    return _make_properties(will.content_type, will.expiry, PacketTypes.WILLMESSAGE, will.replayed)


def pack_properties(publication: Publication, protocol: Protocol) -> bytes:
    """Return the properties of a PUBLISH as they are sent, with their length; MQTT 3.1.1 has none."""
    if protocol is Protocol.V3:
        return b""
    return _pack_properties(publication.content_type, publication.expiry, publication.replayed)


@cache
def _pack_properties(content_type: str, expiry: timedelta | None, replayed: bool) -> bytes:
    properties = _make_properties(content_type, expiry, PacketTypes.PUBLISH, replayed)
    return bytes(properties.pack())  # type: ignore[no-untyped-call]  # paho's own are not typed


def _make_properties(content_type: str, expiry: timedelta | None, packet_type: int, replayed: bool) -> Properties:
    properties = Properties(packet_type)  # type: ignore[no-untyped-call]  # paho's own are not typed
    if content_type:
        properties.PayloadFormatIndicator = 1
        properties.ContentType = content_type
    if expiry is not None:
        properties.MessageExpiryInterval = int(expiry.total_seconds())
    if replayed:
        properties.UserProperty = _REPLAY_MARK
    return properties


def remaining_length(publication: Publication, properties: bytes) -> int:
    return 2 + len(publication.topic.encode()) + 2 + len(properties) + len(publication.payload)


def packet_size(remaining: int) -> int:
    """Return the size of a packet by its Remaining Length, itself a number of one to four bytes (MQTT 5.0, 1.5.5)."""
    return 2 + sum(remaining >> bits > 0 for bits in (7, 14, 21)) + remaining


def encode_publish(publication: Publication, packet_id: int, qos: int, properties: bytes) -> bytes:
    """Return a PUBLISH (MQTT 5.0, 3.3); with QoS 0 it bears no packet id."""
    topic = publication.topic.encode()
    number = packet_id.to_bytes(2, "big") if qos else b""
    remaining = 2 + len(topic) + len(number) + len(properties) + len(publication.payload)
    head = bytes([PUBLISH | qos << 1 | publication.retain]) + _encode_length(remaining)
    return b"".join([head, len(topic).to_bytes(2, "big"), topic, number, properties, publication.payload])


def encode_pubrel(packet_id: int) -> bytes:
    """Return the PUBREL that answers a PUBREC (MQTT 5.0, 3.6)."""
    return b"\x62\x02" + packet_id.to_bytes(2, "big")


def parse_answer(kind: int, body: bytes | bytearray) -> Answer | None:
    """Return what a packet answers after its fixed header; None where it is malformed.

    Without a reason code, as always in MQTT 3.1.1, it is a success (MQTT 5.0, 3.4.2.1).
    """
    if len(body) < _ID_SIZE:
        return None
    return Answer(kind, body[0] << 8 | body[1], body[_ID_SIZE] if len(body) > _ID_SIZE else 0)


def parse_length(data: bytes | bytearray, start: int) -> Length | None:
    """Return the Remaining Length that begins there (MQTT 5.0, 1.5.5); None where more of it must come first.

    One of more than four bytes is malformed: nothing of what follows it can be told apart, and it has no end.
    """
    value = 0
    for size in range(1, _LENGTH_SIZE_MOST + 1):
        if start + size > len(data):
            return None
        byte = data[start + size - 1]
        value += byte % _MORE_FOLLOWS << 7 * (size - 1)
        if byte < _MORE_FOLLOWS:
            return Length(value, size)
    return Length(sys.maxsize, size)


def _encode_length(remaining: int) -> bytes:
    encoded = bytearray()
    while remaining >= _MORE_FOLLOWS:
        encoded.append(remaining % _MORE_FOLLOWS | _MORE_FOLLOWS)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


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


def describe_answer(code: int) -> str:
    """Return the reason code of an answer to a publication for people; one that MQTT does not know is a number."""
    kind = PacketTypes.PUBCOMP if code == _ID_NOT_FOUND else PacketTypes.PUBACK
    try:
        return describe(ReasonCode(kind, identifier=code))
    except (KeyError, ValueError):
        return f"reason code 0x{code:02x}"
