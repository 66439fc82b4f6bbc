from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbuild.capture.python import HEAD, wrapper_source


class Ops:
    """The ops of a package: answers with what they are called with."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.results(name, args)

    def __init__(self, **results: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers = results

    def results(self, name: str, args: tuple[Any, ...]) -> Any:
        self.calls.append((name, *args))
        return self.answers.get(name)


class Context:
    needs_input_grad = (True, False, True)

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors


def run(wrapper: dict[str, Any], ops: Ops) -> dict[str, Any]:
    """The names of the wrapper's module, with what it registers."""
    registered: list[tuple[Any, ...]] = []
    names = {
        "ops": ops,
        "_whole": lambda *values: registered.append(values),
        "_gradients": lambda *values: registered.append(values),
    }
    exec(compile(wrapper_source(wrapper), "wrapper", "exec"), names)  # noqa: S102
    return {**names, "registered": registered}


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


def test_the_head_compiles() -> None:
    compile(HEAD, "head", "exec")


def test_the_whole_is_registered_with_its_schema() -> None:
    ops = Ops(_norm_forward=("out", "saved"))
    names = run(WRAPPER, ops)
    assert names["registered"] == [
        ("_norm_forward", names["_backward_norm"], names["_setup_norm"]),
        ("norm", WRAPPER["schema"], names["_call_norm"]),
    ]
    assert names["_call_norm"]("x", "w") == "out"
    assert names["_call_norm"]("x", "w", eps=0.5) == "out"
    assert ops.calls == [("_norm_forward", "x", "w", 1e-6), ("_norm_forward", "x", "w", 0.5)]


def test_the_backward_op_gets_what_the_forward_op_had() -> None:
    ops = Ops(_norm_backward=("dx", "dw"))
    names = run(WRAPPER, ops)
    context = Context()
    x = SimpleNamespace(size=[5, 7].__getitem__)
    names["_setup_norm"](context, (x, "w", 0.5), ("out", "saved"))
    assert context.saved_tensors == (x, "w", "saved")
    assert names["_backward_norm"](context, "grad", None) == ("dx", "dw", None)
    assert ops.calls == [("_norm_backward", "grad", x, "w", "saved", 0.5, 5, True)]


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
    names = run(wrapper, ops)
    context = Context()
    names["_setup_norm"](context, ("x",), "out")
    assert names["_backward_norm"](context, "grad") == ("dx",)
    assert names["_call_norm"]("x") == "out"
    assert ops.calls == [("_norm_backward", "grad", "x"), ("_norm_forward", "x")]


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
    names = run(wrapper, ops)
    assert names["_backward_norm"](Context(), "grad") == ("grad", None)
    assert ops.calls == [("_norm_backward", "grad")]


def test_a_function_that_changes_its_argument() -> None:
    wrapper = {
        **WRAPPER,
        "parameters": [["x", ""]],
        "all_parameters": ["x"],
        "tensors": ["x"],
        "forward": op("_norm_forward", "x", "", [["argument", "x"]]),
        "backward": op("_norm_backward", "x", "d_x", [["result", "d_x"]]),
    }
    ops = Ops(_norm_backward="dx")
    names = run(wrapper, ops)
    context = Context()
    names["_setup_norm"](context, ("x",), ())
    assert context.saved_tensors == ("x",)
    assert names["_backward_norm"](context) == ("dx",)
    assert names["_call_norm"]("x") == "x"


def test_what_is_saved_is_not_returned() -> None:
    forward = op("_f", "x", "out0 out1 saved0", [
        ["result", "out0"], ["result", "out1"], ["result", "saved0"],
    ])  # fmt: skip
    wrapper = {**WRAPPER, "backward": None, "outputs": ["out0", "out1"], "forward": forward}
    wrapper |= {"parameters": [["x", ""]], "all_parameters": ["x"]}
    names = run(wrapper, Ops(_f=("a", "b", "c")))
    assert names["_call_norm"]("x") == ("a", "b")


def test_a_function_that_is_one_op_needs_no_python() -> None:
    forward = op("norm", "x", "out", [["result", "out"]])
    assert wrapper_source({**WRAPPER, "forward": forward, "backward": None}) == ""
