from __future__ import annotations

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.condition.syntax import Call, Literal, Make, Name, Node, Select, parse

A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a || b && c", Call("||", (A, Call("&&", (B, C))))),
        ("a + b * c", Call("+", (A, Call("*", (B, C))))),
        ("a - b - c", Call("-", (Call("-", (A, B)), C))),
        ("a ? b : b ? c : a", Call("?:", (A, B, Call("?:", (B, C, A))))),
        ("!!a in b", Call("in", (Call("!", (A,)), B))),
        ("-1 < a", Call("<", (Call("!", (Literal("1"),)), A))),
        ("a.b.size()", Call("size", (Select(A),), is_method=True)),
        ("a['x'].b[c]", Select(Select(Select(A, Literal("'x'"))), C)),
        ("size(a)", Call("size", (A,))),
        ("[a, [b], {'k': c}]", Make((A, Make((B,)), Make((Literal("'k'"), C))))),
        ("[]", Make(())),
        ("a.all(b, b == 'it\\'s')", Call("all", (A, B, Call("==", (B, Literal("'it\\'s'")))), is_method=True)),
        ("r'\\' == \"'\" // a comment", Call("==", (Literal("r'\\'"), Literal('"\'"')))),
        ("'''a\n'b''' == b'x'", Call("==", (Literal("'''a\n'b'''"), Literal("b'x'")))),
        ("1.5e3 > 0x1Fu", Call(">", (Literal("1.5e3"), Literal("0x1Fu")))),
    ],
)
def test_a_text_becomes_a_tree(text: str, tree: Node) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize("text", ["", "a b", "a.?b", "a[?b]", "(a", "a.1", "`a`", "{", "a ? b", "Type{a: b}"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|unexpected"):
        parse(text)


def _texts() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["a", "b", "1", "2.5", "'x'", "true", "null", "[a, b]", "{'k': a}"])

    def widen(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        operators = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", "in", "&&", "||"])
        return st.one_of(
            st.tuples(inner, operators, inner).map(" ".join),
            inner.map("({})".format),
            inner.map("!{}".format),
            inner.map("-{}".format),
            st.tuples(inner, inner).map("({0[0]}).map(x, {0[1]})".format),
            st.tuples(inner, inner).map("size({0[0]}) > {0[1]}".format),
            st.tuples(inner, inner, inner).map("{0[0]} ? {0[1]} : {0[2]}".format),
            st.tuples(inner, inner).map("[{0[0]}][{0[1]}]".format),
            inner.map("[{}].m.n".format),
        )

    return st.recursive(leaves, widen, max_leaves=12)


@given(_texts())
def test_what_the_library_accepts_is_understood(text: str) -> None:
    try:
        cel.compile(text)
    except ValueError:
        return
    parse(text)
