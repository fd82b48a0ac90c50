"""What a broker's answer to a CONNECT means."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from paho.mqtt.reasoncodes import ReasonCode

from dockbell.errors import SinkError, SinkRejected, SinkUnavailable

_VERSION_REFUSED: Final = 0x84
_RETAIN_REFUSED: Final = 0x9A
# Refusals that pass: unspecified, implementation specific, unavailable, busy, quota, connection rate.
_PASSING: Final = frozenset({0x80, 0x83, 0x88, 0x89, 0x97, 0x9F})


class Protocol(StrEnum):
    """The versions of MQTT that are spoken."""

    V5 = "5"
    V3 = "3.1.1"


class VersionRefused(SinkRejected):
    """The broker says that it does not speak this version of MQTT."""


class VersionUnclear(SinkUnavailable):
    """Somebody listens, but does not greet us in this version of MQTT: perhaps because of it.

    Attributes:
        is_closed: The connection was closed without a word, which may well have another reason.
        is_answered: Something came, which is nothing that this version knows; without either, nothing came in time.
    """

    def __init__(self, message: str, *, is_closed: bool = False, is_answered: bool = False) -> None:
        super().__init__(message)
        self.is_closed = is_closed
        self.is_answered = is_answered


class RetainRefused(SinkRejected):
    """The broker retains nothing, and so takes no will that is to be retained."""


def find_refusal(code: ReasonCode, properties: Any) -> SinkError | None:
    """Return what is to be raised for a CONNACK; None where it is a welcome."""
    if code.is_failure:
        kind = {_VERSION_REFUSED: VersionRefused, _RETAIN_REFUSED: RetainRefused}.get(
            code.value, SinkUnavailable if code.value in _PASSING else SinkRejected
        )
        return kind(f"refused by the broker, {describe(code)}")
    if getattr(properties, "MaximumQoS", 1) == 0:
        return SinkRejected("the broker takes publications of QoS 0 only; nothing could be proven to arrive")
    return None


def describe(code: ReasonCode) -> str:
    """Return a reason code for people, ``not authorized (0x87)``."""
    return f"{code.getName().lower()} (0x{code.value:02x})"
