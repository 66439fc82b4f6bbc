from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbuild.plugins.capture.questions import ARGUMENTS, asked_by, refusal, schema_of

PAGE = Path(__file__).parents[3] / "docs/explanation/capture.md"


@pytest.mark.parametrize("name", ARGUMENTS)
def test_each_argument_is_asked_for_by_its_expression(name: str) -> None:
    argument = f"asked_{name.format('x')}"
    question, expression = asked_by(argument)
    assert (question, expression) == (ARGUMENTS[name], ARGUMENTS[name].expression.format("x"))
    compile(expression, "question", "eval")
    assert schema_of(argument)[0] == ("str" if question.choices else "bool")
    assert asked_by(argument.replace("asked_", "asked_backward_"))[0] is question


def test_a_refusal_says_what_to_do() -> None:
    assert "make it an argument of the function" in refusal("os.getenv")
    assert "when the module is imported" in refusal("other.library.function")


def test_the_page_names_the_questions() -> None:
    text = PAGE.read_text("utf-8")
    for question in ARGUMENTS.values():
        called = question.expression.partition('"cuda"')[0].removeprefix("str(").rstrip("()")
        name = re.findall(r"\w+", called.partition(")")[0])[-1]
        assert name in text
