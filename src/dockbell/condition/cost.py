"""How long an expression takes at most, told before it is evaluated: a polynomial in the size of what it looks at.

The *size* of a value counts the values in it, and 16 bytes of text as one more. Each operator takes as many *steps* as
its operands are large, a loop as many as its body takes for each element. A step takes about 0.1 µs. Elements are parts
of their list: what a body does to them alone adds up to the list once, however the list is divided, so that a loop over
the lists of a list takes no more steps than a loop over one of the same size. What a body does to anything else it does
again for each element. The library copies a member that is selected with a dot, and what ``map`` and ``filter`` have
gathered before each element.

It is an upper bound: conditions, short cuts and errors, which all save steps, do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from itertools import count
from math import prod
from typing import Final, TypeAlias

import msgspec

from dockbell.condition.syntax import Call, Literal, Make, Name, Node, Select, parse

BYTES_A_UNIT: Final = 16  # bytes of text that count as one value

_Term: TypeAlias = tuple[str, ...]
"""Sizes that are multiplied: that of the record, ``""``, and those of elements of the lists that are looped over."""
_Polynomial: TypeAlias = Mapping[_Term, int]

_ONE: Final[_Polynomial] = {(): 1}
_RECORD: Final[_Polynomial] = {("",): 1}
_TAKE_IN: Final = 40  # steps for each value to be put into the library's form
_ITERATE: Final = 5  # steps of a loop for each element, its body left out
_CALL: Final = 5
_PUT_TOGETHER: Final = 20  # steps for each part of a list or a map that the expression makes
_COMPILE: Final = 100  # steps for each character of a simple pattern, which is compiled each time
_COMPILE_CLASS: Final = 1200  # where it names a class of characters, of which Unicode has thousands
_COMPILE_MOST: Final = 3_000_000  # the library gives up on a pattern that becomes too large
_COMPILE_ANY: Final = 500_000  # for each unit of a pattern that a record holds
_COMPARED: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "startsWith", "endsWith"})
_CONVERSIONS: Final = frozenset({"string", "bytes", "dyn"})
_TEXT: Final = re.compile(r"""[A-Za-z]*["']""")
_REPEAT: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_GROUP_REPEAT: Final = re.compile(r"\)\s*\{")
_LOOPS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})


class Cost(msgspec.Struct, frozen=True):
    """The steps that an expression takes at most, by the power of the size that they are multiplied by."""

    coefficients: tuple[int, ...]

    @property
    def degree(self) -> int:
        """0 where the size makes no difference, 1 where it does in proportion, more for loops within loops."""
        return len(self.coefficients) - 1

    def steps(self, size: int) -> int:
        return sum(each * size**power for power, each in enumerate(self.coefficients))

    def find_largest(self, steps: int, most: int) -> int:
        """Return the largest size, up to ``most``, that takes no more than so many steps; -1 where none does."""
        low, high = -1, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.steps(middle) <= steps else (low, middle - 1)
        return low


def find_cost(text: str) -> Cost | None:
    """Return what an expression that the library has accepted costs; None where that cannot be told."""
    try:
        bound = _Analysis().measure(parse(text), {})
    except (ValueError, RecursionError):
        return None
    total = _add(bound.steps, _scale(_RECORD, _TAKE_IN))
    coefficients = [0] * (max(map(len, total)) + 1)
    for term, coefficient in total.items():
        coefficients[len(term)] += coefficient
    return Cost(tuple(coefficients))


class _Bound(msgspec.Struct, frozen=True):
    """What is known of an expression: the size of its value, and the steps to it."""

    size: _Polynomial
    steps: _Polynomial


_Scope: TypeAlias = Mapping[str, _Polynomial]
"""The sizes of the variables that loops have bound."""


class _Analysis:
    def __init__(self) -> None:
        self._numbers = count(1)

    def measure(self, node: Node, scope: _Scope) -> _Bound:
        size, steps = _ONE, _ONE
        match node:
            case Literal(text):
                size = {(): 1 + len(text) // BYTES_A_UNIT}
            case Name(name):
                size = scope.get(name, _RECORD)
            case Select(operand, index):
                inner = self.measure(operand, scope)
                at = _Bound({}, inner.size) if index is None else self.measure(index, scope)
                size, steps = inner.size, _add(_ONE, inner.steps, at.steps, at.size)
            case Make(parts):
                bounds = [self.measure(part, scope) for part in parts]
                size = _add(_ONE, *(bound.size for bound in bounds))
                steps = _add(size, {(): _PUT_TOGETHER * len(parts)}, *(bound.steps for bound in bounds))
            case Call(loop, (over, Name(element), *bodies), True) if loop in _LOOPS and len(bodies) in (1, 2):
                return self._measure_loop(loop, self.measure(over, scope), element, bodies, scope)
            case Call("matches", (matched, Literal(pattern))):
                inner = self.measure(matched, scope)
                steps = _add(inner.steps, _match(inner.size, pattern))
            case Call("+", (Literal(text), other) | (other, Literal(text))) if not _TEXT.match(text):
                steps = _add(_ONE, self.measure(other, scope).steps)  # numbers, or times, or an error
            case Call(function, arguments):
                return _measure_call(function, [self.measure(each, scope) for each in arguments])
        return _Bound(size, steps)

    def _measure_loop(self, loop: str, over: _Bound, element: str, bodies: list[Node], scope: _Scope) -> _Bound:
        variable = str(next(self._numbers))
        part: _Polynomial = {(variable,): 1}
        inside = [self.measure(body, {**scope, element: part}) for body in bodies]
        once = _add({(): _ITERATE}, *(bound.steps for bound in inside), *(bound.size for bound in inside))
        steps = _add(over.steps, _sum_up(once, variable, over.size))
        if loop not in ("map", "filter"):
            return _Bound(_ONE, steps)
        kept = inside[-1].size if loop == "map" else part
        gathered = _add(_ONE, _sum_up(_add(_ONE, kept), variable, over.size))
        return _Bound(gathered, _add(steps, _multiply(over.size, gathered)))


def _measure_call(function: str, arguments: list[_Bound]) -> _Bound:
    sizes = [each.size for each in arguments]
    size, steps = _ONE, _add({(): _CALL}, *(each.steps for each in arguments))
    match function, sizes:
        case ("?:", (_, then, otherwise)):
            size = _add(then, otherwise)
        case ("&&" | "||" | "!" | "-" | "*" | "/" | "%", _):
            pass
        case ("+", (left, right)):
            size = _add(left, right)
            steps = _add(steps, size)
        case (name, (left, right)) if name in _COMPARED:
            steps = _add(steps, min(left, right, key=_rank))
        case ("matches", (text, pattern)):
            steps = _add(steps, _scale(_multiply(pattern, _add(_ONE, text)), _COMPILE_ANY))
        case (name, (converted,)) if name in _CONVERSIONS:
            size, steps = _add(_ONE, converted), _add(steps, converted)
        case _:
            steps = _add(steps, *sizes)
    return _Bound(size, steps)


def _match(text: _Polynomial, pattern: str) -> _Polynomial:
    """Return the steps to compile a pattern, as it is written, and to match it: what it repeats, it holds so often."""
    repeats = [int(most or least) for least, most in _REPEAT.findall(pattern)]
    # A group may hold what is repeated itself.
    often = prod(repeats) if _GROUP_REPEAT.search(pattern) else max(repeats, default=1)
    once = len(pattern) * (_COMPILE_CLASS if "\\" in pattern or "(?" in pattern else _COMPILE)
    compiled = min(once * max(1, often), _COMPILE_MOST)
    return _add({(): compiled}, _scale(text, 1 + compiled // 1000))


# Polynomials ---------------------------------------------------------------------------------------------------------


def _add(*polynomials: _Polynomial) -> _Polynomial:
    total: Counter[_Term] = Counter()
    for each in polynomials:
        total.update(each)
    return total


def _scale(polynomial: _Polynomial, factor: int) -> _Polynomial:
    return {term: factor * coefficient for term, coefficient in polynomial.items()}


def _multiply(one: _Polynomial, other: _Polynomial) -> _Polynomial:
    product: Counter[_Term] = Counter()
    for left, by in one.items():
        for right, coefficient in other.items():
            product[tuple(sorted(left + right))] += by * coefficient
    return product


def _sum_up(once: _Polynomial, variable: str, over: _Polynomial) -> _Polynomial:
    """Return the sum over all elements of a list of ``over``: their sizes add up to no more than that of the list."""
    parts = []
    for term, coefficient in once.items():
        rest = tuple(name for name in term if name != variable)
        outside: _Polynomial = {rest: coefficient}
        # Where an element counts for nothing, there are as many of them as the list is large.
        power = max(1, len(term) - len(rest))
        parts.append(reduce(_multiply, [over] * power, outside))
    return _add(*parts)


def _rank(polynomial: _Polynomial) -> tuple[int, int]:
    """Return what tells the smaller of two from the other: first how it grows, then by how much."""
    return max(map(len, polynomial)), sum(polynomial.values())
