from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.ops.language import LANGUAGES
from kbuild.ops.section import read_section
from kbuild.plugins.capture.description import Declaration
from kbuild.plugins.capture.languages import captured_language
from kbuild.plugins.capture.questions import ARGUMENTS, asked_by, refusal, schema_of
from kbuild.plugins.capture.session import _devices, _read, capture
from kbuild.system.errors import CheckError
from tests.support.captured_runs import argument, buffer, launch, tensor

X = {"shape": ["M", "N"], "dtypes": ["float16"]}
DECLARATION = Declaration("ops.norm:norm", "norm", {"x": X}, {}, {}, backward=True)


def answer(**run: Any) -> dict[str, Any]:
    out = tensor("b0")
    step = launch({"x_ptr": argument("x"), "out_ptr": out})
    trace = {
        "guards": [], "steps": [step], "hints": {"M": 4, "N": 8}, "buffers": [buffer("b0")],
        "outputs": [out], "raises": "", "place": "", "decisions": {}, "boundary": {},
        "saved": [], "gradients": [], "structure": "{0}", "classes": {},
    }  # fmt: skip
    configuration = {"dtype:x": "float16"}
    runs = [{"configuration": configuration, "traces": [trace], "unproven": [], "dropped": 0}]
    return {
        "parameters": ["x"], "defaults": {}, "kind": "function", "source": "ops/norm.py",
        "line": 1, "contiguous": [], "runs": [{**runs[0], **run}], "samples": [],
    }  # fmt: skip


def test_unproven_conditions_are_notes(tmp_path: Path) -> None:
    wrapper, notes = _read(DECLARATION, answer(unproven=[["M < 8", "not (N < 8)"]]), 2, tmp_path)
    assert wrapper.schema == "norm(Tensor x) -> Tensor"
    assert notes == ("no call was found with (N < 8) false: such a call is refused",)


def test_too_many_paths_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="too many paths: 3 more were not followed") as caught:
        _read(DECLARATION, answer(dropped=3), 2, tmp_path)
    assert "narrow the `sizes`" in caught.value.hint


@pytest.mark.parametrize(
    ("language", "toolchain", "reason"),
    [
        ("tilelang", "tilelang==0.1.15", "compiled for the numbers of a call"),
        ("cute", "nvidia-cutlass-dsl==4.8.1", "tensors of a captured call have no memory"),
    ],
)
def test_kernels_that_are_not_captured_are_refused_at_the_function(
    tmp_path: Path, language: str, toolchain: str, reason: str
) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "norm.py").write_text("import torch\n\n\n\ndef norm(x):\n    pass\n")
    table = {"language": language, "toolchain": toolchain, "src": ["ops/norm.py"]}
    section = read_section("ops", {**table, "backend": "cuda"})
    never: Any = None
    with pytest.raises(CheckError) as caught:
        capture(DECLARATION, tmp_path, section, never, never)
    assert caught.value.message.startswith(
        f"ops/norm.py:5: `ops.norm:norm` launches `{language}` kernels, which cannot be captured: "
    )
    assert reason in caught.value.message
    assert "[[kernel.<name>.op]]" in caught.value.hint


@pytest.mark.parametrize(
    ("backend", "answer", "devices"),
    [
        ("cuda", {"asked_vendor": True}, []),
        (["cuda", "rocm"], {}, []),
        (["cuda", "rocm"], {"asked_vendor": True}, [{}, {"hip": 1}]),
        ("rocm", {"asked_vendor": True}, [{"hip": 1}]),
        (
            ["cuda", "rocm"],
            {"asked": True},
            [{"capability": [8, 0], "shared": 166912}, {"capability": [9, 0], "shared": 232448}],
        ),
    ],
)
def test_gpus_that_a_function_is_captured_for(backend: Any, answer: Any, devices: Any) -> None:
    written = {"backend": backend, "cuda-capabilities": ["8.0+PTX", "9.0"]}
    section: Any = SimpleNamespace(table=written)
    found = _devices(section, answer)
    assert len(found) == len(devices)
    for device, wanted in zip(found, devices, strict=True):
        assert wanted.items() <= device.items()


def test_every_language_says_why_it_is_not_captured() -> None:
    unknown = captured_language("unknown").refusal
    # Other tests of this process may have registered languages of their own.
    own = [one for one in LANGUAGES.load() if type(one).__module__.startswith("kbuild.")]
    assert len(own) > 6
    for language in own:
        captured = captured_language(language.name)
        assert captured.captured_as or captured.refusal != unknown


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
