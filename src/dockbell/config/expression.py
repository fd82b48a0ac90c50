"""Expressions in CEL (https://cel.dev): conditions such as ``after.available < 10``, and values made of a change.

CEL has no I/O and no state, and loops over lists only. What is left to guard against is time, which grows with what
records hold: :mod:`dockbell.condition.cost` bounds it beforehand, and here nothing is evaluated that may take longer
than some milliseconds. The library itself guards against deep nesting.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
from pydantic import AfterValidator

from dockbell.condition.cost import BYTES_A_UNIT, find_cost
from dockbell.condition.evaluation import Answer, compile_text, evaluate, find_value, make_context
from dockbell.config.values import name_kind, show
from dockbell.config.wording import suggest

if TYPE_CHECKING:
    import cel

VARIABLES: Final = ("before", "after", "change", "changed", "key", "resource", "source")
"""What an expression may name: two records, ``created`` and so on, the pointers that changed, key string and feed."""

_LENGTH_MAX: Final = 1000  # some thousand operators in a row would overflow the library's stack
_STEPS_MAX: Final = 100_000
"""What is evaluated at once takes no more: some milliseconds."""
_STEPS_USABLE: Final = 10_000_000
"""What takes more, whatever the record, would always run out of time: about a second."""
_SMALL: Final = 4096
"""Bytes of records that are faster to decode than to look through for single members."""
_SIZE_MAX: Final = 1 << 26
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
_SOME: Final = {
    "change": "updated",
    "changed": [],
    "id": "evt_1",
    "key": "a",
    "resource": "stock",
    "source": "main",
    "time": "2026-01-01T00:00:00Z",
}
"""What stands for a change while nothing is known of one."""


LooksAt: TypeAlias = Mapping[str, frozenset[str] | None]
"""Variables, each with the members that are selected from it; None for all of them."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Program:
    """An expression that was understood; two with the same text are equal. ValueError says why one cannot be used.

    ``looks_at`` has those of its variables that it names, each with the members that it selects, None for all.
    """

    variables: ClassVar[Sequence[str]] = VARIABLES

    def __init__(self, text: str) -> None:
        if len(text) > _LENGTH_MAX:
            raise ValueError(f"must have at most {_LENGTH_MAX} characters, got {len(text)}")
        try:
            self._program = compile_text(text)
        except ValueError as error:
            raise ValueError(f"must be CEL, got {show(text)}: {_say_where(str(error))}") from None
        loops = list(_LOOP.finditer(text))
        named, bound = self._program.variables(), {loop[1] for loop in loops}
        _refuse_unknown("variable", named, {*self.variables, *bound}, self.variables)
        called = [name for name in self._program.functions() if name.isidentifier() and name[0] != "_"]
        _refuse_unknown("function", called, _FUNCTIONS, sorted(_FUNCTIONS))
        self.text = text
        self.looks_at: LooksAt = {name: _find_members(name, text) for name in self.variables if name in named}
        self._cost = find_cost(text)
        self._surely_quick = -1 if self._cost is None else self._cost.find_largest(_STEPS_MAX, _SIZE_MAX)
        self._nothing = Facts(self.looks_at, **_NOTHING, others=_SOME)
        if self._cost is not None and self._cost.steps(self._nothing.measure()) > _STEPS_USABLE:
            fact = f"got {show(text)}, which takes longer for any record"
            raise ValueError(f"must take less than a second, {fact}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Program) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def _is_too_costly(self, facts: Facts) -> bool:
        return facts.size_most > self._surely_quick and self._is_costly(facts)

    def _is_costly(self, facts: Facts) -> bool:
        return self._cost is None or self._cost.steps(facts.measure()) > _STEPS_MAX


class ValueExpression(Program):
    """What makes a value of a change, any that JSON can tell."""

    variables: ClassVar[Sequence[str]] = (*VARIABLES, "id", "time")

    def find(self, facts: Facts) -> Any:
        """Return its value.

        Raises:
            ValueError: It has none for this change, or may take more than some milliseconds.
        """
        if self._is_too_costly(facts):
            raise ValueError(Answer.COSTLY.value)
        return find_value(self._program, facts.context)


class Expression(Program):
    """A condition: what is true or false of a change."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # One that chooses may give something else of a real record.
        kind = "" if "?" in text else self._find_kind(self._nothing)
        if kind not in ("", _BOOLEAN):
            raise ValueError(f"must be true or false for a change, got {show(text)}, which is always {kind}")

    def describe(self, facts: Facts) -> str:
        """Return in words what it says: ``holds``, ``is text, neither true nor false``."""
        answer = self.evaluate(facts)
        kind = self._find_kind(facts) if answer is Answer.MISMATCH else ""
        return f"is {kind}, neither true nor false" if kind else answer.value

    def find_obstacle(self, facts: Facts) -> str:
        """Return the first of the parts, joined by ``&&``, that does not hold, and what it says; empty where all do."""
        try:
            parts = [Expression(part) for part in self._split()]
        except ValueError:  # what is no condition by itself
            parts = [self]
        refusing = (f"{part.text} {part.describe(facts)}" for part in parts if not part.evaluate(facts).lets_through)
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
        """Return what kind of value it gives; empty where it gives none, or would take long to."""
        if self._is_costly(facts):
            return ""
        try:
            value = self._program.execute(facts.context())
        except Exception:  # noqa: BLE001  # it is of interest only where there is one
            return ""
        if isinstance(value, bool):
            return _BOOLEAN
        return "null" if value is None else name_kind(value)

    def evaluate(self, facts: Facts) -> Answer:
        """Return its answer within milliseconds; :attr:`Answer.COSTLY` where it might take longer. Never raises."""
        try:
            if self._is_too_costly(facts):
                return Answer.COSTLY
        except (ValueError, RecursionError):  # what is no JSON that can be read
            return Answer.BROKEN
        return evaluate(self._program, facts.context)


class Facts:
    """The variables of expressions, converted for the library once for all of them.

    The conversion takes 5 µs per value, so members that no expression selects are left out. The records before and
    after are raw JSON; one that is empty counts as an empty object. ``size_most`` is no less than their size, as costs
    are told by: no value takes less than two bytes, with what stands before it.
    """

    def __init__(self, looks_at: LooksAt, *, before: bytes, after: bytes, others: Mapping[str, Any]) -> None:
        self._looks_at = looks_at
        self._records = {"before": before or b"{}", "after": after or b"{}"}
        self._others = others
        self._context: cel.Context | None = None
        self._members: dict[str, Mapping[str, bytes]] = {}
        self._rest = sum(_measure_texts(others[name]) for name in looks_at if name in others)
        length = len(before) + len(after)
        self.size_most = self._rest + 8 + (length >> 1) + length // BYTES_A_UNIT

    def context(self) -> cel.Context:
        """Return them in the library's form; ValueError where they hold a number beyond all use."""
        if self._context is None:
            self._context = make_context({name: self._open(name, members) for name, members in self._looks_at.items()})
        return self._context

    def _open(self, name: str, members: frozenset[str] | None) -> Any:
        if name in self._others:
            return self._others[name]
        record = self._records[name]
        if members is None:
            return _OBJECT.decode(record)
        if len(record) > _SMALL:
            return {member: msgspec.json.decode(text) for member, text in self._select(name, members).items()}
        decoded = _OBJECT.decode(record)
        return {member: decoded[member] for member in members & decoded.keys()}

    def encode(self) -> bytes:
        """Return them as a JSON object with a member for each variable; ValueError where a record is no JSON object."""
        return msgspec.json.encode({name: self._quote(name, members) for name, members in self._looks_at.items()})

    def _quote(self, name: str, members: frozenset[str] | None) -> Any:
        if name in self._others:
            return self._others[name]
        if members is None:
            return msgspec.Raw(self._records[name])
        return {member: msgspec.Raw(text) for member, text in self._select(name, members).items()}

    def measure(self) -> int:
        """Return their size, as costs are told by, or a little more; ValueError where a record is no JSON object."""
        size = self._rest
        for name in self._looks_at.keys() & self._records.keys():
            members = self._looks_at[name]
            texts = [self._records[name]] if members is None else self._select(name, members).values()
            size += 1 + sum(map(_measure, texts))
        return size

    def _select(self, name: str, members: frozenset[str]) -> Mapping[str, bytes]:
        """Return the raw JSON of those of these members that a record has."""
        if name not in self._members:
            found = _MEMBERS.decode(self._records[name])
            self._members[name] = {member: bytes(found[member]) for member in members & found.keys()}
        return self._members[name]


def _measure(text: bytes) -> int:
    """Return the size of a JSON text: a value stands behind each comma, and behind each bracket that opens."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{") + len(text) // BYTES_A_UNIT


def _measure_texts(texts: str | Sequence[str]) -> int:
    if isinstance(texts, str):
        return 1 + len(texts) // BYTES_A_UNIT
    return 1 + sum(map(_measure_texts, texts))


def unite(expressions: Iterable[Program]) -> LooksAt:
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
        return f'{place}: "{lone}" is not an operator; write "{_DOUBLED[lone]}"'
    return f"{place}: {'unexpected end' if _END in what else what.partition(' expecting ')[0]}"


def check_expression(text: str) -> str:
    """Return the text of a condition that can be used; ValueError says why it cannot."""
    return Expression(text).text


def check_value_expression(text: str) -> str:
    """Return the text of an expression of any value that can be used; ValueError says why it cannot."""
    return ValueExpression(text).text


Condition = Annotated[str, AfterValidator(check_expression)]
"""The text of an expression, checked."""

ValueText = Annotated[str, AfterValidator(check_value_expression)]
"""The text of an expression of any value, checked."""
