"""Evaluates conditions that may take long in a child process, which is killed at a deadline.

So a condition takes a second at most, whatever the record holds, and blocks nothing else meanwhile. A condition that
runs out of time is :attr:`Answer.COSTLY`: it counts as a yes, so that the event is sent rather than lost.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from hashlib import blake2b
from typing import IO, Final

import anyio.lowlevel
import anyio.to_thread

from dockbell.condition.worker import write_request
from dockbell.config import Answer, Expression, Facts
from dockbell.core.model import Event
from dockbell.core.publishing.filters import Filter

DEADLINE: Final = timedelta(seconds=1)
"""How long a condition may take for one change."""
_START: Final = timedelta(seconds=10)
_REMEMBERED: Final = 1000
_LARGE: Final = 8192
"""Bytes of an event whose filters may take milliseconds; the event loop runs other tasks after it."""
_BURST: Final = timedelta(seconds=5)
_SHARE: Final = 0.2


class Evaluator(ABC):
    """Evaluates conditions: quick ones at once, costly ones as a subclass does."""

    @abstractmethod
    def evaluate_costly(self, expression: Expression, facts: Facts) -> Answer:
        """Return the answer of a condition that may take long; never raises."""

    def evaluate(self, expression: Expression, facts: Facts) -> Answer:
        """Return the answer of a condition; never raises, and blocks as long as :meth:`evaluate_costly` does."""
        answer = expression.evaluate(facts)
        return answer if answer is not Answer.COSTLY else self.evaluate_costly(expression, facts)

    async def evaluate_event(self, passing: Filter, event: Event, *, is_told: bool = False) -> Answer:
        """Return what :meth:`Filter.evaluate` does, without blocking the event loop."""
        answer = passing.evaluate(event, is_told=is_told)
        if answer is not Answer.COSTLY:
            if len(event.body) > _LARGE:
                await anyio.lowlevel.checkpoint()
            return answer
        evaluate = partial(passing.evaluate, event, is_told=is_told, evaluate=self.evaluate)
        return await anyio.to_thread.run_sync(evaluate, abandon_on_cancel=True)

    async def evaluate_aside(self, expression: Expression, facts: Facts) -> Answer:
        """Return what :meth:`evaluate` does, without blocking the event loop."""
        return await anyio.to_thread.run_sync(self.evaluate, expression, facts, abandon_on_cancel=True)


class ProcessEvaluator(Evaluator):
    """Evaluates costly conditions in a child process, one at a time; after ``deadline`` they are :attr:`Answer.COSTLY`.

    The process is started when it is first needed, and again after it was killed. It gets one expression and the values
    of its variables, but no environment, files or secrets. It ends with this process, however that ends.
    """

    def __init__(self, deadline: timedelta = DEADLINE) -> None:
        self.deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._known: OrderedDict[bytes, Answer] = OrderedDict()
        """Answers of the process, since each attempt to deliver an event evaluates its filters again."""

    def evaluate_costly(self, expression: Expression, facts: Facts) -> Answer:
        try:
            values = facts.encode()
        except (ValueError, RecursionError):  # what is no JSON that can be read
            return Answer.BROKEN
        digest = blake2b(values, key=blake2b(expression.text.encode()).digest(), digest_size=16).digest()
        with self._turn:
            answer = self._known.get(digest)
            if answer is None:
                answer = self._known[digest] = self._ask(expression.text, values)
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        return answer

    def close(self) -> None:
        with self._turn:
            self._end()

    def _ask(self, text: str, values: bytes) -> Answer:
        """Return the answer of the process; COSTLY where it gives none in time, or dies."""
        with suppress(OSError, RuntimeError):  # no more processes, or threads, can be had
            process = self._start()
            seconds = self.deadline.total_seconds()
            if answer := _talk(process, seconds, lambda stdin: write_request(stdin, seconds, text, values)):
                return Answer[answer]
        self._end()
        return Answer.COSTLY

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the running process; OSError where it cannot be started now."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        process = self._process = subprocess.Popen(  # nothing of it is from outside
            [sys.executable, "-P", "-m", "dockbell.condition.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        atexit.unregister(self.close)
        atexit.register(self.close)
        _talk(process, _START.total_seconds())
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # what was not written any more
                process.__exit__(None, None, None)


class LimitedEvaluator(Evaluator):
    """Limits the time of costly conditions where other work waits for them: in the store's writer, or a sink's relay.

    They may take five seconds in a burst, and a fifth of the time in the long run; beyond that they are
    :attr:`Answer.COSTLY` at once. Those that take no longer than ``free`` are not counted.
    """

    def __init__(
        self,
        evaluator: ProcessEvaluator,
        *,
        free: timedelta = timedelta(0),
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluator = evaluator
        self._free = free.total_seconds()
        self._steady = steady
        self._left = _BURST.total_seconds()
        self._at = steady()

    def evaluate_costly(self, expression: Expression, facts: Facts) -> Answer:
        began_at = self._steady()
        self._left = min(_BURST.total_seconds(), self._left + _SHARE * (began_at - self._at))
        self._at = began_at
        if self._left < self._evaluator.deadline.total_seconds():
            return Answer.COSTLY
        answer = self._evaluator.evaluate_costly(expression, facts)
        self._at = self._steady()
        spent = self._at - began_at
        self._left -= spent if spent > self._free else 0
        return answer


def _talk(process: subprocess.Popen[bytes], seconds: float, write: Callable[[IO[bytes]], None] = lambda _: None) -> str:
    """Write to a process, and return the line that it answers; kill it at the deadline."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Timer(seconds, process.kill)
    late.daemon = True
    late.start()
    try:
        write(process.stdin)
        return process.stdout.readline().decode().strip()
    finally:
        late.cancel()
        late.join()  # else it might kill the process while the next condition is evaluated


SHARED: Final = ProcessEvaluator()
"""The evaluator of this process."""
