"""Reading and evaluating expressions; `test_expression_codegen.py` compares with a C++ compiler."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbuild.ops.expression import (
    EvaluationError,
    Expression,
    ExpressionError,
    parse,
    parse_condition,
)
from kbuild.ops.expression.nodes import Name
from tests.support.expression_cases import NAMES, evaluated_by_python, expressions, values


@settings(max_examples=300, deadline=None)
@given(expressions(), values())
def test_as_python_computes_it(text, numbers):
    wanted = evaluated_by_python(text, numbers)
    try:
        found = parse(text).evaluate(numbers)
    except EvaluationError:
        found = None
    except ExpressionError as error:  # such a part is refused also where it is never evaluated
        found = wanted if "always gives" in error.message else None
    assert found == wanted


@settings(max_examples=200, deadline=None)
@given(expressions(), values(), st.sets(st.sampled_from(NAMES)))
@pytest.mark.full
def test_binding_changes_no_value(text, numbers, known):
    try:
        whole = parse(text)
        wanted = whole.evaluate(numbers)
    except (EvaluationError, ExpressionError):
        return
    try:
        bound = whole.bind({name: numbers[name] for name in known})
    except ExpressionError as error:  # such a part is refused also where it is never evaluated
        if "always gives" not in error.message:
            raise
        return
    assert bound.evaluate(numbers) == wanted
    assert bound.names() <= whole.names() - known


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab01 +-*/%()<=>!,.\n&|andorif_eselinot\x00é'", max_size=40))
def test_any_text_is_read_or_refused_in_words(text):
    try:
        found = parse(text)
    except ExpressionError as error:
        found = error
    if isinstance(found, ExpressionError):
        assert found.message
        assert 1 <= found.column <= len(text) + 1
    else:
        assert isinstance(found, Expression)


@pytest.mark.parametrize(
    ("text", "words", "column", "hint"),
    [
        ("numel(x) / N", "`numel(x) / N` has no meaning", 1, "`//` divides and rounds down"),
        ("a && b", "`&` has no meaning in an expression", 3, "write `and`"),
        ("a b", "cannot be read: invalid syntax", 3, ""),
        ("(a", "cannot be read: ", 1, ""),
        ("a) + (b", "cannot be read: ", 2, ""),
        ("", "is empty", 1, ""),
        ("N * 1.5", "`1.5` is not an integer", 5, "expressions use integers"),
        ("x.shape[0]", "`x.shape[0]` has no meaning", 1, "size(x, 0)"),
        ("open('f')", "`open` is not a function", 1, "functions: `cdiv`"),
        ("a == 'f", "`'` has no meaning", 6, "ends with the same quote"),
        ("a == 'f' 'g'", "is not a string", 6, "contains no quote"),
        ("a == 1e999", "`1e999` does not fit into 64 bits", 6, ""),
        ("a == None", "`None` is not an integer", 6, "`name is None`"),
        ("a[b]", "a list index must be a number", 3, ""),
        ("min", "`min` is a function", 1, "call it"),
        ("cdiv(1)", "`cdiv` takes 2 arguments, not 1", 1, ""),
        ("size(x)", "`size` is written `size(tensor, dimension)`", 1, ""),
        ("numel(a + b)", "`numel` asks about a tensor, by its name", 7, ""),
        ("9223372036854775808", "does not fit into 64 bits", 1, ""),
        ("N + 1 // 0", "always gives division by zero", 5, ""),
        # Python would read these names as `a` and `μ`.
        ("ª", "`ª` has no meaning in an expression", 1, ""),
        ("N * µ", "`µ` has no meaning in an expression", 5, ""),
        ("\ud800", "`\\ud800` has no meaning in an expression", 1, ""),
        # What Python has and an expression has not.
        ("a # c", "`#` has no meaning in an expression", 3, ""),
        ("a + b is None", "has no meaning", 1, "write `name is None` or `name is not None`"),
        ("lambda: a", "`:` has no meaning in an expression", 7, "write `a if condition else b`"),
        ("min(a for a in b)", "`min` takes 2 or more arguments", 1, ""),
        ("a << 2", "`a << 2` has no meaning", 1, "multiply by a power of two"),
        ("a in b", "`a in b` has no meaning", 1, ""),
        ("a in 1.5", "`a in 1.5` has no meaning", 1, ""),
        ("min(a=1)", "`min(a=1)` has no meaning", 1, ""),
        ("--9223372036854775808", "always gives a value beyond 64 bits", 1, ""),
        # Texts, floats and None stand on the right of a name, alone.
        ("a == -'f'", "`'f'` is not an integer", 7, "can only be compared with an argument"),
        ("b == eps == 1.5", "`1.5` is not an integer", 13, "a float argument can be compared"),
    ],
)  # fmt: skip
def test_what_is_refused(text, words, column, hint):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert words in caught.value.message
    assert caught.value.message
    assert column in {None, caught.value.column}
    assert hint in caught.value.hint


A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    "text",
    [
        "min(a, " * 31 + "a" + ")" * 31,
        "-" * 40 + "a",
        "+" * 40 + "a",
        "not " * 40 + "a",
        "-(" * 31 + "a" + ")" * 31,
        "a if b else " * 31 + "a",
    ],
)
def test_deep_nesting_is_refused(text):
    with pytest.raises(ExpressionError, match="nested too deeply"):
        parse(text)


def test_a_number_before_a_word_is_no_warning(recwarn):
    with pytest.raises(ExpressionError, match="invalid decimal literal"):
        parse("1or a")
    assert not recwarn.list


def test_length():
    assert parse("+".join(["a"] * 150)).evaluate({"a": 2}) == 300
    brackets = "(" * 3000 + "a" + ")" * 3000  # Python's own parser would take much memory
    for text in ("+".join(["a"] * 151), "a" + "\n+a" * 100_000, brackets):
        with pytest.raises(ExpressionError, match="more than 300 parts"):
            parse(text)
    assert parse("a" * 100_000).names() == {"a" * 100_000}


@pytest.mark.parametrize("text", ["N > 1", "not N", "has(b)", "True", "1 < N < 5", "a and b"])
def test_conditions(text):
    assert parse_condition(text).is_condition


@pytest.mark.parametrize("text", ["N", "1", "min(a > 1, b > 1)", "(a > 1) + 1", "1 if a else 0"])
def test_numbers_are_no_conditions(text):
    with pytest.raises(ExpressionError, match="is a number, not a condition"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("1_000", 1000),
        ("True", 1),
        ("- 9223372036854775808", -(2**63)),
        ("-7 // 2", -4),
        ("-7 % 2", 1),
        ("7 % -2", -1),
        ("cdiv(7, 2)", 4),
        ("cdiv(-7, 2)", -3),
        ("next_pow2(0)", 1),
        ("next_pow2(5)", 8),
        ("next_pow2(4611686018427387904)", 2**62),
        ("2 and 3", 1),
        ("-9223372036854775808", -(2**63)),
        ("1 if 2 > 1 > 0 else 1 // 0", 1),
    ],
)
def test_constants(text, value):
    assert parse(text).constant == value


def test_a_side_that_is_not_evaluated_may_hold_anything():
    guarded = parse("8 // SPLIT if SPLIT > 0 else 1")
    assert guarded.bind({"SPLIT": 0}).constant == 1
    assert parse("a and 1 // a").evaluate({"a": 0}) == 0


@pytest.mark.parametrize("text", ["a // b", "a % b", "cdiv(a, b)"])
def test_division_by_zero_is_refused(text):
    with pytest.raises(EvaluationError, match="division by zero"):
        parse(text).evaluate({"a": 1, "b": 0})


@pytest.mark.parametrize("text", ["a + 1", "a * 2", "-b - a", "-b", "b // c", "next_pow2(a)"])
def test_overflow_is_refused(text):
    with pytest.raises(EvaluationError, match="beyond 64 bits"):
        parse(text).evaluate({"a": 2**63 - 1, "b": -(2**63), "c": -1})


@settings(max_examples=150, deadline=None)
@given(expressions(), values())
def test_python_source_has_the_same_value(text, numbers):
    """Where nothing is beyond 64 bits: Torch checks its own sizes."""
    torch = pytest.importorskip("torch")
    try:
        whole = parse(text)
        wanted = whole.evaluate(numbers)
    except (EvaluationError, ExpressionError):
        return
    source = whole.to_python({name: name for name in whole.names()})
    scope = {**numbers, "torch": torch, "math": math}
    assert int(eval(source, scope)) == wanted  # noqa: S307 - made from our own nodes
