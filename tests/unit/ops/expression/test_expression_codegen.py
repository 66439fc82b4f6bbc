"""The C++ of an expression computes what `evaluate` computes, and refuses what it refuses."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kbuild.ops.expression import EvaluationError, ExpressionError, arithmetic_header, parse
from tests.support.expression_cases import LIMITS, expressions, values

CASES = 400
PAIRS = [(a, b) for a in LIMITS for b in LIMITS]
OPERATIONS = ("a + b", "a - b", "a * b", "a // b", "a % b", "cdiv(a, b)", "next_pow2(a)", "-a")
PROGRAM = """\
#include <cstdio>
#include <exception>
#include "arithmetic.h"
static const kbuild::Arithmetic checked{{"it"}};
struct Row {{ int64_t a, b, M, N; }};
using Function = int64_t (*)(const Row&);
{functions}
static const Function functions[] = {{{table}}};
int main() {{
  int which; Row row;
  while (std::scanf("%d %ld %ld %ld %ld", &which, &row.a, &row.b, &row.M, &row.N) == 5) {{
    try {{ std::printf("%ld\\n", functions[which](row)); }}
    catch (const std::exception& error) {{ std::printf("%s\\n", error.what()); }}
  }}
}}
"""
REFUSALS = {"it: division by zero", "it: a value beyond 64 bits"}
ROW = ("a", "b", "M", "N")


def drawn():
    """A few hundred random expressions with values, the same ones each time."""
    found = []

    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(expressions(), values())
    def collect(text, numbers):
        try:
            found.append((parse(text), numbers))
        except ExpressionError:
            return

    collect()
    return found


@pytest.mark.compile
def test_same_values(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    cases = drawn()
    assert len(cases) > CASES // 2
    each = [parse(text) for text in OPERATIONS]
    questions = [
        (whole, dict(zip(ROW, (a, b, a, b), strict=True))) for whole in each for a, b in PAIRS
    ]
    programs = list(dict.fromkeys([*(case for case, _ in cases), *each]))
    answers = run(tmp_path, programs, [*cases, *questions])
    refused = 0
    for (whole, numbers), answer in zip([*cases, *questions], answers, strict=True):
        try:
            assert answer == str(whole.evaluate(numbers)), (str(whole), numbers)
        except EvaluationError:
            refused += 1
            assert answer in REFUSALS, (str(whole), numbers)
    assert refused > 20


def run(tmp_path, programs, cases):
    at = {program: index for index, program in enumerate(programs)}
    names = {name: f"row.{name}" for name in ROW}
    functions = [
        f"static int64_t f{index}(const Row& row) {{ (void)row; return {program.to_cxx(names)}; }}"
        for program, index in at.items()
    ]
    table = ", ".join(f"f{index}" for index in at.values())
    text = PROGRAM.format(functions="\n".join(functions), table=table)
    (tmp_path / "arithmetic.h").write_text(arithmetic_header())
    (tmp_path / "main.cpp").write_text(text)
    flags = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-tautological-compare")
    compile_ = ["g++", *flags, "-fsanitize=undefined", "-fno-sanitize-recover"]
    command = [*compile_, "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)  # noqa: TID251
    lines = [
        f"{at[whole]} {' '.join(str(numbers[name]) for name in ROW)}" for whole, numbers in cases
    ]
    done = subprocess.run(  # noqa: TID251
        [tmp_path / "main"], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
