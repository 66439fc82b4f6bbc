"""Computed floats: Python's values and errors, in C++ as well."""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess

import pytest

from kbuild.ops.expression import ExpressionError, arithmetic_header
from kbuild.ops.expression.floating import parse_float

FLOATS = {"scale", "eps", "xs"}
FORMULAS = (
    *("1.0 / N", "scale * 0.5", "D ** -0.5", "N / D", "-eps", "eps + N * D - 1.5", "sqrt(N) / 2"),
    *(
        "N ** 0.5 if N > D else eps",
        "min(scale, 2.0, N)",
        "max(eps, D // 2)",
        "scale ** N",
        "sqrt(D)",
    ),
    *("(N + 1) % 7 * 1e-3", "eps if N > 3 and D != 2 else scale", "2 ** -N", "xs[1] * xs[-1]"),
    *("1.0 / (N - D)", "scale ** eps", "eps if N > 2 else scale", "+scale", "1 / 3 * next_pow2(N)"),
)
NUMBERS = (-3, 0, 1, 2, 7, 64, 2**40)
VALUES = (0.0, -1.5, 0.1, 1e300, 3.0)


def value(text: str, numbers: dict[str, int], floats: dict[str, float]) -> float | None:
    """Python's own; None where it raises, or gives a complex number."""

    def next_pow2(number: int) -> int:
        return 1 << max(number - 1, 0).bit_length()

    names = {**numbers, **floats, "xs": (1.0, floats["eps"], floats["scale"])}
    functions = {"sqrt": math.sqrt, "min": min, "max": max, "next_pow2": next_pow2}
    try:
        result = eval(text, functions, names)  # noqa: S307 - one of `FORMULAS`
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(result, complex) else float(result)


def cases() -> list[tuple[str, dict[str, int], dict[str, float]]]:
    pairs = list(itertools.product(NUMBERS, NUMBERS[1:5]))
    floats = list(itertools.product(VALUES, VALUES[:3]))
    return [
        (text, {"N": n, "D": d}, {"scale": scale, "eps": eps})
        for text in FORMULAS
        for (n, d), (scale, eps) in zip(pairs, itertools.cycle(floats), strict=False)
    ]


def own(numbers: dict[str, int], floats: dict[str, float]) -> dict[str, float]:
    return {**floats, "xs[1]": floats["eps"], "xs[-1]": floats["scale"]}


@pytest.mark.compile
def test_values_are_those_of_python(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    lines, wanted = [], []
    for text, numbers, floats in cases():
        formula = parse_float(text, FLOATS)
        names = {name: f"INT64_C({number})" for name, number in numbers.items()}
        literals = {name: repr(number) for name, number in own(numbers, floats).items()}
        lines.append(f"  TRY({formula.to_cxx(names, literals)});")
        number = value(text, numbers, floats)
        wanted.append("refused" if number is None else number.hex())
    program = """
#include "arithmetic.h"
#include <cstdio>
#define TRY(x) try { std::printf("%a\\n", double(x)); } catch (...) { std::puts("refused"); }
int main() { const kbuild::Arithmetic checked{""}; (void)checked;
"""
    (tmp_path / "arithmetic.h").write_text(arithmetic_header())
    (tmp_path / "main.cpp").write_text(program + "\n".join(lines) + "\n}\n")
    command = ["g++", "-std=c++17", "-O0", "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)  # noqa: TID251
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)  # noqa: TID251
    results = done.stdout.splitlines()
    assert results.count("refused") > 20
    for answer, number, case in zip(results, wanted, cases(), strict=True):
        assert (answer if answer == "refused" else float.fromhex(answer).hex()) == number, case


@pytest.mark.parametrize("text", ["N // 2", "N", "cdiv(N, D)", "min(N, D)", "N +", "scale(2)"])
def test_integers_are_no_floats(text):
    assert parse_float(text, {"eps"}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1.0 // N", "`1.0 // N` has no meaning in a float"),
        ("eps if 0.5 < eps else 1.0", "is not an integer"),
        ("exp(N) * 2.0", "`exp` is not a function"),
        ("sqrt(1.0, 2.0)", "has no meaning in a float"),
        ("1e999 * eps", "has no meaning in a float"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(ExpressionError) as raised:
        parse_float(text, FLOATS)
    assert words in raised.value.message
