"""The program of a process that evaluates conditions which may take long: ``python -m dockbell.condition.worker``.

A request on standard input is its deadline in seconds, two lengths, a text and the values of its variables as JSON;
the name of the answer and a line break come back on standard output. The first line says that it is ready.

The process ends when its input does. It ends itself a second after a deadline, in case the daemon, which would kill it
then, has died.
"""

from __future__ import annotations

import signal
import struct
import sys
from contextlib import suppress
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from dockbell.condition.evaluation import Answer, compile_text, evaluate, make_context

if TYPE_CHECKING:
    import cel

_HEAD: Final = struct.Struct("<dII")
_MEMORY_MOST: Final = 512 * 1024 * 1024
_GRACE: Final = 1.0


def write_request(pipe: IO[bytes], seconds: float, text: str, values: bytes) -> None:
    """Ask what an expression says of some values: a JSON object with a member for each variable."""
    encoded = text.encode()
    pipe.write(_HEAD.pack(seconds, len(encoded), len(values)) + encoded + values)
    pipe.flush()


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    answers.write(b"\n")
    answers.flush()
    while len(head := requests.read(_HEAD.size)) == _HEAD.size:
        seconds, text_length, values_length = _HEAD.unpack(head)
        signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE)
        answer = _answer(requests.read(text_length).decode(), requests.read(values_length))
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(f"{answer.name}\n".encode())
        answers.flush()


def _answer(text: str, values: bytes) -> Answer:
    return evaluate(_compile(text), lambda: make_context(msgspec.json.decode(values, type=dict[str, Any])))


@lru_cache(maxsize=100)
def _compile(text: str) -> cel.Program:
    return compile_text(text)


def _confine() -> None:
    """Bound what the process may use; from now on it opens nothing."""
    import resource  # noqa: PLC0415  # this process alone does so

    for limit, most in ((resource.RLIMIT_AS, _MEMORY_MOST), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        with suppress(OSError, ValueError):  # where the system refuses, the deadline still holds
            resource.setrlimit(limit, (most, most))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, it is meant for the daemon


if __name__ == "__main__":
    make_context({})  # loads the library, before its time is taken
    _confine()
    serve(sys.stdin.buffer, sys.stdout.buffer)
