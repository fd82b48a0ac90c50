"""The socket of one connection, between the network and paho.

Publications and the answers to them do not go through paho: it would write each by itself, read each answer in three
parts and make objects of them, which costs as much as all the rest of a delivery. Here publications wait for a moment
and go out together; then their answers come together, too.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from paho.mqtt import client as paho

from dockbell.sinks.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Answer, parse_answer, parse_length

_READ_AT_ONCE: Final = 65_536
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
_ANSWERS: Final = frozenset({PUBACK, PUBREC, PUBCOMP})
_ANSWER_MOST: Final = 1024 * 1024
_PINGRESP: Final = b"\xd0\0"
_FRAME_MOST: Final = 65_536
_FRAMES_AT_ONCE: Final = 20


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


class PacketSocket:
    """The socket that paho uses. What it sends waits for :meth:`flush`; it reads what :meth:`give_paho` was given."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # A WebSocket shows the number of the socket alone; a second one has its options.
        self._options = (
            transport if isinstance(transport, socket.socket) else socket.socket(fileno=os.dup(transport.fileno()))
        )
        self._options.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_web = self._options is not transport
        self.outlives_paho = False  # paho closes as soon as DISCONNECT waits; the connection closes later
        self._unsent = bytearray()
        self._is_in_frame = False  # a part of a WebSocket's frame is sent
        self._must_read = False  # TLS sends nothing before it has read something
        self._begun = bytearray()  # a packet of which not enough has come to tell whose it is
        self._missing = 0  # how many bytes of a packet of paho's have not come yet
        self._for_paho = bytearray()
        self._is_ended = False

    # For paho ---------------------------------------------------------------------------------------------------------

    def recv(self, size: int) -> bytes:
        if not self._for_paho and not self._is_ended:
            raise BlockingIOError
        data = bytes(self._for_paho[:size])
        del self._for_paho[:size]
        return data

    def send(self, data: bytes | bytearray) -> int:
        self._unsent += data
        return len(data)

    def close(self) -> None:
        if not self.outlives_paho:
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
    def has_sent_all(self) -> bool:
        return not self._unsent

    @property
    def waits_to_write(self) -> bool:
        """Whether :meth:`flush` could go on once the network takes more."""
        return bool(self._unsent) and not self._must_read

    @property
    def is_readable(self) -> bool:
        """Whether reading disturbs nothing: paho answers a ping of a WebSocket even in the middle of our frame."""
        return self.is_open and (self._must_read or not self._is_in_frame)

    @property
    def hides_bytes(self) -> bool:
        """Whether there is something to be read that no selector sees: TLS has decrypted it already."""
        pending: Callable[[], int] = getattr(self._transport, "pending", int)
        return self.is_readable and pending() > 0

    @property
    def has_news_for_paho(self) -> bool:
        return bool(self._for_paho) or self._is_ended

    def flush(self) -> None:
        """Send as much of what waits as the network takes; raises OSError where the connection is lost."""
        unsent, self._must_read = self._unsent, False
        try:
            if self._is_web:
                self._send_frame()
            else:
                while unsent:
                    del unsent[: self._transport.send(unsent)]
        except ssl.SSLWantReadError:
            self._must_read = True
        except _NOT_NOW:
            pass
        except OSError:
            self._is_in_frame = False  # it will never be whole
            raise

    def _send_frame(self) -> None:
        """Send one frame, or what is left of one: each byte is masked in Python, which must not hold up others."""
        if self._unsent:
            self._is_in_frame = True  # also where it blocks
            sent = self._transport.send(self._unsent[:_FRAME_MOST])  # 0 where a part went out
            del self._unsent[:sent]
            self._is_in_frame = not sent

    def receive(self) -> list[Answer | bytes]:
        """Read what has come; return in its order the answers to publications, and what is for paho to read.

        It is empty where nothing has come. The end of the connection is ``b""``, and for paho, too.
        """
        received: list[Answer | bytes] = []
        size, frames = 0, _FRAMES_AT_ONCE if self._is_web else 1  # of a WebSocket, each reading returns one frame
        while frames and size < _READ_AT_ONCE and self.is_readable:
            frames -= 1
            try:
                data = self._transport.recv(_READ_AT_ONCE - size)
            except _NOT_NOW:
                break
            except OSError:
                data = b""
            if not data:
                return [*received, b""]
            received += self._split(data)
            size += len(data)
        return received

    def give_paho(self, data: bytes) -> None:
        """Let paho read something; nothing is the end of the connection."""
        self._is_ended |= not data
        self._for_paho += data

    def give_paho_pingresp(self) -> None:
        """Let paho read a PINGRESP that the broker has not sent; not where it has read a part of another packet."""
        if not (self._missing or self._for_paho):
            self._for_paho += _PINGRESP

    def acknowledge_at_once(self) -> None:
        """Let the kernel acknowledge what was received; it takes that as a hint, and forgets it.

        Else a broker with Nagle's algorithm holds answers back until we acknowledge, 40 ms later, the ones before.
        """
        if _QUICK_ACK is not None and self.is_open:
            self._options.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _split(self, data: bytes) -> Iterator[Answer | bytes]:
        """Yield the answers in what was received, and what of it is for paho."""
        self._begun += data
        received, self._begun = self._begun, bytearray()
        start, end = 0, len(received)
        while start < end:
            if self._missing:
                passed = received[start : start + self._missing]
                self._missing -= len(passed)
                start += len(passed)
                yield bytes(passed)
                continue
            length = parse_length(received, start + 1)
            if length is None:
                break
            body = start + 1 + length.size
            after = body + length.value
            if received[start] in _ANSWERS and length.value <= _ANSWER_MOST:
                if after > end:
                    break
                answer = parse_answer(received[start], received[body:after])
                if answer is not None:
                    start = after
                    yield answer
                    continue
            self._missing = after - start
        self._begun = received[start:]
