"""Conditions in CEL (https://cel.dev), such as ``after.available < 10``; the one home of the library that runs them.

CEL has no loops but those over lists, no I/O and no state, and its patterns match in linear time. What is left to guard
against is size: an expression is short, and loops within loops run over small records only. The library itself guards
against deep nesting.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from pydantic import AfterValidator

from dockbell.config.values import name_kind, show
from dockbell.config.wording import suggest

if TYPE_CHECKING:
    import cel

VARIABLES: Final = ("before", "after", "change", "changed", "key", "resource", "source")
"""What an expression may name: two records, ``created`` and so on, the pointers that changed, key string and feed."""

_LENGTH_MAX: Final = 1000  # some thousand operators in a row would overflow the library's stack
_STEPS_MAX: Final = 1_000_000  # a third of a second
_FUNCTIONS: Final = frozenset(
    {
        *("bytes", "double", "duration", "dyn", "int", "size", "string", "timestamp", "type", "uint"),
        *("contains", "endsWith", "matches", "startsWith"),
        *("all", "exists", "existsOne", "exists_one", "filter", "has", "map"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours"),
        *("getMilliseconds", "getMinutes", "getMonth", "getSeconds"),
    }
)
_LOOP: Final = re.compile(r"\b(?:all|exists|existsOne|exists_one|filter|map)\b(?:\s*\(\s*(\w+)\s*,)?")
_POSITION: Final = re.compile(r"ERROR: [^:]*:(\d+):(\d+): (?:Syntax error: )?(.*)")
_END: Final = "input '<EOF>'"
_LONE: Final = "token recognition error at: "
_TOKEN: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|&&|\|\||[?()\[\]{}]""")
_DOUBLED: Final = {"=": "==", "&": "&&", "|": "||"}
_NOTHING: Final = {"before": b"", "after": b""}
_BOOLEAN: Final = "true or false"
_SOME: Final = {"change": "updated", "changed": [], "key": "a", "resource": "stock", "source": "main"}
"""What stands for a change while nothing is known of one."""


class Answer(StrEnum):
    """What an expression says of a change."""

    YES = "holds"
    NO = "does not hold"
    MISSING = "names a member that is not there"
    MISMATCH = "combines values of kinds that do not go together"
    COSTLY = "would loop too long over so large a record"
    BROKEN = "cannot be evaluated"

    @property
    def is_plain(self) -> bool:
        """Whether it is yes or no; every other answer counts as a no, and is worth counting."""
        return self in (Answer.YES, Answer.NO)

    @property
    def is_held_back(self) -> bool:
        """Whether it is a no, or counts as one; what cannot be judged at all is neither yes nor no."""
        return self in (Answer.NO, Answer.MISSING, Answer.MISMATCH)


LooksAt: TypeAlias = Mapping[str, frozenset[str] | None]
"""Variables, each with the members that are selected from it; None for all of them."""

_ANSWERS: Final = {KeyError: Answer.MISSING, IndexError: Answer.MISSING, TypeError: Answer.MISMATCH}


class Expression:
    """A condition that was understood; two with the same text are equal.

    Attributes:
        text: As it was written.
        looks_at: Which of :data:`VARIABLES` it names, each with the members that it selects; None for all of them.

    Raises:
        ValueError: It cannot be used; the text says why.
    """

    def __init__(self, text: str) -> None:
        import cel  # noqa: PLC0415  # 150 ms, for those alone who use it

        if len(text) > _LENGTH_MAX:
            raise ValueError(f"must have at most {_LENGTH_MAX} characters, got {len(text)}")
        try:
            self._program = cel.compile(text)
        except ValueError as error:
            raise ValueError(f"must be CEL, got {show(text)}: {_say_where(str(error))}") from None
        loops = list(_LOOP.finditer(text))
        named, bound = self._program.variables(), {loop[1] for loop in loops}
        _refuse_unknown("variable", named, {*VARIABLES, *bound}, VARIABLES)
        called = [name for name in self._program.functions() if name.isidentifier() and name[0] != "_"]
        _refuse_unknown("function", called, _FUNCTIONS, sorted(_FUNCTIONS))
        self.text = text
        self.looks_at: LooksAt = {name: _find_members(name, text) for name in VARIABLES if name in named}
        self._loops = len(loops)
        # One that chooses may give something else of a real record.
        kind = "" if "?" in text else self._find_kind(Facts(self.looks_at, **_NOTHING, others=_SOME))
        if kind not in ("", _BOOLEAN):
            raise ValueError(f"must be true or false of a change, got {show(text)}, which is always {kind}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def describe(self, facts: Facts) -> str:
        """Return in words what it says: ``holds``, ``is text, neither true nor false``."""
        answer = self.judge(facts)
        kind = self._find_kind(facts) if answer is Answer.MISMATCH else ""
        return f"is {kind}, neither true nor false" if kind else answer.value

    def find_obstacle(self, facts: Facts) -> str:
        """Return the first of the parts, joined by ``&&``, that does not hold, and what it says; empty where all do."""
        try:
            parts = [Expression(part) for part in self._split()]
        except ValueError:  # what is no condition by itself
            parts = [self]
        refusing = (f"{part.text} {part.describe(facts)}" for part in parts if part.judge(facts) is not Answer.YES)
        return next(refusing, "")

    def _split(self) -> list[str]:
        """Return the parts that must all hold; the whole where it is not put together so."""
        parts, depth, start = [], 0, 0
        for token in _TOKEN.finditer(self.text):
            match token[0]:
                case "(" | "[" | "{":
                    depth += 1
                case ")" | "]" | "}":
                    depth -= 1
                case "||" | "?" if depth == 0:
                    return [self.text]
                case "&&" if depth == 0:
                    parts.append(self.text[start : token.start()].strip())
                    start = token.end()
        whole = "//" in self.text  # a comment may hold anything
        return [self.text] if whole else [*parts, self.text[start:].strip()]

    def _find_kind(self, facts: Facts) -> str:
        """Return what kind of value it gives; empty where it gives none."""
        if self._loops > 1 and self._count_steps(facts) > _STEPS_MAX:
            return ""
        try:
            value = self._program.execute(facts.context())
        except Exception:  # noqa: BLE001  # as above
            return ""
        if isinstance(value, bool):
            return _BOOLEAN
        return "null" if value is None else name_kind(value)

    def judge(self, facts: Facts) -> Answer:
        """Return what it says; it never raises."""
        if self._loops > 1 and self._count_steps(facts) > _STEPS_MAX:
            return Answer.COSTLY
        try:
            value = self._program.execute(facts.context())
        except Exception as error:  # noqa: BLE001  # whatever it is, the change itself must go on
            return _ANSWERS.get(type(error), Answer.BROKEN)
        return (Answer.YES if value else Answer.NO) if isinstance(value, bool) else Answer.MISMATCH

    def _count_steps(self, facts: Facts) -> int:
        """Return at most how often the innermost part can run: no list has more elements than there are commas."""
        longest = (facts.commas + self.text.count(",") + 2) * (self.text.count("+") + 1)
        return int(longest**self._loops)


class Facts:
    """What expressions are judged by, put into the library's form once for all of them.

    The library takes 5 µs for each value that it is given, so it is given no member that nobody selects.

    Args:
        looks_at: What any of the expressions looks at.
        before: The raw JSON of the record before; empty where there was none, and then an empty object.
        after: The same, after.
        others: The other variables.
    """

    def __init__(self, looks_at: LooksAt, *, before: bytes, after: bytes, others: Mapping[str, Any]) -> None:
        self.commas = before.count(b",") + after.count(b",")
        self._looks_at = looks_at
        self._records = {"before": before, "after": after}
        self._others = others
        self._context: cel.Context | None = None

    def context(self) -> cel.Context:
        """Return them in the library's form.

        Raises:
            ValueError: They hold a number beyond all use.
        """
        import cel  # noqa: PLC0415  # as above

        if self._context is None:
            self._context = cel.Context({name: self._value(name, members) for name, members in self._looks_at.items()})
        return self._context

    def _value(self, name: str, members: frozenset[str] | None) -> Any:
        if name in self._others:
            return self._others[name]
        record = msgspec.json.decode(self._records[name] or b"{}", type=dict[str, Any])
        return record if members is None else {member: record[member] for member in members & record.keys()}


def unite(expressions: Iterable[Expression]) -> LooksAt:
    """Return what any of these expressions looks at."""
    united: dict[str, frozenset[str] | None] = {}
    for expression in expressions:
        for name, members in expression.looks_at.items():
            known = united.get(name, frozenset())
            united[name] = None if known is None or members is None else known | members
    return united


def _find_members(name: str, text: str) -> frozenset[str] | None:
    """Return the members that a text selects from a variable; None unless selecting is all that it does with it."""
    uses = re.findall(rf"\b{name}\b(?:\.([A-Za-z_]\w*)\b(?!\s*[({{]))?", text, re.ASCII)
    return frozenset(uses) if all(uses) and "//" not in text else None  # a comment may stand before a bracket


def _refuse_unknown(kind: str, names: Collection[str], known: Collection[str], offered: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f'unknown {kind} "{name}"; {suggest(name, offered)}')


def _say_where(problem: str) -> str:
    match = _POSITION.search(problem)
    if match is None:
        return problem.partition("\n")[0]
    line, column, what = match.groups()
    place = f"column {column}" if line == "1" else f"line {line}, column {column}"
    if what.startswith(_LONE) and (lone := what.removeprefix(_LONE).strip(" '")) in _DOUBLED:
        return f'{place}: "{lone}" alone means nothing here; write "{_DOUBLED[lone]}"'
    return f"{place}: {'it ends too early' if _END in what else what.partition(' expecting ')[0]}"


def check_expression(text: str) -> str:
    """Return the text of an expression that can be used.

    Raises:
        ValueError: It cannot; the text says why.
    """
    return Expression(text).text


Condition = Annotated[str, AfterValidator(check_expression)]
"""The text of an expression, checked."""
