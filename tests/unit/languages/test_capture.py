from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbuild.capture.description import Declaration
from kbuild.errors import CheckError, UsageError
from kbuild.languages.capture import _read, source_of
from tests.support.captured_runs import argument, buffer, launch, tensor

X = {"shape": ["M", "N"], "dtypes": ["float16"]}
DECLARATION = Declaration("ops.norm:norm", "norm", {"x": X}, {}, {}, backward=True)


def answer(**run: Any) -> dict[str, Any]:
    out = tensor("b0")
    step = launch({"x_ptr": argument("x"), "out_ptr": out})
    trace = {
        "guards": [], "steps": [step], "hints": {"M": 4, "N": 8}, "buffers": [buffer("b0")],
        "outputs": [out], "raises": "", "place": "", "decisions": {}, "boundary": {},
        "saved": [], "gradients": [],
    }  # fmt: skip
    configuration = {"dtype:x": "float16"}
    runs = [{"configuration": configuration, "traces": [trace], "unproven": [], "dropped": 0}]
    return {
        "parameters": ["x"], "defaults": {}, "kind": "function", "source": "ops/norm.py",
        "line": 1, "contiguous": [], "runs": [{**runs[0], **run}],
    }  # fmt: skip


def test_the_source_is_that_of_the_module() -> None:
    assert source_of(DECLARATION, ["a.py", "ops/norm.py"]) == "ops/norm.py"
    with pytest.raises(UsageError, match=r"no source is the module `ops\.norm`"):
        source_of(DECLARATION, ["a.py"])


def test_unproven_conditions_are_notes(tmp_path: Path) -> None:
    wrapper, notes = _read(DECLARATION, answer(unproven=[["M < 8", "not (N < 8)"]]), 2, tmp_path)
    assert wrapper.schema == "norm(Tensor x) -> Tensor"
    assert notes == ("no call was found with (N < 8) false",)


def test_too_many_paths_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match="too many paths: 3 more were not followed") as caught:
        _read(DECLARATION, answer(dropped=3), 2, tmp_path)
    assert "narrow the `sizes`" in caught.value.hint


def test_errors_have_the_line_in_the_project(tmp_path: Path) -> None:
    place = f"{tmp_path.resolve()}/ops/norm.py:7"
    with pytest.raises(CheckError) as caught:
        _read(DECLARATION, {"error": "asks what is in a tensor", "place": place}, 2, tmp_path)
    assert caught.value.message == "ops/norm.py:7: `ops.norm:norm` asks what is in a tensor"
