"""The socket of one connection, between the network and paho.

Publications and the answers to them do not go through paho: it would write each by itself, read each answer in three
parts and make objects of them, which costs as much as all the rest of a delivery. Here publications wait for a moment
and go out together; then their answers come together, too.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from paho.mqtt import client as paho

from dockbell.sinks.mqtt.packets import MORE_FOLLOWS, Answer, parse_answer

_READ_AT_ONCE: Final = 65_536
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
_ANSWERS: Final = frozenset({0x40, 0x50, 0x70})  # PUBACK, PUBREC, PUBCOMP
_PINGRESP: Final = b"\xd0\0"
_ANSWER_MOST: Final = 1024 * 1024
_WITHOUT_END: Final = 1 << 62
_LENGTH_BYTES_MOST: Final = 4


class Transport(Protocol):
    """What paho has connected: TCP, TLS, or a WebSocket over one of these."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes | bytearray, /) -> int: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...


class Client(paho.Client):
    """A client of paho's whose socket is a :class:`PacketSocket`."""

    def _create_socket(self) -> PacketSocket:
        return PacketSocket(super()._create_socket())


class _Header(NamedTuple):
    size: int
    """Of the fixed header (MQTT 5.0, 2.1.1)."""
    remaining: int


class PacketSocket:
    """The socket that paho uses: what it sends goes out at once, what others queue with the next :meth:`flush`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # A WebSocket shows the number of the socket alone; a second one has its options.
        self._options = (
            transport if isinstance(transport, socket.socket) else socket.socket(fileno=os.dup(transport.fileno()))
        )
        self._options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # What TLS has decrypted, and the rest of a WebSocket's frame, no selector sees.
        self._hides_bytes = self._options is not transport or isinstance(transport, ssl.SSLSocket)
        self._unsent = bytearray()
        self._received = bytearray()  # the beginning of a packet
        self._passing = 0  # how many bytes of a packet that paho is to read have not come yet
        self._for_paho = bytearray()
        self._is_over = False

    # For paho ---------------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        if not self._for_paho and not self._is_over:
            raise BlockingIOError
        data = bytes(self._for_paho[:size])
        del self._for_paho[:size]
        return data

    def send(self, data: bytes | bytearray) -> int:
        self.queue(data)
        self.flush()
        return len(data)

    def close(self) -> None:
        self._unsent.clear()
        self._transport.close()
        self._options.close()

    def fileno(self) -> int:
        return self._transport.fileno()

    def setblocking(self, flag: bool) -> None:
        self._transport.setblocking(flag)

    # For Connection ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.fileno() >= 0

    @property
    def has_news_for_paho(self) -> bool:
        return bool(self._for_paho) or self._is_over

    def queue(self, data: bytes | bytearray) -> None:
        """Send something with the next :meth:`flush`."""
        self._unsent += data

    def flush(self) -> bool:
        """Send what waits; return whether all of it went out; raises OSError where the connection is lost."""
        unsent = self._unsent
        with suppress(*_NOT_NOW):
            while unsent and (sent := self._transport.send(unsent)):
                del unsent[:sent]
        return not unsent

    def receive(self) -> Iterator[Answer | None]:
        """Read what has come; yield in its order each answer to a publication, and None where paho is to read.

        The end of the connection is for paho to read, too.
        """
        is_more = True
        while is_more and self.is_open:
            try:
                data = self._transport.recv(_READ_AT_ONCE)
            except _NOT_NOW:
                is_more = bool(self._count_pending())
                continue
            except OSError:
                data = b""
            if not data:
                self._is_over = True
                yield None
                return
            yield from self._split(data)
            is_more = self._hides_bytes

    def add_pingresp(self) -> None:
        """Let paho read that the broker is there, unless it is in the middle of a packet."""
        if not (self._passing or self._for_paho):
            self._for_paho += _PINGRESP

    def acknowledge_at_once(self) -> None:
        """Let the kernel acknowledge what was received; it takes that as a hint, and forgets it.

        Else a broker with Nagle's algorithm holds answers back until we acknowledge, 40 ms later, the ones before.
        """
        if _QUICK_ACK is not None and self.is_open:
            self._options.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _count_pending(self) -> int:
        """Return how many bytes TLS has decrypted that were not read yet."""
        pending = getattr(self._transport, "pending", int)
        return int(pending())

    def _split(self, data: bytes) -> Iterator[Answer | None]:
        self._received += data
        received, start, end = self._received, 0, len(self._received)
        while start < end:
            if self._passing:
                passed = min(self._passing, end - start)
                self._for_paho += received[start : start + passed]
                self._passing -= passed
                start += passed
                yield None
                continue
            header = _parse_header(received, start)
            if header is None:
                break
            whole = header.size + header.remaining
            if received[start] in _ANSWERS and header.remaining <= _ANSWER_MOST:
                if whole > end - start:
                    break
                answer = parse_answer(received[start], received[start + header.size : start + whole])
                if answer is not None:
                    start += whole
                    yield answer
                    continue
            self._passing = whole
        del received[:start]


def _parse_header(received: bytearray, start: int) -> _Header | None:
    """Return the fixed header that begins there; None where more must come before it can be told."""
    remaining = 0
    for index in range(_LENGTH_BYTES_MOST):
        if start + 1 + index >= len(received):
            return None
        byte = received[start + 1 + index]
        remaining += byte % MORE_FOLLOWS << (7 * index)
        if byte < MORE_FOLLOWS:
            return _Header(2 + index, remaining)
    return _Header(0, _WITHOUT_END)  # not MQTT, which paho notices
