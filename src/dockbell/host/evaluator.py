"""Judges conditions that may take long in a process of their own, which is killed at a deadline.

Whatever a record holds, a condition takes a second at the most, and nothing else stands still meanwhile. What runs out
of time is :attr:`Answer.COSTLY`: it counts as a yes, so that the event goes out rather than vanishing.
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
from typing import Final

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
"""Bytes of an event whose judgement may take milliseconds, so that others have their turn after it."""
_RATION: Final = timedelta(seconds=5)
_RATION_SHARE: Final = 0.2


class Judge(ABC):
    """Judges conditions: at once what is sure to be quick, with more effort what may not be."""

    @abstractmethod
    def try_hard(self, expression: Expression, facts: Facts) -> Answer:
        """Return what a condition says of a change that it may take long to judge; it never raises."""

    def judge(self, expression: Expression, facts: Facts) -> Answer:
        """Return what a condition says of a change; it never raises.

        It may take as long as the effort does: to be called in a thread where anything else is to go on meanwhile.
        """
        answer = expression.judge(facts)
        return answer if answer is not Answer.COSTLY else self.try_hard(expression, facts)

    async def judge_event(self, passing: Filter, event: Event, *, is_told: bool = False) -> Answer:
        """Return what a sink's filters say of an event, as :meth:`Filter.judge` does, while everything else goes on."""
        answer = passing.judge(event, is_told=is_told)
        if answer is not Answer.COSTLY:
            if len(event.body) > _LARGE:
                await anyio.lowlevel.checkpoint()
            return answer
        judging = partial(passing.judge, event, is_told=is_told, judge=self.judge)
        return await anyio.to_thread.run_sync(judging, abandon_on_cancel=True)

    async def judge_aside(self, expression: Expression, facts: Facts) -> Answer:
        """Return what a condition says of a change, while everything else goes on."""
        return await anyio.to_thread.run_sync(self.judge, expression, facts, abandon_on_cancel=True)


class Evaluator(Judge):
    """Has a process judge what may take long.

    The process is started when it is first needed, and again after it was killed. It is given one expression and the
    values of its variables at a time, and nothing else: no environment, no files, no secrets. It ends with this
    process, however that ends.

    Args:
        deadline: How long a condition may take for one change; what takes longer is :attr:`Answer.COSTLY`.
    """

    def __init__(self, deadline: timedelta = DEADLINE) -> None:
        self.deadline = deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._known: OrderedDict[bytes, Answer] = OrderedDict()
        """Answers of the process: an event is judged again with each of its attempts."""

    def try_hard(self, expression: Expression, facts: Facts) -> Answer:
        """Return the answer of the process, after that of others who wait for it."""
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
        """End the process; the next condition that needs one has another."""
        with self._turn:
            self._end()

    def _ask(self, text: str, values: bytes) -> Answer:
        """Return the answer of the process; where it gives none in time, or dies of it, that it is too costly."""
        with suppress(OSError, RuntimeError):  # no more processes, or threads, can be had
            process = self._start()
            answer = _timed(process, self.deadline, lambda: _exchange(process, self.deadline, text, values))
            if answer:
                return Answer[answer]
        self._end()
        return Answer.COSTLY

    def _start(self) -> subprocess.Popen[bytes]:
        """Return the process, ready to be asked.

        Raises:
            OSError: There can be none now.
        """
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
        _timed(process, _START, lambda: _read_line(process))
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # what was not written any more
                process.__exit__(None, None, None)


class Ration(Judge):
    """Has an evaluator judge for one who makes others wait meanwhile: the writer of the store, or a sink's relay.

    All that may take long has five seconds together at once, and a fifth of the time in the long run; what is beyond
    that is :attr:`Answer.COSTLY` at once.

    Args:
        evaluator: Judges.
        free: What takes no longer is not counted.
        steady: The time in seconds since some origin.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        free: timedelta = timedelta(0),
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._evaluator = evaluator
        self._free = free.total_seconds()
        self._steady = steady
        self._left = _RATION.total_seconds()
        self._at = steady()

    def try_hard(self, expression: Expression, facts: Facts) -> Answer:
        """See above."""
        began_at = self._steady()
        self._left = min(_RATION.total_seconds(), self._left + _RATION_SHARE * (began_at - self._at))
        self._at = began_at
        if self._left < self._evaluator.deadline.total_seconds():
            return Answer.COSTLY
        answer = self._evaluator.try_hard(expression, facts)
        self._at = self._steady()
        spent = self._at - began_at
        self._left -= spent if spent > self._free else 0
        return answer


def _exchange(process: subprocess.Popen[bytes], within: timedelta, text: str, values: bytes) -> str:
    assert process.stdin is not None
    write_request(process.stdin, within.total_seconds(), text, values)
    return _read_line(process)


def _read_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def _timed(process: subprocess.Popen[bytes], within: timedelta, talk: Callable[[], str]) -> str:
    """Talk with a process that is killed when its time is over."""
    late = threading.Timer(within.total_seconds(), process.kill)
    late.daemon = True
    late.start()
    try:
        return talk()
    finally:
        late.cancel()
        late.join()  # else it might kill what has answered, and was asked again


SHARED: Final = Evaluator()
"""That of this process."""
