from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kbuild.plugins.capture.captured_modules import wrapper_source
from kbuild.plugins.capture.functions import FunctionReader
from kbuild.plugins.capture.programs import CaptureError
from kbuild.plugins.capture.wrappers import CapturedWrapper
from tests.support.captured_runs import argument, buffer, launch, tensor

X = {"shape": ["M", "N"], "dtypes": ["float16", "float32"]}
W = {"shape": ["N"], "dtypes": "x"}
EPS = {"kind": "float", "example": 1e-6}
DESCRIBED: dict[str, dict[str, Any]] = {"x": X, "w": W, "eps": EPS, "group": {"value": None}}


RETURNED: dict[str, Any] = {"structure": "{0}", "classes": {}, "without_gradient": []}


def trace(
    dtype: str, guards: Sequence[str], warps: int, needs: tuple[bool, bool]
) -> dict[str, Any]:
    """`out = norm(x, w)`, which saves `x`, `w` and a number for each row."""
    x, w = argument("x", dtype=dtype), argument("w", ["N"], dtype)
    out, row = tensor("b0", dtype=dtype), tensor("b1", ["M"], dtype="float32")
    grad = argument("grad_0", dtype=dtype)
    forward = launch(
        {"x_ptr": x, "w_ptr": w, "out_ptr": out, "row_ptr": row, "eps": {"float": "eps"}},
        options={"num_warps": warps},
        written=("out_ptr", "row_ptr"),
    )
    steps, gradients = [], []
    buffers = [buffer("b0", dtype=dtype), buffer("b1", ["M"], "a.py:3", "float32")]
    for at, (name, sizes) in enumerate((("x", ["M", "N"]), ("w", ["N"]))):
        if not needs[at]:
            gradients.append(None)
            continue
        made = f"b{len(buffers)}"
        buffers.append(buffer(made, sizes, f"a.py:{at + 7}", dtype))
        gradients.append(tensor(made, sizes, dtype=dtype))
        arguments = {"g_ptr": grad, "x_ptr": x, "row_ptr": row, "out_ptr": gradients[-1]}
        arguments |= {"rows": {"int": "M"}, "eps": {"float": "eps"}} if name == "w" else {}
        steps.append(launch(arguments, line=f"a.py:{at + 9}"))
    return {
        "guards": [*guards],
        "steps": [forward, *steps],
        "hints": {"M": 4, "N": 8},
        "buffers": buffers,
        "outputs": [out],
        "raises": "",
        "place": "",
        "decisions": {f"needs_input_grad[{at}]": need for at, need in enumerate(needs)},
        "boundary": {"guards": len(guards), "steps": 1, "buffers": 2},
        "saved": [x, w, row],
        "gradients": [*gradients, None, None],
        **RETURNED,
    }


def test_gpus_of_amd_take_paths_of_their_own() -> None:
    """A function asks whose the GPU is: no other capability is required."""
    found = answer({"float16": paths_of("float16")})
    (run,) = found["runs"]
    amd = [error(["N > 64"]), trace("float16", ["N <= 64"], 2, (True, True))]
    runs = [run, {**run, "configuration": {**run["configuration"], "capability": 0}, "traces": amd}]
    section = read({**found, "runs": runs}).forward.section
    assert not [text for text in section["require"] if text.startswith("capability()")]
    (launched,) = section["launch"]
    whens = {row["num_warps"]: row["when"] for row in launched["configs"]}
    assert whens[2].startswith("capability() == 0")
    assert whens[1].startswith("capability() != 0")


def error(guards: Sequence[str]) -> dict[str, Any]:
    empty = dict.fromkeys(("steps", "buffers", "outputs", "saved", "gradients"), ())
    empty = {name: [] for name in empty} | RETURNED
    head = {"guards": [*guards], "hints": {"M": 4, "N": 99}, "decisions": {}, "boundary": {}}
    return {**empty, **head, "raises": "ValueError: too long", "place": "a.py:2"}


NEEDS = [(True, True), (True, False), (False, True), (False, False)]


def answer(traces: Mapping[str, Sequence[Any]], kind: str = "autograd") -> dict[str, Any]:
    """The worker's, for paths of each dtype."""
    return {
        "parameters": ["x", "w", "eps", "group"],
        "defaults": {"eps": "1e-06", "group": "None"},
        "kind": kind,
        "source": "a.py",
        "line": 1,
        "contiguous": [],
        "runs": [
            {
                "configuration": {"dtype:x": dtype, "dtype:w": dtype},
                "traces": [*paths],
                "unproven": [],
                "dropped": 0,
            }
            for dtype, paths in traces.items()
        ],
    }


def paths_of(dtype: str) -> list[dict[str, Any]]:
    return [
        *(trace(dtype, ["N <= 64", "N < 16"], 1, needs) for needs in NEEDS),
        *(trace(dtype, ["N <= 64", "N >= 16"], 4, needs) for needs in NEEDS),
        error(["N > 64"]),
    ]


def read(found: Mapping[str, Any]) -> CapturedWrapper:
    return FunctionReader("norm", found, DESCRIBED, {}, {"eps": "1e-06"}).read()


@pytest.fixture(scope="module")
def wrapper() -> CapturedWrapper:
    return read(answer({"float16": paths_of("float16"), "float32": paths_of("float32")}))


def test_the_forward_op_returns_what_the_backward_op_needs(wrapper: CapturedWrapper) -> None:
    section = wrapper.forward.section
    assert wrapper.saved == ("saved0",)
    assert section["schema"] == (
        "_norm_forward(Tensor x, Tensor w, float eps=1e-06) -> (Tensor out, Tensor saved0)"
    )
    assert section["shapes"]["saved0"] == ["M"]
    assert section["dtypes"] == {
        "x": ["float16", "float32"], "w": "x", "out": "x", "saved0": "float32",
    }  # fmt: skip
    (step,) = section["launch"]
    assert step["configs"] == [
        {"num_warps": 1, "when": "N < 16"}, {"num_warps": 4, "when": "N >= 16"},
    ]  # fmt: skip
    assert section["require"] == ["N <= 64"]


def test_the_backward_op_takes_what_it_uses(wrapper: CapturedWrapper) -> None:
    assert wrapper.backward is not None
    section = wrapper.backward.section
    assert section["schema"] == (
        "_norm_backward(Tensor grad_0, Tensor x, Tensor saved0, float eps, bool needs_w,"
        " bool needs_x) -> (Tensor? d_x, Tensor? d_w)"
    )
    assert section["returned"] == {"d_x": "needs_x", "d_w": "needs_w"}
    assert [step["when"] for step in section["launch"]] == ["needs_x", "needs_w"]
    assert section["dtypes"]["d_w"] in ("grad_0", "x")
    assert wrapper.sizes == {}


@pytest.mark.parametrize(("dtype", "asked"), [("", "grad_0"), ("float32", "x")])
def test_a_backward_pass_depends_on_the_dtype_of_a_tensor_that_it_does_not_use(
    dtype: str, asked: str
) -> None:
    """It asks for that of the gradient, if both are always the same."""
    traces = {own: [trace(own, [], 4, (True, False))] for own in ("float16", "float32")}
    for own, (path,) in traces.items():
        path["outputs"] = [tensor("b0", dtype=dtype or own)]
        path["gradients"][0] = tensor("b2", dtype=dtype or own)
        for made in path["buffers"]:
            made["dtype"] = dtype or own
        step = path["steps"][1]
        step["launch"] = f"k_{own}"
        step["arguments"]["g_ptr"] = argument("grad_0", dtype=dtype or own)
        del step["arguments"]["x_ptr"]
    backward = read(answer(traces)).backward
    assert backward is not None
    assert ("Tensor x" in backward.section["schema"]) is (asked == "x")
    assert [step["when"] for step in backward.section["launch"]] == [
        f"dtype({asked}) == 'float16'",
        f"dtype({asked}) != 'float16'",
    ]


def test_users_call_one_op(wrapper: CapturedWrapper) -> None:
    assert wrapper.schema == "norm(Tensor x, Tensor w, float eps=1e-06) -> Tensor"
    data = wrapper.to_json()
    assert data["parameters"] == [["x", ""], ["w", ""], ["eps", "1e-06"]]
    assert data["all_parameters"] == ["x", "w", "eps", "group"]
    assert [op["schema"].partition("(")[0] for op in data["ops"]] == [
        "_norm_forward", "_norm_backward",
    ]  # fmt: skip
    compile(wrapper_source(data), "wrapper", "exec")


def test_a_function_that_always_raises_is_refused() -> None:
    with pytest.raises(CaptureError, match="on every path: ValueError: too long") as caught:
        read(answer({"float16": [error([])]}))
    assert caught.value.place == "a.py:2"


def in_place(answered: str) -> dict[str, Any]:
    """A forward pass that writes to `x`, and returns it or what it made."""
    paths = [trace("float16", [], 4, needs) for needs in NEEDS]
    for path in paths:
        path["steps"][0]["written"].append("x_ptr")
        path["outputs"] = [tensor("x") if answered == "x" else path["outputs"][0]]
    return {**answer({"float16": paths}), "contiguous": ["x"]}


def test_an_argument_that_the_forward_pass_writes_to_is_copied_back() -> None:
    wrapper = read(in_place("x"))
    assert wrapper.schema == "norm(Tensor(a!) x, Tensor w, float eps=1e-06) -> Tensor(a!)"
    section = wrapper.forward.section
    assert section["schema"].startswith("_norm_forward(Tensor x, ")
    assert section["launch"][0]["aten"] == "clone"
    assert section["launch"][1]["args"]["x_ptr"] == "out"
    source = wrapper_source(wrapper.to_json())
    assert "    x.copy_(out)\n    return x\n" in source


def test_a_path_that_no_run_took_is_refused() -> None:
    paths = [trace("float16", ["N <= 64", "N < 16"], 1, needs) for needs in NEEDS]
    paths += [trace("float16", ["N <= 64", "N >= 16"], 4, needs) for needs in NEEDS]
    found = answer({"float16": paths})
    found["runs"][0]["unproven"] = [["not (N <= 64)"]]
    wrapper = read(found)
    assert wrapper.forward.section["require"] == ["N <= 64"]
    assert wrapper.backward is not None
    assert wrapper.backward.section["require"] == ["N <= 64"]


def test_a_dimension_may_be_named_as_a_constant_of_a_kernel() -> None:
    paths = paths_of("float16")
    for path in paths:
        for step in path["steps"]:
            step["constants"]["N"] = {"int": "2 * N"}
    section = read(answer({"float16": paths})).forward.section
    assert section["shapes"]["x"] == ["M", "N_size"]
    assert section["require"] == ["N_size <= 64"]
    (step,) = section["launch"]
    assert step["args"]["N"] == "2 * N_size"


def test_an_argument_may_be_named_as_a_constant_of_a_kernel() -> None:
    paths = paths_of("float16")
    for path in paths:
        for step in path["steps"][:1]:
            step["constants"]["eps"] = {"int": "2"}
    data = read(answer({"float16": paths})).to_json()
    assert data["schema"].startswith("norm(Tensor x, Tensor w, float eps=1e-06) -> ")
    forward = data["ops"][0]
    assert "float eps_argument=1e-06" in forward["schema"]
    assert forward["launch"][0]["args"]["eps"] == "eps_argument"
    assert forward["launch"][0]["constants"]["eps"] == 2
    assert data["forward"]["arguments"] == ["x", "w", "eps"]
