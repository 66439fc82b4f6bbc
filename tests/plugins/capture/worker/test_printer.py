"""Numbers that an author computes, as expressions: the values of Python, also below 0."""

from __future__ import annotations

import functools
import math
import shutil
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbuild.ops.expression import EvaluationError, parse
from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.values import evaluated
from tests.unit.ops.expression.test_expression_codegen import run

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kbuild.plugins.capture.worker.number_functions import (  # noqa: E402
    NUMBERS,
    SIZE_METHODS,
    number_functions,
)
from kbuild.plugins.capture.worker.symbols import Symbols  # noqa: E402

whole = NUMBERS["int"]
COMPUTED = {
    "truncated": lambda a, b, n: whole((a - 10) / 3),
    "truncated by any number": lambda a, b, n: whole(a / b),
    "truncated size": lambda a, b, n: whole((n + 255) / 256),
    "truncated negation": lambda a, b, n: whole(-(a / 4)),
    "half": lambda a, b, n: whole(a * 0.5) + math.ceil(n / 2.0),
    "quotient": lambda a, b, n: a // 3 + a // b,
    "rest": lambda a, b, n: a % 7 - a % b,
    "divided": lambda a, b, n: sum(divmod(a, 8)) + sum(divmod(17, b)),
    "rounded": lambda a, b, n: round(a / 3),
    "rounded to even": lambda a, b, n: round(a / 4) + round(n / 10),
    "floor": lambda a, b, n: math.floor(a / 4) - math.floor(-a / 4),
    "ceiling": lambda a, b, n: math.ceil(a / 5) + math.ceil(n / 256),
    "ceiling of old": lambda a, b, n: -(-n // 256) + (n + 63) // 64 * 64,
    "absolute": lambda a, b, n: abs(a) % 3 + abs(n - 5),
    "shifts": lambda a, b, n: (a << 2) + (a >> 3) - a**2 + n * 2**3,
    "masks": lambda a, b, n: (a & 15) + (n & -16),
    "extremes": lambda a, b, n: torch.sym_max(a, 0) - torch.sym_min(a, torch.sym_max(n, b)),
    "nested": lambda a, b, n: (a - (b - n)) * -3 // 7 % 5 - a // -3 * (b % 5),
    "power of two": lambda a, b, n: 1 << (n - 1).bit_length(),
    "power of two above": lambda a, b, n: 2 ** n.bit_length() + (1 << abs(a).bit_length()),
}  # fmt: skip
NUMBER = st.integers(-70, 70) | st.sampled_from((-(2**31) + 1, -256, 255, 256, 2**31 - 1))
SIZE = st.integers(0, 1025) | st.just(2**31 - 1)


@functools.cache
def text_of(name: str) -> str:
    """What is written of a number that is computed with symbols."""
    symbols = Symbols({"a": 3, "b": 5, "N": 7})
    limit = 2**31 - 1
    numbers = [symbols.integer(name, -limit, limit) for name in "ab"]
    with mock.patch.multiple(torch.SymInt, create=True, **SIZE_METHODS):
        value = COMPUTED[name](*numbers, symbols.integer("N", 0, limit))
    return symbols.text_of(value)


@pytest.mark.parametrize("name", COMPUTED)
@given(a=NUMBER, b=NUMBER, size=SIZE)
@settings(max_examples=40, deadline=None)
def test_values_are_those_of_python(name: str, a: int, b: int, size: int) -> None:
    text = text_of(name)
    values = {"a": a, "b": b, "N": size}
    try:
        wanted = COMPUTED[name](a, b, size)
    except ZeroDivisionError:
        with pytest.raises(EvaluationError):
            parse(text).evaluate(values)
        return
    assert (evaluated(text, values), parse(text).evaluate(values)) == (wanted, wanted), text


@pytest.mark.compile
def test_values_of_cxx_are_those_of_python(tmp_path: Any) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    numbers = (-(2**31) + 1, -70, -9, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 9, 70, 2**31 - 1)
    cases, wanted = [], []
    for name, compute in COMPUTED.items():
        expression = parse(text_of(name))
        for a, b, size in zip(numbers, reversed(numbers), (0, *map(abs, numbers)), strict=False):
            cases.append((expression, {"a": a, "b": b, "M": 0, "N": size}))
            wanted.append(str(compute(a, b, size)))
    assert run(tmp_path, list(dict.fromkeys(case for case, _ in cases)), cases) == wanted


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda n: whole(n * 0.1), "computes `Trunc(0.1*(n))`"),
        (lambda n: whole(torch.sym_sqrt(n)), "computes `Trunc(sqrt((n)))`"),
        (lambda n: n.bit_length() + 1, "has no form in an expression: use `+ - * // %`"),
        (lambda n: n & 5, "computes `bitwise_and(n, 5)`"),
    ],
)
def test_what_has_no_form_is_refused(compute: Any, message: str) -> None:
    symbols = Symbols({"n": 9})
    with (
        mock.patch.multiple(torch.SymInt, create=True, **SIZE_METHODS),
        pytest.raises(CaptureError) as caught,
    ):
        symbols.text_of(compute(symbols.integer("n", -100, 100)))
    assert message in str(caught.value)


def test_logarithms_are_exponents_alone() -> None:
    symbols, log2 = Symbols({"N": 300}), dict(number_functions())[math.log2]
    size = symbols.integer("N", 0, 4096)
    assert symbols.text_of(2 ** math.ceil(log2(size))) == "next_pow2(N)"
    assert symbols.text_of(1 << math.floor(log2(size))) == "next_pow2(N + 1) // 2"
    assert symbols.guards() == ["N > 0"]


def test_a_division_by_a_difference_asks_for_one_float() -> None:
    symbols = Symbols({"p": 0.25})
    assert bool(1.0 - symbols.number("p") == 0) is False
    assert symbols.guards() == ["p != 1.0"]
