"""What may take long is judged in a process that can be killed, and that holds and outlives nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Final

import anyio
import pytest

from dockbell.config import Answer, Expression, Facts, SinkSettings
from dockbell.core.model import Event, Feed
from dockbell.core.publishing.filters import Filter
from dockbell.host.evaluator import LimitedEvaluator, ProcessEvaluator
from tests.workers import find_workers, is_alive

SUBSET: Final = Expression("after.tags.exists(t, !(t in before.tags))")
SHORT: Final = timedelta(milliseconds=200)


def tags(count: int) -> bytes:
    return json.dumps({"tags": [f"tag-{number}" for number in range(count)]}).encode()


def facts(before: int, after: int) -> Facts:
    return Facts(SUBSET.looks_at, before=tags(before), after=tags(after), others={})


@pytest.fixture
def evaluator() -> Iterator[ProcessEvaluator]:
    with closing(ProcessEvaluator()) as evaluator:
        yield evaluator


@pytest.fixture
def hasty() -> Iterator[ProcessEvaluator]:
    with closing(ProcessEvaluator(SHORT)) as evaluator:
        yield evaluator


def pid_of(evaluator: ProcessEvaluator) -> int:
    assert evaluator._process is not None
    return evaluator._process.pid


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# What is answered ----------------------------------------------------------------------------------------------------


def test_what_is_quick_needs_no_process(evaluator: ProcessEvaluator) -> None:
    assert evaluator.evaluate(SUBSET, facts(2, 2)) is Answer.NO
    assert evaluator.evaluate(SUBSET, facts(2, 3)) is Answer.YES
    assert evaluator._process is None


@pytest.mark.parametrize(("before", "after", "answer"), [(700, 700, Answer.NO), (700, 701, Answer.YES)])
def test_what_may_take_long_is_answered_all_the_same(
    evaluator: ProcessEvaluator, before: int, after: int, answer: Answer
) -> None:
    asked = facts(before, after)
    assert SUBSET.evaluate(asked) is Answer.COSTLY
    assert evaluator.evaluate(SUBSET, asked) is answer


@pytest.mark.parametrize(
    ("text", "after", "answer"),
    [
        ("after.n.exists(x, x == 'x') && after.m == 1", {"n": [0] * 50_000}, Answer.NO),
        ("after.m == 1 && after.n.size() > 1", {"n": [0] * 50_000}, Answer.MISSING),
        ("after.n > 1", {"n": [0] * 50_000}, Answer.MISMATCH),
        ("after.n.size() / 0 == 1", {"n": [0] * 50_000}, Answer.BROKEN),
        ("after.n.size() == 50000 && '/n' in changed && key == 'a'", {"n": [0] * 50_000}, Answer.YES),
    ],
)
def test_the_process_answers_as_one_would_that_has_the_time(
    evaluator: ProcessEvaluator, text: str, after: dict[str, object], answer: Answer
) -> None:
    expression, record = Expression(text), json.dumps(after).encode()
    asked = Facts(expression.looks_at, before=b"", after=record, others={"changed": ["/n"], "key": "a"})
    assert expression.evaluate(asked) is Answer.COSTLY
    assert evaluator.evaluate(expression, asked) is answer


@pytest.mark.parametrize("count", [12_000, 40_000, 100_000])
def test_a_record_that_would_take_minutes_takes_a_second(evaluator: ProcessEvaluator, count: int) -> None:
    evaluator.evaluate(SUBSET, facts(300, 300))  # the process is there
    asked, began_at = facts(count, count), time.monotonic()
    assert evaluator.evaluate(SUBSET, asked) is Answer.COSTLY
    assert time.monotonic() - began_at < 3
    assert evaluator.evaluate(SUBSET, facts(300, 301)) is Answer.YES  # by another process


@pytest.mark.parametrize(
    "text",
    [
        "after.tags.map(t, after.tags.map(u, u + t)).size() == 1",  # memory without end
        "after.tags.all(a, after.tags.all(b, after.tags.all(c, a + b != c)))",
    ],
)
def test_whatever_becomes_of_the_process_it_is_too_costly_and_the_next_one_answers(
    evaluator: ProcessEvaluator, text: str
) -> None:
    expression = Expression(text)
    asked = Facts(expression.looks_at, before=b"", after=tags(4000), others={})
    assert evaluator.evaluate(expression, asked) is Answer.COSTLY
    assert evaluator.evaluate(SUBSET, facts(300, 300)) is Answer.NO


def test_a_process_that_was_killed_is_replaced(evaluator: ProcessEvaluator) -> None:
    assert evaluator.evaluate(SUBSET, facts(300, 300)) is Answer.NO
    worker = pid_of(evaluator)
    os.kill(worker, signal.SIGKILL)
    until(lambda: not is_alive(worker))
    assert evaluator.evaluate(SUBSET, facts(301, 301)) is Answer.NO
    assert pid_of(evaluator) != worker


def test_an_answer_is_remembered(hasty: ProcessEvaluator) -> None:
    assert hasty.evaluate(SUBSET, facts(12_000, 12_000)) is Answer.COSTLY
    began_at = time.monotonic()
    assert hasty.evaluate(SUBSET, facts(12_000, 12_000)) is Answer.COSTLY
    assert time.monotonic() - began_at < 0.1


def test_where_there_can_be_no_process_all_that_may_take_long_is_too_costly(
    evaluator: ProcessEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert evaluator.evaluate(SUBSET, facts(300, 300)) is Answer.COSTLY
    assert evaluator.evaluate(SUBSET, facts(2, 2)) is Answer.NO


def test_a_record_that_is_no_json_is_broken(evaluator: ProcessEvaluator) -> None:
    asked = Facts(SUBSET.looks_at, before=tags(2), after=b'{"tags":' + b"[" * 100_000, others={})
    assert evaluator.evaluate(SUBSET, asked) is Answer.BROKEN
    assert evaluator.evaluate_costly(SUBSET, asked) is Answer.BROKEN


# What goes on meanwhile ----------------------------------------------------------------------------------------------


async def test_everything_else_goes_on_while_a_filter_is_judged(hasty: ProcessEvaluator) -> None:
    where = Filter(SinkSettings(type="stdout", where=SUBSET.text))
    body = b'{"data":{"before":' + tags(12_000) + b',"after":' + tags(12_000) + b"}}"
    event = Event(Feed("main", "stock"), 1, "a", "evt_1", "dockbell.stock.updated", "updated", 1, body)
    spent: list[float] = []

    async def tick() -> None:
        last = time.thread_time()  # of the loop's own thread: what other programs take says nothing
        while True:
            await anyio.sleep(0.005)
            spent.append(time.thread_time() - last)
            last = time.thread_time()

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        answer = await hasty.evaluate_event(where, event)
        group.cancel_scope.cancel()
    assert answer is Answer.COSTLY
    assert len(spent) > 10  # it waited for nothing
    assert max(spent) < 0.1  # nor did it evaluate anything itself


# What the process has ------------------------------------------------------------------------------------------------


def test_the_process_has_no_secrets_no_files_and_little_memory(
    evaluator: ProcessEvaluator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKBELL_API_KEY", "s3cret")
    with (tmp_path / "open").open("w") as file:
        inherited = os.dup2(file.fileno(), 199)
        evaluator.evaluate(SUBSET, facts(300, 300))
        worker = pid_of(evaluator)
        process = Path("/proc") / str(worker)
        names = [word.partition(b"=")[0] for word in (process / "environ").read_bytes().split(b"\0") if word]
        opened = sorted(str(each.readlink()).partition(":")[0] for each in (process / "fd").iterdir())
        limits = (process / "limits").read_text()
        os.close(inherited)
    assert names == [b"PYTHONPATH"]
    assert opened == ["/dev/null", "pipe", "pipe"]
    assert f"Max address space         {512 * 1024 * 1024}" in limits


PARENT: Final = """
import sys
from datetime import timedelta
from dockbell.host.evaluator import ProcessEvaluator
from tests.host.test_evaluator import SUBSET, facts
evaluator = ProcessEvaluator(timedelta(seconds=60))
evaluator.evaluate(SUBSET, facts(300, 300))
print("ready", flush=True)
sys.stdin.readline()
{then}
"""


@pytest.mark.parametrize("then", ["", "evaluator.evaluate(SUBSET, facts(100_000, 100_000))"])
def test_the_process_ends_with_the_one_that_needs_it_even_when_that_is_killed(then: str) -> None:
    program = PARENT.format(then=then).replace("seconds=60", "seconds=2")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"ready\n"
        (worker,) = find_workers(parent.pid)
        if then:
            parent.stdin.write(b"\n")
            parent.stdin.flush()
            until(lambda: b"R" in (Path("/proc") / str(worker) / "stat").read_bytes().rpartition(b")")[2][:3])
        parent.kill()
        parent.wait()
        until(lambda: not is_alive(worker))


# Rations -------------------------------------------------------------------------------------------------------------


class SlowEvaluator(ProcessEvaluator):
    """Needs all the time that it is given, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def evaluate_costly(self, expression: Expression, facts: Facts) -> Answer:
        del expression, facts
        self.now += self.deadline.total_seconds()
        return Answer.NO


def test_who_makes_others_wait_judges_for_some_seconds_and_then_lets_through_what_may_take_long() -> None:
    slow = SlowEvaluator()
    ration = LimitedEvaluator(slow, steady=lambda: slow.now)
    large, small = facts(300, 300), facts(2, 2)
    assert [ration.evaluate(SUBSET, large) for _ in range(7)] == [Answer.NO] * 5 + [Answer.COSTLY] * 2
    assert ration.evaluate(SUBSET, small) is Answer.NO  # what is quick is judged as always
    slow.now += 10
    assert [ration.evaluate(SUBSET, large) for _ in range(3)] == [Answer.NO] * 2 + [Answer.COSTLY]


def test_what_takes_no_longer_than_is_free_is_not_counted() -> None:
    slow = SlowEvaluator()
    ration = LimitedEvaluator(slow, free=timedelta(seconds=1), steady=lambda: slow.now)
    assert {ration.evaluate(SUBSET, facts(300, 300)) for _ in range(20)} == {Answer.NO}
