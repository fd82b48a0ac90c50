"""Has messages sent by a process of its own, which ends when none is to be sent."""

from __future__ import annotations

import sys
from typing import Final

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from dockbell.config import Secret
from dockbell.errors import ConfigError
from dockbell.sinks.alert import sending
from dockbell.sinks.alert.sending import Answer, Message
from dockbell.sinks.alert.text import Text

_COMMAND: Final = (sys.executable, "-P", sending.__file__)
"""By its path, without dockbell around it: it begins 0.3 s sooner."""
_GRACE: Final = 5.0
"""Seconds that the process has to begin, beside the time for a message."""
_ANSWER_MOST: Final = 65_536


class Sender:
    """Sends messages, one after the other, to what a URL names."""

    def __init__(self, url: Secret, seconds: float) -> None:
        self._url = url
        self._seconds = seconds
        self._process: Process | None = None

    async def send(self, text: Text) -> Answer:
        """Send a message; without a title it only connects to the service."""
        answer: Answer | None = None
        try:
            message = Message(self._url.reveal(), *text, self._seconds)
            with anyio.fail_after(self._seconds + _GRACE):
                answer = await self._ask(message)
        except TimeoutError:
            return Answer(is_reached=False, reason=f"no answer within {self._seconds:g} s")
        except ConfigError as error:  # the secret cannot be read now
            return Answer(is_reached=False, reason=str(error))
        except (OSError, msgspec.DecodeError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            return Answer(reason="the process that sends alerts ended")
        else:
            return answer
        finally:
            if answer is None:  # what the process does next is unknown
                await self.aclose()

    async def aclose(self) -> None:
        """End the process, whatever it does; the next message begins another."""
        process, self._process = self._process, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                process.kill()
                await process.aclose()

    async def _ask(self, message: Message) -> Answer:
        if self._process is None:
            self._process = await anyio.open_process(_COMMAND, stderr=None)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        await self._process.stdin.send(msgspec.json.encode(message, enc_hook=str) + b"\n")
        line = await BufferedByteReceiveStream(self._process.stdout).receive_until(b"\n", _ANSWER_MOST)
        return msgspec.json.decode(line, type=Answer)
