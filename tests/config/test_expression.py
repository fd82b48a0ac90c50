from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockbell.config import Answer, Expression, Facts, ValueExpression
from dockbell.config.expression import VARIABLES, _say_where, check_expression, unite

EACH: Final = {"change": "updated", "changed": ["/status"], "key": "shp_1"}


def ask(text: str, *, before: str = "", after: str = '{"n":1,"tags":["a","b"]}') -> Answer:
    expression = Expression(text)
    return expression.evaluate(Facts(expression.looks_at, before=before.encode(), after=after.encode(), others=EACH))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("after.n == 1", Answer.YES),
        ("after.n > 1", Answer.NO),
        ("after.n == 1.0 && after.n < 1.5", Answer.YES),
        ("after['n'] in [1, 2]", Answer.YES),
        ("after.tags.exists(tag, tag == 'b')", Answer.YES),
        ("after.tags.filter(tag, tag != 'b').size() == 1", Answer.YES),
        ("after.tags == before.tags", Answer.MISSING),
        ("!has(before.tags) || before.tags == after.tags", Answer.YES),
        ("after.name.first == 'x'", Answer.MISSING),
        ("after.n.first == 'x'", Answer.MISMATCH),
        ("after.n > 'x'", Answer.MISMATCH),
        ("after.n", Answer.MISMATCH),
        ("after.n / 0 == 1", Answer.BROKEN),
        ("after.missing == 1 || after.n == 1", Answer.YES),
        ("key.matches('^shp_[0-9]+$') && change == 'updated' && '/status' in changed", Answer.YES),
        ("timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') > duration('23h')", Answer.YES),
    ],
)
def test_an_expression_answers(text: str, answer: Answer) -> None:
    assert ask(text) is answer


def test_a_plain_answer_is_yes_or_no() -> None:
    assert {answer for answer in Answer if answer.is_plain} == {Answer.YES, Answer.NO}


@pytest.mark.parametrize(
    ("text", "looks_at"),
    [
        ("true", {}),
        ("after.n < 10 && before.n >= 10 && after.m", {"before": {"n"}, "after": {"n", "m"}}),
        ("has(after.n) && key in ['a'] && after.n.size() > 1", {"after": {"n"}, "key": None}),
        ("after == before", {"before": None, "after": None}),
        ("after.n == 1 && after['m'] == 2", {"after": None}),
        ("after.n == 1 && 'm' in after", {"after": None}),
        ("after.all(member, member != change)", {"after": None, "change": None}),
        ("[after][0].n == 1", {"after": None}),
        ("after // .n\n.m == 1", {"after": None}),
        ("after.n == 'after.m' || 'before' == key", {"after": {"n", "m"}, "key": None}),
        ("after.after == 1", {"after": {"after"}}),
        ("after.all // not a member\n(key, true)", {"after": None}),
    ],
)
def test_an_expression_knows_what_it_looks_at(text: str, looks_at: Any) -> None:
    assert Expression(text).looks_at == looks_at


def test_what_several_expressions_look_at_is_united() -> None:
    texts = ("after.n == 1", "after.m == 1 && key == 'a'", "before.n == 1", "before == after", "after.o == 1")
    expressions = [Expression(text) for text in texts]
    assert unite(expressions[:3]) == {"after": {"n", "m"}, "key": None, "before": {"n"}}
    assert unite(expressions) == {"after": None, "key": None, "before": None}
    assert unite(()) == {}


@given(
    st.sampled_from(
        ["after.n == 1", "after.n.m == 'x'", "has(after.n)", "!(after.n in [1, 'x'])", "after.n == after.m"]
    ),
    st.dictionaries(st.sampled_from("nmo"), st.sampled_from([1, "x", None, {"m": "x"}, {}])),
)
def test_members_that_nobody_selects_make_no_difference(text: str, record: dict[str, Any]) -> None:
    expression, after = Expression(text), msgspec.json.encode(record)
    narrow, whole = (
        expression.evaluate(Facts(looks_at, before=b"", after=after, others={}))
        for looks_at in (expression.looks_at, {"after": None})
    )
    assert narrow is whole


def test_expressions_are_as_equal_as_their_texts() -> None:
    one, same, other = Expression("true"), Expression("true"), Expression("false")
    assert one == same != other
    assert one != "true"
    assert len({one, same, other}) == 2
    assert repr(one) == "Expression('true')"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", 'must be CEL, got "": column 1: unexpected end'),
        ("after.n >", 'must be CEL, got "after.n >": column 10: unexpected end'),
        (
            "after.n = 1",
            'must be CEL, got "after.n = 1": column 9: "=" is not an operator; write "=="',
        ),
        ("after.n == 1 & after.m == 2", 'column 14: "&" is not an operator; write "&&"'),
        ("size(changed)", "which is always a whole number"),
        ("change", "which is always text"),
        ("null", "which is always null"),
        ("true &&\n after.in", "line 2, column 8: no viable alternative"),
        ("afer.n == 1", 'unknown variable "afer"; did you mean "after"?'),
        ("status == 'x'", 'unknown variable "status"; available: before, after, change, changed, key'),
        ("after.tags.exists(tag, tga == 'x')", 'unknown variable "tga"'),
        ("after.tags.contians('x')", 'unknown function "contians"; did you mean "contains"?'),
        ("math.abs(after.n) > 1", 'unknown variable "math"'),
        ("[" * 400, "must be CEL, got "),
        ("after.n == 1 || " * 70 + "true", "must have at most 1000 characters, got 1124"),
    ],
)
def test_an_expression_that_cannot_work_is_told_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        check_expression(text)


def test_a_problem_without_a_place_is_told_by_its_first_line() -> None:
    assert _say_where("too deep\n| ((((") == "too deep"


# Hostile expressions -------------------------------------------------------------------------------------------------

MANY: Final = '{"t":[' + "0," * 4999 + "0]}"


def test_loops_within_loops_run_over_small_records_only() -> None:
    text = "after.t.exists(a, after.t.exists(b, a + b > 0))"
    assert ask(text, after='{"t":[0,1]}') is Answer.YES
    assert ask(text, after=MANY) is Answer.COSTLY


def test_what_looks_through_a_list_in_a_loop_is_a_loop_within_a_loop() -> None:
    tags = b'{"t":[' + b",".join(b'"tag-%d"' % number for number in range(1000)) + b"]}"
    for text in (
        "after.t.exists(t, !(t in before.t))",
        "after.t.exists(t, before.t == [t])",
        "after.t.exists(t, before.t.size() == 0)",
        "after.t.filter(t, t != 'x').size() == 1",
    ):
        expression = Expression(text)
        large = Facts(expression.looks_at, before=tags, after=tags, others=EACH)
        assert expression.evaluate(large) is Answer.COSTLY
        small = Facts(expression.looks_at, before=b'{"t":["a"]}', after=b'{"t":["b"]}', others=EACH)
        assert expression.evaluate(small).is_plain


def test_no_loop_is_overlooked_behind_a_comment_nor_a_list_that_is_added_to_itself() -> None:
    assert ask("after.t. // (\nexists(a, after.t. // (\n exists (b, a + b > 0))", after=MANY) is Answer.COSTLY
    assert ask("after.t.all(a, [a].all(b, b == 0))", after=MANY.replace("0,", "", 4500)) is Answer.YES
    doubled = "(after.t + after.t).all(a, (after.t + after.t).all(b, b == 0))"
    assert ask(doubled, after=MANY.replace("0,", "", 4900)) is Answer.COSTLY


@pytest.mark.parametrize(
    "record",
    [
        '{"n":1,"t":[' + "0," * 200_000 + "0]}",
        '{"n":1,"t":"' + "x" * 1_000_000 + '"}',
        '{"n":1,"t":' + "[" * 100 + "]" * 100 + "}",
    ],
)
def test_what_an_expression_does_not_look_at_may_be_as_large_as_it_likes(record: str) -> None:
    assert ask("after.n == 1", after=record) is Answer.YES


@pytest.mark.parametrize("value", ["[" + "0," * 200_000 + "0]", '{"a":' * 60_000 + "0" + "}" * 60_000, "[[],[]" * 1])
def test_what_it_looks_at_may_not_since_the_library_takes_time_for_each_value(value: str) -> None:
    began_at = time.perf_counter()
    assert ask("after.n == 1", after='{"n":' + value + "}") in (Answer.COSTLY, Answer.BROKEN)
    assert time.perf_counter() - began_at < 0.2


@pytest.mark.parametrize(
    "text",
    ["'" + "a" * 200 + "'.matches('(a+)+$') && false", "'a'.matches('(a{900}){900}')", "1" + "+1" * 490 + " == 0"],
)
def test_patterns_and_long_sums_cost_little(text: str) -> None:
    assert ask(text) in (Answer.NO, Answer.BROKEN, Answer.COSTLY)


@pytest.mark.parametrize(
    "text",
    [
        "['x']" + ".map(a, a + a)" * 30 + ".size() == 1",
        "".join(f"[1,1,1,1,1,1].all(x{number}, " for number in range(12)) + "true" + ")" * 12,
    ],
)
def test_an_expression_that_would_take_long_whatever_a_record_holds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must take less than a second"):
        Expression(text)


@pytest.mark.parametrize("raw", ['{"n":1e999}', '{"n":%s}' % ("9" * 400), '{"n":"\\ud800"}', '{"n":'])
def test_a_record_beyond_all_use_breaks_the_answer_and_nothing_else(raw: str) -> None:
    assert ask("after.n == 1", after=raw) is Answer.BROKEN


FRAGMENTS: Final = (
    *VARIABLES,
    *(".n", ".tags", "[", "]", "{", "}", "(", ")", "?", ":", "&&", "||", "!", "-", "+", "==", "<", "in", ",", " ", "."),
    *(".exists(a,", ".map(a,", "a", "has(", "size(", "null", "true", "1", "2.5", "'x'", "b'", '"', "//", "\n"),
)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(max_size=30))
def test_any_text_is_refused_or_answers(text: str) -> None:
    try:
        expression = Expression(text)
    except ValueError:
        return
    facts = Facts(expression.looks_at, before=b'{"n":null}', after=b'{"n":1,"tags":["a"]}', others=EACH)
    assert expression.evaluate(facts) in Answer


def test_the_library_is_loaded_only_for_those_who_use_it() -> None:
    program = "import sys, dockbell.core.publishing.event; sys.exit('cel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_facts_are_put_into_the_librarys_form_once() -> None:
    facts: Any = Facts({"after": None}, before=b"", after=b"{}", others={})
    assert facts.context() is facts.context()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("after.n == 1 && after.tags.size() == 2", ""),
        ("after.n == 1 && after.tags.size() == 3", "after.tags.size() == 3 does not hold"),
        ("(after.n == 2 && true) && after.m == 3", "(after.n == 2 && true) does not hold"),
        ("after.n == 2 || after.n == 3 && true", "after.n == 2 || after.n == 3 && true does not hold"),
        ("after.n == 2 ? true : after.n == 3", "after.n == 2 ? true : after.n == 3 does not hold"),
        ("'a && b' in after.tags && true", "'a && b' in after.tags does not hold"),
        ("after.n == 1 && after.tags[0]", "after.tags[0] is text, neither true nor false"),
        ("after.n == 1 && after.s == 'x'", "after.s == 'x' names a member that is not there"),
        ("after.n == 1 && // && after.m\n after.n == 2", "after.n == 1 && // && after.m\n after.n == 2 does not hold"),
    ],
)
def test_the_part_that_does_not_hold_is_found(text: str, told: str) -> None:
    expression = Expression(text)
    facts = Facts(expression.looks_at, before=b"", after=b'{"n":1,"tags":["a","b"]}', others=EACH)
    assert expression.find_obstacle(facts) == told
    assert (expression.evaluate(facts) is Answer.YES) == (told == "")


def test_one_that_chooses_is_not_refused_for_what_it_gives_of_nothing() -> None:
    assert ask("has(after.n) ? after.n == 1 : 'none'") is Answer.YES


# Values --------------------------------------------------------------------------------------------------------------


LARGE: Final = json.dumps({f"m{number}": 1 for number in range(400)})


def make_value(text: str, after: str = '{"n":1,"s":"ä"}') -> object:
    expression = ValueExpression(text)
    others = {**EACH, "id": "evt_1", "time": "2026-11-21T12:00:00Z"}
    return expression.find(Facts(expression.looks_at, before=b"", after=after.encode(), others=others))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("key", "shp_1"),
        ('{"text": key + " " + after.s, "n": after.n + 1}', {"text": "shp_1 ä", "n": 2}),
        ("[id, time]", ["evt_1", "2026-11-21T12:00:00Z"]),
        ("has(after.gone) ? after.gone : null", None),
        ("changed.map(c, c + '!')", ["/status!"]),
    ],
)
def test_an_expression_of_a_value_makes_any_of_a_change(text: str, value: object) -> None:
    assert make_value(text) == value


@pytest.mark.parametrize(
    ("text", "after", "problem"),
    [
        ("after.gone", "{}", "names a member that is not there: .*gone"),
        ("after.n + 'x'", '{"n":1}', "combines values of kinds that do not go together"),
        ("after.all(m, after.all(k, m != k))", LARGE, "takes too long"),
    ],
)
def test_where_it_has_none_the_reason_is_told(text: str, after: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make_value(text, after)


def test_a_condition_knows_neither_ids_nor_times() -> None:
    with pytest.raises(ValueError, match='unknown variable "id"'):
        Expression("id == 'evt_1'")
