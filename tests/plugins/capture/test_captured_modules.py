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


def test_the_backward_op_knows_what_the_forward_pass_asked() -> None:
    name, ops = "asked_requires_grad_w", Ops(_norm_backward=("dx", "dw"))
    backward = {
        **op("_norm_backward", f"grad_0 x w {name}", "d_x d_w", WRAPPER["backward"]["outputs"]),
        "asked": {name: "w is not None and w.requires_grad"},
    }
    function = run({**WRAPPER, "backward": backward}, ops)["_Function_norm"]
    x, w = (SimpleNamespace(requires_grad=need) for need in (True, False))
    context = SimpleNamespace(save_for_backward=lambda *tensors: None, saved_tensors=(x, w))
    ops.answers["_norm_forward"] = ("out", "saved")
    function.forward(context, x, w, 0.5)
    function.backward(context, "gradient")
    assert ops.calls[-1] == ("_norm_backward", "gradient", x, w, False)
