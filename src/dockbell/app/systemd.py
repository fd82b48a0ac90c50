"""Tells the service manager that sets ``NOTIFY_SOCKET`` the state of the daemon, by the protocol of ``sd_notify(3)``.

A datagram holds lines ``NAME=value``. There is no answer, and a missing listener is no error: sending never raises.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final, Self

import anyio

_LOOK_EVERY: Final = timedelta(seconds=30)


class Supervisor:
    """Who started the daemon and watches over it.

    Args:
        address: The socket, as ``NOTIFY_SOCKET`` has it: a path, or ``@`` and an abstract name; empty for none.
        watchdog: The daemon is killed when it was silent for so long; None for never.
    """

    def __init__(self, address: str = "", watchdog: timedelta | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = watchdog

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the supervisor that ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` name, if any."""
        address, usec = environment.get("NOTIFY_SOCKET", ""), environment.get("WATCHDOG_USEC", "")
        is_meant = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
        watchdog = timedelta(microseconds=int(usec)) if is_meant and usec.isdigit() and int(usec) else None
        return cls(address if address.startswith(("/", "@")) else "", watchdog)

    def ready(self, words: str) -> None:
        """Tell that the daemon runs, or runs by a new configuration, and how it stands."""
        self._tell("READY=1", _status(words))

    def reloading(self) -> None:
        """Tell that a new configuration is being applied; :meth:`ready` tells the end of it, well or not."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, words: str) -> None:
        """Tell that the daemon ends, and what it still does."""
        self._tell("STOPPING=1", _status(words))

    async def watch(self, look: Callable[[], Awaitable[str]]) -> None:
        """Tell that all is well, and the status, at half the watchdog's time until cancelled; without one, return.

        Args:
            look: Returns how it stands in one line, after whatever must answer for that has answered. While it does
                not return, or raises, nothing is told.
        """
        if not self._address:
            return
        every = min(_LOOK_EVERY, self._watchdog / 2) if self._watchdog else _LOOK_EVERY
        while True:
            with suppress(Exception):  # the watchdog is who judges it
                self._tell(*(["WATCHDOG=1"] if self._watchdog else []), _status(await look()))
            await anyio.sleep(every.total_seconds())

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)  # a manager that does not read must not stop the daemon
            sock.sendto("\n".join(lines).encode(), self._address)


def _status(words: str) -> str:
    # A line of its own would be a command: MAINPID=1.
    return "STATUS=" + " ".join("".join(each if each.isprintable() else " " for each in words).split())
