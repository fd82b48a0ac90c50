"""The syntax of CEL (https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax), as far as costs need it.

The library that evaluates expressions does not show what it has parsed. Only texts that it has accepted are parsed
here: nothing is checked, and a text that this module does not understand is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

_TOKEN: Final = re.compile(
    r"""
    (?P<blank> \s+ | //[^\n]* )
  | (?P<text>  (?: [bB]?[rR] | [rR][bB] ) (?: '{3}.*?'{3} | "{3}.*?"{3} | '[^'\n]*' | "[^"\n]*" )
             | [bB]? (?: '{3}(?:[^\\]|\\.)*?'{3} | "{3}(?:[^\\]|\\.)*?"{3} )
             | [bB]? (?: '(?:[^'\\\n]|\\.)*' | "(?:[^"\\\n]|\\.)*" ) )
  | (?P<number> 0[xX][0-9a-fA-F]+[uU]? | (?: [0-9]+(?:\.[0-9]+)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]+)?[uU]? )
  | (?P<name>  [A-Za-z_][A-Za-z_0-9]* )
  | (?P<mark>  && | \|\| | == | != | <= | >= | [-+*/%<>!?:.,()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_BINARY: Final = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
}
"""How closely operators bind; all of them take what stands to their left first."""
_CONSTANTS: Final = frozenset({"true", "false", "null"})


class Literal(msgspec.Struct, frozen=True):
    """A constant, as it is written."""

    text: str


class Name(msgspec.Struct, frozen=True):
    name: str


class Select(msgspec.Struct, frozen=True):
    """A member of a value: ``operand.member``, ``operand[index]``."""

    operand: Node
    index: Node | None = None


class Make(msgspec.Struct, frozen=True):
    """A list or a map; of a map, keys and values in turn."""

    parts: tuple[Node, ...]


class Call(msgspec.Struct, frozen=True):
    """An operator, a function or a macro; what it is called on is the first argument."""

    function: str
    arguments: tuple[Node, ...]
    is_method: bool = False


Node: TypeAlias = Literal | Name | Select | Make | Call


def parse(text: str) -> Node:
    """Return the syntax tree of an expression that the library has accepted.

    Raises:
        ValueError: It has something in it that is not understood here.
        RecursionError: It is nested too deeply.
    """
    parser = _Parser(text)
    tree = parser.read_expression()
    parser.take("")
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_scan(text), ("mark", "")]
        self._at = 0

    @property
    def _next(self) -> str:
        kind, text = self._tokens[self._at]
        return text if kind in ("mark", "name") else "literal"

    def _accept(self, mark: str) -> bool:
        if self._next != mark:
            return False
        self._at += 1
        return True

    def take(self, mark: str) -> None:
        """Go past a mark; the empty one is the end."""
        if not self._accept(mark):
            raise ValueError(f"expected {mark!r}, got {self._next!r}")

    def _take_name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            raise ValueError(f"expected a name, got {text!r}")
        self._at += 1
        return text

    def read_expression(self) -> Node:
        condition = self._read_binary(1)
        if not self._accept("?"):
            return condition
        then = self._read_binary(1)
        self.take(":")
        return Call("?:", (condition, then, self.read_expression()))

    def _read_binary(self, closest: int) -> Node:
        left = self._read_unary()
        while (closeness := _BINARY.get(self._next, 0)) >= closest:
            operator = self._next
            self._at += 1
            left = Call(operator, (left, self._read_binary(closeness + 1)))
        return left

    def _read_unary(self) -> Node:
        signs = 0
        while self._next in ("!", "-"):
            self._at += 1
            signs += 1
        operand = self._read_member()
        return Call("!", (operand,)) if signs else operand

    def _read_member(self) -> Node:
        operand = self._read_primary()
        while True:
            if self._accept("."):
                name = self._take_name()
                if self._accept("("):
                    operand = Call(name, (operand, *self._read_list(")")), is_method=True)
                else:
                    operand = Select(operand)
            elif self._accept("["):
                operand = Select(operand, self.read_expression())
                self.take("]")
            else:
                return operand

    def _read_primary(self) -> Node:
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind in ("text", "number") or text in _CONSTANTS:
            return Literal(text)
        if kind == "name":
            return Call(text, self._read_list(")")) if self._accept("(") else Name(text)
        match text:
            case "(":
                inner = self.read_expression()
                self.take(")")
                return inner
            case "[":
                return Make(self._read_list("]"))
            case "{":
                return Make(self._read_list("}"))
        raise ValueError(f"unexpected {text!r}")

    def _read_list(self, end: str) -> tuple[Node, ...]:
        parts: list[Node] = []
        while not self._accept(end):
            parts.append(self.read_expression())
            if not (self._accept(",") or self._accept(":")):
                self.take(end)
                break
        return tuple(parts)


def _scan(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"unexpected {text[at]!r}")
        at = match.end()
        assert match.lastgroup is not None
        if match.lastgroup != "blank":
            yield match.lastgroup, match[0]
