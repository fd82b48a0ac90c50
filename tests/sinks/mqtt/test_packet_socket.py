"""What comes from a broker, split between the connection and paho, whatever pieces the network makes of it."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dockbell.sinks.mqtt.packet_socket import PacketSocket
from dockbell.sinks.mqtt.packets import (
    Answer,
    Protocol,
    Publication,
    encode_publish,
    pack_properties,
    packet_size,
    remaining_length,
)
from tests.sinks.mqtt.handmade import PINGRESP, packet

PUBACK, PUBREC, PUBCOMP = 0x40, 0x50, 0x70
FAR: Final = 1 << 20


class Pair:
    """A connection over TCP, one end of which a client has."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            own = socket.create_connection(server.getsockname())
            self.far, _ = server.accept()
        self._own = own
        own.settimeout(0)
        self.socket = PacketSocket(own)

    def bring(self, *pieces: bytes) -> tuple[list[Answer], bytes]:
        """Send pieces to the client, one after the other; return the answers that it gets, and what paho reads."""
        answers, read = list[Answer](), b""
        for piece in pieces:
            self.far.sendall(piece)
            left = len(piece)
            while left:
                left -= len(self._wait_for(left))
                for part in self.socket.receive():
                    if isinstance(part, Answer):
                        answers.append(part)
                    else:
                        self.socket.give_paho(part)
                        read += self.socket.recv(FAR)
        return answers, read

    def _wait_for(self, most: int) -> bytes:
        """Wait until something is there, and return it; it is still there afterwards."""
        self._own.settimeout(5)
        try:
            return self._own.recv(min(most, 65_536), socket.MSG_PEEK)
        finally:
            self._own.settimeout(0)

    def reset(self) -> None:
        """Let the other side end the connection with a reset, and wait until that has come."""
        self.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.far.close()
        assert select.select([self._own], [], [], 5)[0]

    def close(self) -> None:
        self.socket.close()
        self.far.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (packet(4, b"\x80\x01"), Answer(PUBACK, 0x8001, 0)),
        (packet(4, b"\x80\x01\x10"), Answer(PUBACK, 0x8001, 0x10)),
        (packet(4, b"\x80\x01\x97\x00"), Answer(PUBACK, 0x8001, 0x97)),
        (packet(4, b"\x80\x01\x97\x80\x02\x1f\x00\xfd" + b"x" * 253), Answer(PUBACK, 0x8001, 0x97)),
        (packet(5, b"\x80\x02"), Answer(PUBREC, 0x8002, 0)),
        (packet(7, b"\x80\x02\x92"), Answer(PUBCOMP, 0x8002, 0x92)),
    ],
)
def test_an_answer_is_read_with_its_packet_id_and_its_reason(pair: Pair, data: bytes, answer: Answer) -> None:
    assert pair.bring(data) == ([answer], b"")


@pytest.mark.parametrize(
    "data",
    [
        packet(2, b"\0\0\0"),
        packet(3, b"\0\1t" + b"x" * 200_000),
        packet(4, b"\x80"),  # too short
        packet(4, b"\x80\x01" + b"x" * 2_000_000),  # too long to wait for
        b"\x40\xff\xff\xff\xff\xff" + b"x" * 100,  # no length
        packet(PINGRESP),
    ],
)
def test_all_else_is_for_paho(pair: Pair, data: bytes) -> None:
    pair.far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
    assert pair.bring(*(data[start : start + 50_000] for start in range(0, len(data), 50_000))) == ([], data)


ANSWERS: Final = st.builds(
    lambda kind, packet_id, code: (
        packet(kind >> 4, struct.pack("!HBB", packet_id, code, 0)),
        Answer(kind, packet_id, code),
    ),
    st.sampled_from([PUBACK, PUBREC, PUBCOMP]),
    st.integers(1, 0xFFFF),
    st.integers(0, 0xFF),
)
OTHERS: Final = st.builds(
    lambda kind, body: (packet(kind, body), None),
    st.sampled_from([2, 3, 9, 11, 13, 14]),
    st.binary(max_size=300),
)


@given(packets=st.lists(ANSWERS | OTHERS, min_size=1), cuts=st.lists(st.integers(0, 2000)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_it_does_not_matter_into_what_pieces_packets_are_cut(
    pair: Pair, packets: list[tuple[bytes, Answer | None]], cuts: list[int]
) -> None:
    stream = b"".join(data for data, _ in packets)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert pair.bring(*pieces) == (
        [answer for _, answer in packets if answer is not None],
        b"".join(data for data, answer in packets if answer is None),
    )


def test_the_end_is_for_paho_to_read_after_all_that_came_before(pair: Pair) -> None:
    assert pair.bring(packet(4, b"\0\1") + packet(14)) == ([Answer(PUBACK, 1, 0)], packet(14))
    with pytest.raises(BlockingIOError):
        pair.socket.recv(1)
    pair.far.close()
    pair._wait_for(1)
    assert pair.socket.receive() == [b""]
    pair.socket.give_paho(b"")
    assert pair.socket.has_news_for_paho
    assert pair.socket.recv(1) == b""


def test_a_pingresp_is_not_made_up_within_another_packet(pair: Pair) -> None:
    begun, rest = packet(3, b"\0\1t123")[:4], packet(3, b"\0\1t123")[4:]
    assert pair.bring(begun) == ([], begun)
    pair.socket.give_paho_pingresp()
    assert not pair.socket.has_news_for_paho
    assert pair.bring(rest) == ([], rest)
    pair.socket.give_paho_pingresp()
    assert pair.socket.recv(FAR) == packet(PINGRESP)


def test_what_is_sent_waits_and_goes_out_together(pair: Pair) -> None:
    assert pair.socket.send(b"one ") == 4
    assert pair.socket.send(b"two") == 3
    assert select.select([pair.far], [], [], 0)[0] == []
    pair.socket.flush()
    assert pair.socket.has_sent_all
    assert pair.far.recv(len("one two"), socket.MSG_WAITALL) == b"one two"


def test_what_was_sent_last_can_go_out_after_paho_has_closed(pair: Pair) -> None:
    pair.socket.send(b"goodbye")
    pair.socket.outlives_paho = True
    pair.socket.close()
    pair.socket.flush()
    pair.socket.outlives_paho = False
    pair.socket.close()
    assert pair.far.recv(100, socket.MSG_WAITALL) == b"goodbye"
    assert not pair.socket.is_open
    assert pair.socket.receive() == []


def test_a_connection_that_is_given_up_sends_nothing_more(pair: Pair) -> None:
    pair.socket.send(b"once more")
    pair.socket.close()
    assert pair.far.recv(100, socket.MSG_WAITALL) == b""


def test_what_the_network_does_not_take_at_once_goes_out_later(pair: Pair) -> None:
    data = bytes(range(256)) * 100_000
    pair.socket.send(data)
    pair.socket.flush()
    assert pair.socket.waits_to_write
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(pair.far.recv, len(data), socket.MSG_WAITALL)
        while not pair.socket.has_sent_all:
            select.select([], [pair.socket], [], 5)
            pair.socket.flush()
        assert got.result(5) == data
    assert not pair.socket.waits_to_write


def test_after_the_other_side_has_gone_the_loss_is_told(pair: Pair) -> None:
    pair.reset()
    pair.socket.send(b"x")
    with pytest.raises(ConnectionError):
        pair.socket.flush()


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("size", [0, 100, 113, 114, 16_000, 17_000])
def test_a_publication_has_the_size_that_was_foretold(size: int, protocol: Protocol) -> None:
    publication = Publication("dockbell/\N{WHITE FROWNING FACE}", b"x" * size, "text/plain", retain=True)
    properties = pack_properties(publication, protocol)
    encoded = encode_publish(publication, 0x8000, 1, properties)
    assert len(encoded) == packet_size(remaining_length(publication, properties))
    assert len(encode_publish(publication, 0x8000, 0, properties)) in (len(encoded) - 2, len(encoded) - 3)
