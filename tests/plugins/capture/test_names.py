from __future__ import annotations

from typing import Any

import pytest

from kbuild.plugins.capture.description import Declaration, op_names, with_own_kernels

TENSOR = {"shape": ["N"], "dtypes": ["float16"]}


def declared(**arguments: Any) -> Declaration:
    return Declaration("m:f", "f", arguments, dict.fromkeys(arguments, "1"), {}, backward=True)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        (["x", "out", "self", "int", "d_y"], {}),
        (["x", "dim", "size", "min"], {"dim": "dim_", "size": "size_", "min": "min_"}),
        (["min", "min_"], {"min": "min__"}),
        (["_x", "x", "_1"], {"_x": "x_"}),
        (["ctx", "ops", "torch", "rows"], {n: f"{n}_" for n in ("ctx", "ops", "rows", "torch")}),
        (["x", "d_x", "grad_0", "needs_x"], {n: f"{n}_" for n in ("d_x", "grad_0", "needs_x")}),
    ],
)
def test_names_that_mean_something_else_in_an_op(
    parameters: list[str], names: dict[str, str]
) -> None:
    assert op_names(declared(**dict.fromkeys(parameters, TENSOR))) == names


def test_kernels_of_one_application_have_names_of_their_own() -> None:
    texts = {"a.py": "def k(x): pass", "b.py": "def k(y): tl.k(y)\ndef launch_k(): k()"}
    steps = [{"launch": "k", "file": file} for file in texts]
    sample = {"trace": {"steps": [*steps, {"launch": "k", "file": "of another call.py"}]}}
    runs = [{"traces": [{"steps": steps}]}]
    answer = with_own_kernels({"kernels": texts, "runs": runs, "samples": [sample]})
    (run,), (sample,) = answer["runs"], answer["samples"]
    assert [step["launch"] for step in sample["trace"]["steps"]] == ["k", "k_1", "k"]
    assert [step["launch"] for step in run["traces"][0]["steps"]] == ["k", "k_1"]
    assert answer["kernels"]["b.py"] == "def k_1(y): tl.k(y)\ndef launch_k(): k_1()"
