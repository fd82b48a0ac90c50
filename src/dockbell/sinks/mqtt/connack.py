"""The meaning of a CONNACK."""

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
    """The broker accepts TCP, but does not answer a CONNECT in this version of MQTT, perhaps because of the version.

    Attributes:
        is_closed: The broker closed the connection without an answer, perhaps for another reason.
        is_answered: The answer is not of this version. If neither is true, no answer came in time.
    """

    def __init__(self, message: str, *, is_closed: bool = False, is_answered: bool = False) -> None:
        super().__init__(message)
        self.is_closed = is_closed
        self.is_answered = is_answered


class RetainRefused(SinkRejected):
    """The broker retains nothing, and so refuses a retained will."""


def find_refusal(code: ReasonCode, properties: Any) -> SinkError | None:
    """Return the error that a CONNACK means; None where it accepts us."""
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
