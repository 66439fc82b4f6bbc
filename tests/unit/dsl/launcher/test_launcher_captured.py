"""Ops of captured functions as packages have them: gradients, `torch.compile`, `opcheck`."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbuild.dsl.python_package import AOT_MODULE, PYTHON_FOLDER, package_files
from kbuild.ops.model import Projection
from kbuild.ops.schema.parser import parse_schema
from kbuild.plugins.capture.captured_modules import OPS_MODULE, ops_source, projections
from kbuild.plugins.capture.functions_module import FUNCTIONS_MODULE, captured_source
from tests.support.launcher.launched import Driver, Kernel, extension, files_of, launched, ops_of

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]
SPACE = "_captured_tests"
TOUCH = """
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = [1]
args = { p = "x" }
"""
TEXT = f"""
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]

[[kernel.k.op]]
schema = "_scale_forward(Tensor x, Tensor? w=None, float s=2.0) -> (Tensor out, Tensor saved0)"
shapes = {{ x = ["M", "N"], w = ["N"], out = "x", saved0 = "x", t0 = "x" }}
dtypes = {{ x = "float32", w = "x", out = "x", saved0 = "x", t0 = "x" }}
temporaries = ["t0"]
{TOUCH}
[[kernel.k.op.launch]]
aten = "contiguous"
arguments = ["x"]
results = ["t0"]
[[kernel.k.op.launch]]
aten = "mul.Tensor"
arguments = ["t0", "s"]
results = ["saved0"]
[[kernel.k.op.launch]]
aten = "mul.Tensor"
arguments = ["saved0", "w"]
results = ["out"]
when = "has(w)"
[[kernel.k.op.launch]]
aten = "clone"
arguments = ["saved0"]
results = ["out"]
when = "not has(w)"

[[kernel.k.op]]
schema = "_scale_backward(Tensor grad_0, Tensor x, Tensor? w, Tensor saved0, float s, int M, \
bool needs_x, bool needs_w) -> (Tensor? d_x, Tensor? d_w)"
shapes = {{ grad_0 = ["M", "N"], x = "grad_0", w = ["N"], saved0 = "x", d_x = "x", d_w = ["N"], \
t0 = "x", t1 = "x" }}
dtypes = {{ grad_0 = "float32", x = "grad_0", w = "x", saved0 = "x", d_x = "x", d_w = "x", \
t0 = "x", t1 = "x" }}
returned = {{ d_x = "needs_x", d_w = "needs_w" }}
temporaries = ["t0", "t1"]
{TOUCH}
[[kernel.k.op.launch]]
aten = "mul.Tensor"
arguments = ["grad_0", "s"]
results = ["t0"]
[[kernel.k.op.launch]]
aten = "mul.Tensor"
arguments = ["t0", "w"]
results = ["d_x"]
when = "needs_x and has(w)"
[[kernel.k.op.launch]]
aten = "clone"
arguments = ["t0"]
results = ["d_x"]
when = "needs_x and not has(w)"
[[kernel.k.op.launch]]
aten = "mul.Tensor"
arguments = ["grad_0", "saved0"]
results = ["t1"]
when = "needs_w"
[[kernel.k.op.launch]]
aten = "sum.dim_IntList"
arguments = ["t1", [0], false]
results = ["d_w"]
when = "needs_w"

[[kernel.k.op]]
schema = "_pair_forward(Tensor x) -> (Tensor out0, Tensor out1)"
shapes = {{ x = ["M", "N"], out0 = "x", out1 = "x" }}
dtypes = ["float32"]
{TOUCH}
[[kernel.k.op.launch]]
aten = "neg"
arguments = ["x"]
results = ["out0"]
[[kernel.k.op.launch]]
aten = "exp"
arguments = ["x"]
results = ["out1"]

[[kernel.k.op]]
schema = "_pair_backward(Tensor grad_0, Tensor grad_1, Tensor out1) -> (Tensor d_x)"
shapes = {{ grad_0 = ["M", "N"], grad_1 = ["M", "N"], out1 = ["M", "N"], d_x = ["M", "N"], \
t0 = ["M", "N"] }}
dtypes = ["float32"]
temporaries = ["t0"]
{TOUCH.replace('"x"', '"out1"')}
[[kernel.k.op.launch]]
aten = "mul.Tensor"
arguments = ["grad_1", "out1"]
results = ["t0"]
[[kernel.k.op.launch]]
aten = "sub.Tensor"
arguments = ["t0", "grad_0", 1]
results = ["d_x"]
"""


def op(name: str, arguments: str, results: str, kinds: str) -> dict[str, Any]:
    pairs = [["none", ""] if word == "-" else ["result", word] for word in kinds.split()]
    return {
        "name": name, "arguments": arguments.split(), "results": results.split(), "outputs": pairs,
    }  # fmt: skip


SCALE = {
    "name": "scale",
    "schema": "scale(Tensor x, Tensor? w=None, float s=2.0) -> Tensor",
    "parameters": [["x", ""], ["w", "None"], ["s", "2.0"]],
    "all_parameters": ["x", "w", "s"],
    "tensors": ["x", "w"],
    "outputs": ["out"],
    "forward": op("_scale_forward", "x w s", "out saved0", "out saved0"),
    "backward": {
        **op("_scale_backward", "grad_0 x w saved0 s M needs_x needs_w", "d_x d_w", "d_x d_w -"),
        "sizes": {"M": ["x", 0]},
    },
}
PAIR = {
    "name": "pair",
    "schema": "pair(Tensor x) -> (Tensor, Tensor)",
    "parameters": [["x", ""]],
    "all_parameters": ["x"],
    "tensors": ["x"],
    "outputs": ["out0", "out1"],
    "forward": op("_pair_forward", "x", "out0 out1", "out0 out1"),
    "backward": {**op("_pair_backward", "grad_0 grad_1 out1", "d_x", "d_x"), "sizes": {}},
}
# Returns its argument beside the result: Python calls the forward op.
BESIDE = {
    **PAIR,
    "name": "beside",
    "schema": "beside(Tensor x) -> (Tensor, Tensor)",
    "outputs": ["out0", "x"],
    "forward": {
        **op("_pair_forward", "x", "out0 out1", ""),
        "outputs": [["result", "out0"], ["argument", "x"]],
    },
    "backward": {**op("_pair_backward", "grad_0 out1 out1", "d_x", "d_x"), "sizes": {}},
}  # fmt: skip
WRAPPERS = (SCALE, PAIR, BESIDE)


@pytest.fixture(scope="module")
def ops(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("captured")
    specs = ops_of(TEXT)
    touch = {"touch": Kernel(("p", "BLOCK!"))}
    compiled = []
    for spec in specs:
        own = [wrapper for wrapper in WRAPPERS if wrapper["forward"]["name"] == spec.name]
        projected = [one for wrapper in own for one in projections(wrapper)]
        spec = replace(spec, projections=tuple(  # noqa: PLW2901
            Projection(parse_schema(one["schema"]), tuple(one["results"])) for one in projected
        ))  # fmt: skip
        compiled.append(launched(spec, touch, ["sm_90a"]))
    path = extension(files_of("k", compiled), folder, SPACE, "-O0")
    torch.ops.load_library(str(path))
    specs = [op.spec for op in compiled]
    files = package_files([(spec, []) for spec in specs], Path(), modules=["_captured_ops"])
    package = folder / "captured_package"
    package.mkdir()
    package.joinpath("__init__.py").touch()
    package.joinpath("_ops.py").write_text(
        f"import torch\nops = torch.ops.{SPACE}\n"
        f"def add_op_namespace_prefix(name): return f'{SPACE}::{{name}}'\n"
    )
    package.joinpath(AOT_MODULE).write_bytes(files[f"{PYTHON_FOLDER}/{AOT_MODULE}"])
    package.joinpath(FUNCTIONS_MODULE).write_text(captured_source(WRAPPERS))
    package.joinpath(OPS_MODULE).write_text(ops_source(WRAPPERS))
    sys.path.insert(0, str(folder))
    importlib.import_module("captured_package._aot")
    return torch.ops._captured_tests


@pytest.fixture(scope="module", params=["ops", "functions"])
def captured(ops: Any, request: pytest.FixtureRequest) -> Any:
    """What users call: ops, or functions that call them."""
    functions = request.param == "functions"
    return importlib.import_module("captured_package._captured") if functions else ops


def inputs(*needs: bool) -> tuple[Any, Any]:
    torch.manual_seed(0)
    x, w = torch.randn(3, 8), torch.randn(8)
    return tuple(t.requires_grad_(need) for t, need in zip((x, w), needs, strict=False))


def test_the_op_returns_what_the_function_returns(captured: Any, driver: Driver) -> None:
    x, w = inputs(False, False)
    driver.said()
    assert torch.equal(captured.scale(x, w, 3.0), x * 3 * w)
    assert len(driver.launches()) == 1
    assert torch.equal(captured.scale(x), x * 2)
    assert torch.equal(captured.scale(x.t().contiguous().t(), s=0.5), x * 0.5)
    with torch.inference_mode():
        assert torch.equal(captured.scale(x, w), x * 2 * w)


@pytest.mark.parametrize("is_contiguous", [True, False])
def test_contiguous_tensors_are_not_copied(ops: Any, is_contiguous: bool) -> None:
    x = torch.randn(3, 8) if is_contiguous else torch.randn(8, 3).t()
    with torch.autograd.profiler.profile() as profile:
        ops._scale_forward(x, None, 2.0)
    assert (
        any(event.name == "aten::contiguous" for event in profile.function_events) != is_contiguous
    )


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_gradients(captured: Any, needs: tuple[bool, bool]) -> None:
    x, w = inputs(*needs)
    captured.scale(x, w, 3.0).backward(torch.ones(3, 8))
    assert (x.grad is not None, w.grad is not None) == needs
    if needs[0]:
        assert torch.allclose(x.grad, (3 * w).detach().expand(3, 8))
    if needs[1]:
        assert torch.allclose(w.grad, 3 * x.detach().sum(0))


def test_an_argument_may_be_none(captured: Any) -> None:
    (x,) = inputs(True)
    captured.scale(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 8), 2.0))


def test_one_tensor_twice(captured: Any) -> None:
    w = torch.randn(8, requires_grad=True)
    (gradient,) = torch.autograd.grad(captured.scale(w.expand(3, 8), w).sum(), w)
    assert torch.allclose(gradient, 3 * 2 * 2 * w)


def test_nothing_is_recorded_where_no_gradient_is_wanted(captured: Any) -> None:
    x, w = inputs(True, True)
    with torch.no_grad():
        assert not captured.scale(x, w).requires_grad
    assert not captured.scale(x.detach(), w.detach()).requires_grad
    assert captured.scale(x, w).requires_grad


def test_a_result_may_be_without_gradient(captured: Any) -> None:
    (x,) = inputs(True)
    out0, _ = captured.pair(x)
    (gradient,) = torch.autograd.grad(out0.sum(), x)
    assert torch.equal(gradient, -torch.ones(3, 8))
    _, out1 = captured.pair(x)
    (gradient,) = torch.autograd.grad(out1.sum(), x)
    assert torch.allclose(gradient, x.exp())


def test_a_function_that_returns_its_argument(captured: Any) -> None:
    (x,) = inputs(True)
    out, same = captured.beside(x)
    assert same is x
    assert torch.equal(out, -x)
    assert out.requires_grad


def test_one_graph(captured: Any) -> None:
    x, w = inputs(True, True)
    function = torch.compile(
        lambda x, w: captured.scale(x * 2, w, 3.0) + 1,
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    got = torch.autograd.grad(function(x, w).sum(), (x, w))
    want = torch.autograd.grad((x * 2 * w * 3 + 1).sum(), (x, w))
    assert all(torch.allclose(a, b) for a, b in zip(got, want, strict=True))
    with torch.no_grad():
        assert torch.allclose(function(x, w), x * 6 * w + 1)


@pytest.mark.parametrize("needs", [(True, True), (False, False)])
def test_opcheck(ops: Any, needs: tuple[bool, bool]) -> None:
    x, w = inputs(*needs)
    assert str(ops.scale.default._schema).endswith("-> Tensor")
    torch.library.opcheck(ops.scale.default, (x, w, 3.0))
    torch.library.opcheck(ops.scale.default, (x,))
    torch.library.opcheck(ops.pair.default, (x,))
    torch.library.opcheck(ops._scale_forward.default, (x.detach(), w.detach(), 3.0))


def test_transforms_are_refused_where_torch_refuses_them(captured: Any) -> None:
    x, w = inputs(False, False)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: captured.scale(x, w).sum())(x)


def test_vmap_and_checkpoints(captured: Any) -> None:
    x, w = inputs(True, True)
    rows = torch.vmap(lambda x: captured.scale(x, w.detach()))(x.detach().expand(2, 3, 8))
    assert torch.equal(rows[1], (x * 2 * w).detach())
    own = torch.stack([x, x]).detach().requires_grad_()
    torch.vmap(lambda x: captured.scale(x, w.detach()))(own).sum().backward()
    assert torch.allclose(own.grad, (2 * w).detach().expand(2, 3, 8))
    checkpoint = torch.utils.checkpoint.checkpoint
    out = checkpoint(lambda x: captured.scale(x, w), x, use_reentrant=False)
    assert torch.allclose(torch.autograd.grad(out.sum(), w)[0], 2 * x.sum(0))
