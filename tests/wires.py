"""A socket between a client and a PostgreSQL of the tests: counts what the client sends, and can lose an answer."""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_SOCKET: Final = ".s.PGSQL.5432"
_CHUNK: Final = 65_536
_ENDS: Final = "SQ"
"""Sync and Query, as the documentation of the protocol of PostgreSQL has them: what a client sends before it waits."""
_DONE: Final = "EQ"
"""Execute and Query."""
_PARSE: Final = 6
"""Bytes of a Parse message before its statement."""


class Wire:
    """Passes on what is sent between clients and a server.

    Attributes:
        sent: How many messages of each type clients have sent.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.folder = folder
        self.sent = Counter[str]()
        self._server = server
        self._lost: tuple[bytes, float] | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _SOCKET))
        self._listener.listen()
        self._ends: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def lead(self, url: str) -> str:
        """Return the URL of a database by this wire."""
        return url.replace(str(self._server), str(self.folder))

    @property
    def trips(self) -> int:
        """How often clients have waited for an answer."""
        return sum(self.sent[kind] for kind in _ENDS)

    @property
    def statements(self) -> int:
        return sum(self.sent[kind] for kind in _DONE)

    def lose_answer(self, after: float = 0, since: str = "COMMIT") -> None:
        """End the connection of the client that commits next.

        The server gets what was sent since a statement some seconds after that.
        """
        self._lost = since.encode(), after

    def close(self) -> None:
        for each in self._ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server / _SOCKET))
            self._ends += client, server
            threading.Thread(target=self._pass_to_server, args=(client, server), daemon=True).start()
            threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()

    def _pass_to_server(self, client: socket.socket, server: socket.socket) -> None:
        messages, held = _Messages(), b""
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                kinds = messages.take(data)
                self.sent.update(kinds)
                if self._lost is None:
                    server.sendall(data)
                    continue
                since, after = self._lost
                held += data
                start = held.find(since) - _PARSE
                if b"COMMIT" in held:
                    self._lost = None
                    client.shutdown(socket.SHUT_RDWR)  # first: the server may refuse what comes before at once
                    server.sendall(held[:start])
                    time.sleep(after)
                    server.sendall(held[start:])
                    break
                if start < 0 and {*kinds} & {*_ENDS}:  # else more comes: the server must not refuse the first part yet
                    server.sendall(held)
                    held = b""
            server.shutdown(socket.SHUT_WR)


class _Messages:
    """Finds the messages in what a client sends; the first has no type."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_begun = False

    def take(self, data: bytes) -> list[str]:
        """Return the types of the messages that begin in what has come."""
        self._rest += data
        kinds = []
        while len(self._rest) >= 4 + self._is_begun:
            (size,) = struct.unpack_from("!i", self._rest, self._is_begun)
            if len(self._rest) < size + self._is_begun:
                break
            if self._is_begun:
                kinds.append(chr(self._rest[0]))
            self._rest = self._rest[size + self._is_begun :]
            self._is_begun = True
        return kinds


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(_CHUNK):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


@contextmanager
def wired(server: Path) -> Iterator[Wire]:
    """Return a wire to the server whose socket is in a folder."""
    folder = Path(tempfile.mkdtemp(prefix="dockbell-wire-"))  # short, as that of the server
    wire = Wire(folder, server)
    try:
        yield wire
    finally:
        wire.close()
        shutil.rmtree(folder)
