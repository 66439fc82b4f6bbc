from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kbuild.plugins.capture.captured_modules import (
    ops_source,
    projections,
    returned_results,
    wrapper_source,
)
from kbuild.plugins.capture.functions_module import captured_source


class Ops:
    """The ops of a package: answers with what they are called with."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(default=lambda *args: self.results(name, args))

    def __init__(self, **results: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers = results
        self.recording = True

    def results(self, name: str, args: tuple[Any, ...]) -> Any:
        self.calls.append((name, *args))
        return self.answers.get(name)


class Context:
    needs_input_grad = (True, False, True)
    without_gradient: tuple[Any, ...] = ()

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.without_gradient = tensors

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


class Registered(dict[str, Any]):
    """What a wrapper's module registers, by what it is and the op's name."""

    def decorator(self, kind: str) -> Any:
        def register(name: str) -> Any:
            return lambda function: self.setdefault(f"{kind} {name}", function)

        return register


def run(wrapper: dict[str, Any], ops: Ops) -> dict[str, Any]:
    """The names of the wrapper's module, with what it registers."""
    registered = Registered()
    torch = SimpleNamespace(
        autograd=SimpleNamespace(Function=object), is_grad_enabled=lambda: ops.recording,
        _C=SimpleNamespace(_AutoDispatchBelowAutograd=nullcontext),
    )  # fmt: skip
    names = {
        "ops": ops,
        "torch": torch,
        "registered": registered,
        "_applied": lambda function: lambda *args: (function.__name__, *args),
        "_recorded": registered.decorator("recorded"),
        "_whole": lambda name, schema, function: registered.update({name: (schema, function)}),
    }
    exec(compile(wrapper_source(wrapper), "wrapper", "exec"), names)  # noqa: S102
    return names


def op(name: str, arguments: str, results: str, outputs: list[list[str]]) -> dict[str, Any]:
    return {
        "name": name, "arguments": arguments.split(), "results": results.split(),
        "outputs": outputs,
    }  # fmt: skip


WRAPPER = {
    "name": "norm",
    "schema": "norm(Tensor x, Tensor w, float eps=1e-06) -> Tensor",
    "parameters": [["x", ""], ["w", ""], ["eps", "1e-06"]],
    "all_parameters": ["x", "w", "eps", "group"],
    "tensors": ["x", "w"],
    "outputs": ["out"],
    "forward": op("_norm_forward", "x w eps", "out saved0", [["result", "out"], ["result", "s"]]),
    "backward": {
        **op("_norm_backward", "grad_0 x w saved0 eps M needs_x", "d_x d_w", [
            ["result", "d_x"], ["result", "d_w"], ["none", ""], ["none", ""],
        ]),
        "sizes": {"M": ["x", 0]},
    },
}  # fmt: skip


ONE_OP = {
    **WRAPPER,
    "name": "one",
    "forward": op("one", "x", "out", [["result", "out"]]),
    "backward": None,
}


def test_the_head_compiles() -> None:
    compile(ops_source([WRAPPER]), "head", "exec")
    assert ops_source([ONE_OP]) == ""


def test_the_op_has_gradients() -> None:
    names = run(WRAPPER, Ops())
    assert [*names["registered"]] == ["recorded norm"]
    assert returned_results(WRAPPER) == ("out",)


@pytest.mark.parametrize(("recording", "needs"), [(True, False), (False, True), (False, False)])
def test_gradients_are_recorded_where_a_tensor_needs_some(recording: bool, needs: bool) -> None:
    ops = Ops(_norm_inference="out")
    ops.recording = recording
    record = run(WRAPPER, ops)["registered"]["recorded norm"]
    x, w = (SimpleNamespace(requires_grad=need) for need in (False, needs))
    assert record(x, w) == "out"
    assert ops.calls == [("_norm_inference", x, w, 1e-6)]
    w.requires_grad = ops.recording = True
    assert record(x, w, 0.5) == ("_Function_norm", x, w, 0.5)


def test_the_function_calls_the_op_without_gradients_where_none_are_recorded() -> None:
    ops = Ops(_norm_inference="fast", norm="out")
    state = SimpleNamespace(recording=True, transforms=False)
    torch = SimpleNamespace(
        is_grad_enabled=lambda: state.recording,
        _C=SimpleNamespace(_are_functorch_transforms_active=lambda: state.transforms),
    )
    text = captured_source([WRAPPER, ONE_OP])
    names = {"_torch": torch, "_ops": ops}
    exec(compile(re.sub(r"(?m)^(import|from) .*$", "", text), "functions", "exec"), names)  # noqa: S102
    assert "one = _ops.one" in text
    x, w = (SimpleNamespace(requires_grad=need) for need in (False, True))
    assert names["norm"](x, w) == "out"
    assert names["norm"](x, x, 0.5) == "fast"
    state.transforms = True
    assert names["norm"](x, x) == "out"
    state.transforms = state.recording = False
    assert names["norm"](x, w) == "fast"
    assert ops.calls[1] == ("_norm_inference", x, x, 0.5)


def test_ops_that_launch_the_same_and_return_less() -> None:
    inference = "_norm_inference(Tensor x, Tensor w, float eps=1e-06) -> Tensor"
    assert [*projections(WRAPPER)] == [
        {"schema": inference, "results": ["out"]},
        {"schema": WRAPPER["schema"], "results": ["out"]},
    ]
    forward = op("_norm_forward", "x w eps", "out", [["result", "out"]])
    assert [*projections({**WRAPPER, "forward": forward})] == [
        {"schema": WRAPPER["schema"], "results": ["out"]}
    ]
    assert [*projections(ONE_OP)] == []


def test_an_argument_that_is_none_needs_no_gradient() -> None:
    wrapper = {**WRAPPER, "schema": "norm(Tensor x, Tensor? w, float eps=1e-06) -> Tensor"}
    ops = Ops(_norm_inference="out")
    record = run(wrapper, ops)["registered"]["recorded norm"]
    assert record(SimpleNamespace(requires_grad=False), None) == "out"


def test_the_backward_op_gets_what_the_forward_op_had() -> None:
    ops = Ops(_norm_forward=("out", "saved"), _norm_backward=("dx", "dw"))
    function = run(WRAPPER, ops)["_Function_norm"]
    context = Context()
    x = SimpleNamespace(size=[5, 7].__getitem__)
    assert function.forward(context, x, "w", 0.5) == "out"
    assert context.saved_tensors == (x, "w", "saved")
    assert function.backward(context, "grad") == ("dx", "dw", None)
    assert ops.calls == [
        ("_norm_forward", x, "w", 0.5),
        ("_norm_backward", "grad", x, "w", "saved", 0.5, 5, True),
    ]


def test_results_that_the_author_marked_have_no_gradient() -> None:
    forward = op("_norm_forward", "x w eps", "out row", [["result", "out"], ["result", "row"]])
    more = {"forward": forward, "outputs": ["out", "row"], "without_gradient": ["row"]}
    backward = {**op("_norm_backward", "grad_0 x", "d_x", [["result", "d_x"], *[["none", ""]] * 3])}
    function = run({**WRAPPER, **more, "backward": backward}, Ops(_norm_forward=("out", "row")))
    context = Context()
    assert function["_Function_norm"].forward(context, "x", "w", 0.5) == ("out", "row")
    assert context.without_gradient == ("row",)


def test_a_single_result() -> None:
    wrapper = {
        **WRAPPER,
        "parameters": [["x", ""]],
        "all_parameters": ["x"],
        "tensors": ["x"],
        "forward": op("_norm_forward", "x", "out", [["result", "out"]]),
        "backward": op("_norm_backward", "grad_0 x", "d_x", [["result", "d_x"]]),
    }
    ops = Ops(_norm_forward="out", _norm_backward="dx")
    function = run(wrapper, ops)["_Function_norm"]
    context = Context()
    assert function.forward(context, "x") == "out"
    assert function.backward(context, "grad") == ("dx",)
    assert ops.calls == [("_norm_forward", "x"), ("_norm_backward", "grad", "x")]


def test_a_gradient_may_be_that_of_the_result() -> None:
    backward = op("_norm_backward", "grad_0", "", [["argument", "grad_0"], ["none", ""]])
    wrapper = {
        **WRAPPER,
        "parameters": [["x", ""], ["w", ""]],
        "all_parameters": ["x", "w"],
        "forward": op("_norm_forward", "x w", "out", [["result", "out"]]),
        "backward": backward,
    }
    ops = Ops()
    function = run(wrapper, ops)["_Function_norm"]
    assert function.backward(Context(), "grad") == ("grad", None)
    assert ops.calls == [("_norm_backward", "grad")]


def test_python_picks_the_results_of_a_function_that_returns_an_argument() -> None:
    forward = op("_norm_forward", "x w eps", "out saved0", [
        ["result", "out"], ["argument", "x"], ["result", "saved0"],
    ])  # fmt: skip
    wrapper = {**WRAPPER, "outputs": ["out", "x"], "forward": forward}
    ops = Ops(_norm_forward=("out", "saved"))
    names = run(wrapper, ops)
    assert returned_results(wrapper) is None
    assert [*names["registered"]] == ["recorded _norm_forward", "norm"]
    schema, call = names["registered"]["norm"]
    assert schema == WRAPPER["schema"]
    assert call("x", "w", eps=0.5) == ("out", "x")
    x = SimpleNamespace(size=[5].__getitem__)
    assert names["_Function_norm"].forward(Context(), x, "w", 1) == (
        "out", "saved",
    )  # fmt: skip


def test_no_value_in_place_of_a_result() -> None:
    forward = op("_norm_forward", "x w eps", "out saved0", [
        ["none", ""], ["result", "out"], ["result", "saved0"],
    ])  # fmt: skip
    assert returned_results({**WRAPPER, "outputs": ["none", "out"], "forward": forward}) == ("out",)


def test_a_function_that_is_one_op_needs_no_python() -> None:
    assert wrapper_source(ONE_OP) == ""
    assert returned_results(ONE_OP) is None


FORWARD = op("_norm_forward", "x out", "result", [["either", "result", "out"]])
WITH_OUT = {
    **WRAPPER,
    "schema": "norm(Tensor x, Tensor(a!)? out=None) -> Tensor(a!)",
    "parameters": [["x", ""], ["out", "None"]],
    "forward": FORWARD,
    "backward": None,
}


@pytest.mark.parametrize(
    ("condition", "result", "returned"),
    [([], None, "given"), ([], "new", "new"), (["not (out is not None)"], "empty", "given")],
)
def test_a_result_may_be_an_argument(condition: list[str], result: Any, returned: str) -> None:
    place = [*FORWARD["outputs"][0], *condition]
    names = run({**WITH_OUT, "forward": {**FORWARD, "outputs": [place]}}, Ops(_norm_forward=result))
    assert names["registered"]["norm"][1]("x", "given") == returned


@pytest.mark.parametrize(
    ("structure", "outputs", "returned"),
    [
        ("[{0}, {1}]", [["result", "out0"], ["result", "out1"]], "[_0, _1]"),
        ("({0}, ({1}, 'a{{'))", [["result", "out0"], ["none", ""]], "(_0, (None, 'a{'))"),
        ("{Pair}({0}, {1})", [["result", "out0"], ["result", "out1"]], "Pair(_0, _1)"),
        ("({0}, {1})", [["result", "out0"], ["result", "out1"]], ""),
    ],
)
def test_functions_return_what_the_author_returns(
    structure: str, outputs: list[list[str]], returned: str
) -> None:
    wrapper = {
        **ONE_OP, "structure": structure, "classes": {"Pair": ["a", "b"]},
        "outputs": [name for _, name in outputs],
        "forward": op("one", "x", "out0 out1", outputs),
    }  # fmt: skip
    source = captured_source([wrapper])
    compile(source, "captured", "exec")
    assert (f"    return {returned}" in source) if returned else "one = _ops.one" in source


def test_named_tuples_of_one_name_are_told_apart() -> None:
    outputs = [["result", "out"]]
    wrappers = [
        {**ONE_OP, "name": name, "structure": "{Pair}({0})", "classes": {"Pair": [name]},
         "forward": op(name, "x", "out", outputs)}
        for name in ("one", "two")
    ]  # fmt: skip
    source = captured_source(wrappers)
    assert "    return Pair(_0)" in source
    assert "    return Pair_1(_0)" in source


def test_a_gradient_that_is_not_captured_is_refused() -> None:
    ops = Ops(one="out")
    refused = {"refused_gradients": ["x"], "parameters": [["x", ""]]}
    names = run({**ONE_OP, **refused, "schema": "one(Tensor x) -> Tensor"}, ops)
    recorded = names["registered"]["recorded one"]
    with pytest.raises(RuntimeError, match="one has a gradient of x in the function"):
        recorded(SimpleNamespace(requires_grad=True))


def test_a_refusal_knows_the_defaults() -> None:
    # Torch leaves out what a call gives the value of the default.
    wrapper = {
        **ONE_OP, "refused_gradients": ["x"], "schema": "one(Tensor x, bool b=False) -> Tensor",
        "parameters": [["x", ""], ["b", "False"]],
        "forward": op("one", "x b", "out", [["result", "out"]]),
    }  # fmt: skip
    x = SimpleNamespace(requires_grad=False)
    ops = Ops(one="out")
    assert run(wrapper, ops)["registered"]["recorded one"](x) == "out"
    assert ops.calls == [("one", x, False)]


def test_functions_have_the_parameters_of_the_author() -> None:
    wrapper = {
        **ONE_OP, "schema": "one(Tensor x, float dim_=1.0) -> Tensor", "renamed": {"dim_": "dim"},
        "parameters": [["x", ""], ["dim_", "1.0"]],
        "forward": op("one", "x dim_", "out", [["result", "out"]]),
    }  # fmt: skip
    source = captured_source([wrapper])
    assert "def one(x, dim=1.0):\n    return _ops.one.default(x, dim)" in source


ASKED = {
    **WRAPPER,
    "forward": {
        **op("_norm_forward", "x w eps asked_allow_tf32", "out saved0",
             [["result", "out"], ["result", "s"]]),
        "asked": {"asked_allow_tf32": "torch.backends.cuda.matmul.allow_tf32"},
    },
}  # fmt: skip


def test_the_op_asks_at_each_call() -> None:
    assert returned_results(ASKED) == ("out",)
    schema = "_norm_asked(Tensor x, Tensor w, float eps=1e-06, bool asked_allow_tf32=False)"
    assert f"{schema} -> Tensor" in [one["schema"] for one in projections(ASKED)]
    ops = Ops(_norm_asked="out")
    names = run(ASKED, ops)
    names["torch"].backends = SimpleNamespace(
        cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=True))
    )
    schema, function = names["registered"]["norm"]
    assert (schema, function("x", "w")) == (WRAPPER["schema"], "out")
    assert ops.calls == [("_norm_asked", "x", "w", 1e-6, True)]
    assert captured_source([ASKED]).endswith("norm = _ops.norm\n")
