"""`_aot.py` and `_ops.py` of extensions for TVM-FFI, beside functions in Python for its runtime."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tomli

from kbuild.dsl.python_package import PYTHON_FOLDER, package_files
from kbuild.ops.section import read_section
from kbuild.system import rendering

numpy: Any = pytest.importorskip("numpy", minversion="2.0")
torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # Torch's own, while it traces.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
SECTION = """
language = "tilelang"
toolchain = "tilelang==0.1.15"
src = ["k.py"]

[[op]]
schema = "axpy(Tensor x, Tensor y, *, float alpha=1.0) -> Tensor out"
shapes = { y = "x", out = "x" }
dtypes = ["float32", "float64"]

[[op]]
schema = "halves(Tensor x, Tensor? w, int n=2) -> (Tensor low, Tensor high)"
shapes = { x = ["...", "M"], w = ["M"], low = ["...", "cdiv(M, 2)"], high = ["...", "max(M, 2)"] }
dtypes = { x = ["float32"], w = "x", low = "x", high = "int32" }

[[op]]
schema = "fill_(Tensor(a!) x, float value) -> ()"
shapes = { x = ["M", "N"] }
dtypes = ["float32"]

[[op]]
schema = "join(Tensor[] xs, Tensor?[2] ys, int n=1) -> Tensor"
shapes = { xs = ["M"], "xs[1]" = ["N"], ys = ["M"], out = ["M + N"] }
dtypes = ["float32"]

[[op]]
schema = "late(Tensor x, float a, Tensor y) -> Tensor"
shapes = { y = "x", out = "x" }
dtypes = ["float32"]
"""
NAMESPACES = count()


class Runtime:
    """What `load_module` gives; its functions take arguments and results as the launcher does."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def axpy(self, x: Any, y: Any, alpha: float, *results: Any) -> Any:
        self.calls.append("axpy")
        if getattr(x, "is_meta", False):
            raise RuntimeError("Cannot pack tensors on meta")
        total = x + alpha * y
        return results[0].__setitem__(..., total) if results else total

    def halves(self, x: Any, w: Any, n: int, *results: Any) -> Any:
        self.calls.append("halves")
        if not results:
            return [x[..., : -(-x.shape[-1] // 2)], x.int()]
        low, high = results
        low[...], high[...] = x[..., : low.shape[-1]], n
        return None

    def fill_(self, x: Any, value: float) -> None:
        self.calls.append("fill_")
        x[...] = value

    def late(self, x: Any, a: float, y: Any) -> Any:
        return x + a * y

    def join(self, xs: Any, ys: Any, n: int, *results: Any) -> Any:
        self.calls.append("join")
        assert len(ys) <= 2
        if isinstance(xs[0], torch.Tensor) and xs[0].is_meta:
            raise RuntimeError("Cannot pack tensors on meta")
        library = torch if isinstance(xs[0], torch.Tensor) else numpy
        total = library.concatenate(list(xs)) + sum(one.sum() for one in ys if one is not None)
        return results[0].__setitem__(..., total) if results else total

    def _kbuild_preload(self, device: int) -> None:
        self.calls.append(f"preload {device}")

    def _kbuild_choose(self, launch: int, candidate: int) -> None:
        self.calls.append(f"choose {launch} {candidate}")


def written(control: bool) -> dict[str, str]:
    reading = read_section("k", tomli.loads(SECTION))
    assert not reading.issues
    files = package_files([(op, []) for op in reading.ops], Path(), "tvm-ffi", control=control)
    return {path.removeprefix(f"{PYTHON_FOLDER}/"): data.decode() for path, data in files.items()}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The package as a build makes it, with its module `_ops` and the runtime that it loaded."""
    name = f"kbuild_functions_{next(NAMESPACES)}"
    ops = rendering.render(
        "project/ops_tvm_ffi.py.j2",
        aot=True, ops_name=name, extension_file="x.so", dispatch_key="CPU", jax_platform="cpu",
    )  # fmt: skip
    folder = tmp_path / name
    folder.mkdir()
    for path, text in {**written(control=True), "_ops.py": ops, "__init__.py": ""}.items():
        ast.parse(text, feature_version=(3, 9))
        (folder / path).write_text(text)
    runtime, stand_in = Runtime(), ModuleType("tvm_ffi")
    stand_in.load_module = lambda _: runtime  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tvm_ffi", stand_in)
    monkeypatch.syspath_prepend(tmp_path)
    made = importlib.import_module(f"{name}._ops")
    yield SimpleNamespace(
        _ops=made, ops=made.ops, runtime=runtime, operators=getattr(torch.ops, name)
    )
    for library in made._libraries:
        library._destroy()


def test_the_short_way_for_tensors_of_torch(package):
    x, y = torch.randn(3), torch.randn(3)
    assert torch.equal(package.ops.axpy(x, y, alpha=2.0), x + 2.0 * y)
    out = torch.empty(3)
    assert package.ops.axpy(x, y=y, out=out) is out
    assert torch.equal(out, x + y)
    with pytest.raises(TypeError, match="positional"):
        package.ops.axpy(x, y, 2.0)
    package.ops.fill_(out, 2.0)
    assert out.tolist() == [2.0] * 3


def test_results_of_other_libraries_are_made(package):
    x = numpy.arange(3.0, dtype="float64")
    out = package.ops.axpy(x, x)
    assert out.dtype == x.dtype
    assert out.tolist() == [0, 2, 4]
    assert package.ops.axpy(x, x, alpha=0.0, out=x) is x
    x = numpy.ones((4, 2, 5), "float32")
    low, high = package.ops.halves(x, None)
    assert (low.shape, low.dtype, high.shape, high.dtype) == ((4, 2, 3), "f4", (4, 2, 5), "i4")
    with pytest.raises(RuntimeError, match="x must have at least 1 dimension"):
        package.ops.halves(numpy.float32(1.0), None)


@pytest.mark.parametrize("library", [torch, numpy])
def test_lists_of_tensors(package, library):
    x, y = library.ones(2, dtype=library.float32), library.ones(3, dtype=library.float32)
    assert package.ops.join([x, y], []).tolist() == [1] * 5
    assert package.ops.join((x, y), [None, x]).tolist() == [3] * 5
    assert package.ops.join([x, y], (x,), n=2, out=library.zeros(5)).tolist() == [3] * 5
    calls = package.runtime.calls
    calls.clear()
    for xs, ys, words in (
        ([x], [], "join: xs must have 2 tensors"),
        ([x, y], [x, x, x], "join: ys must have up to 2 tensors"),
    ):
        with pytest.raises(RuntimeError, match=words):
            package.ops.join(xs, ys)
    assert calls == []


def test_torch_traces_lists_of_tensors(package):
    x, y = torch.ones(2), torch.ones(3)
    torch.library.opcheck(package.operators.join.default, ([x, y], [None]))

    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def model(x, y):
        return package.ops.join([x + 1, y], [x])

    assert model(x, y).tolist() == [4, 4, 3, 3, 3]
    assert package.ops.join([x.to("meta"), y.to("meta")], []).shape == (5,)


def test_several_results_are_tensors_of_torch(package):
    found = package.ops.halves(torch.ones(5), torch.ones(5))
    assert [type(one) for one in found] == [torch.Tensor] * 2
    made = [torch.empty(3), torch.empty(5, dtype=torch.int32)]
    assert package.ops.halves(torch.ones(5), None, 7, *made) == tuple(made)
    assert made[1].tolist() == [7] * 5
    with pytest.raises(TypeError, match="NoneType"):
        package.ops.halves(torch.ones(5), None, low=made[0])


def test_operators(package):
    x, y = torch.randn(3), torch.randn(3)
    torch.library.opcheck(package.operators.axpy.default, (x, y), {"alpha": 0.5})
    assert torch.equal(package.operators.axpy(x, y), x + y)
    package.operators._kbuild_preload()
    package.operators._kbuild_choose(1, 2)
    assert package.runtime.calls[-2:] == ["preload 0", "choose 1 2"]


def test_torch_traces_operators(package):
    """The runtime never sees what has no data."""
    x, y = torch.randn(3), torch.randn(3)
    compiled = torch.compile(package.ops.axpy, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, y, alpha=3.0), x + 3.0 * y)
    assert torch.equal(torch.vmap(package.ops.axpy)(x, y), x + y)
    package.runtime.calls.clear()
    with torch._subclasses.fake_tensor.FakeTensorMode():
        fake = torch.empty(2, 3)
        assert package.ops.axpy(fake, fake).shape == (2, 3)
    with pytest.raises(TypeError, match="a FakeTensor has no data"):
        package.ops.axpy(x, x, out=fake)
    assert package.runtime.calls == []
    assert package.ops.axpy(x.to("meta"), y.to("meta")).is_meta


def test_gradients_are_the_operators(package):
    name = package._ops.add_op_namespace_prefix("axpy")
    torch.library.register_autograd(
        name, lambda _, grad: (3 * grad, None, None), setup_context=keep
    )
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    package.ops.axpy(x, y).sum().backward()
    assert x.grad.tolist() == [3, 3]
    with torch.no_grad():
        assert not package.ops.axpy(x, y).requires_grad
    package.ops.halves(y, None)
    assert package.ops.halves(x, x)[0].requires_grad


def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """A derivative that needs nothing."""


def test_mistakes_are_named(package):
    x = torch.randn(3)
    with pytest.raises(RuntimeError, match="argument 'y' but instead found type 'ndarray'"):
        package.ops.axpy(x, x.numpy())
    with pytest.raises(TypeError, match=r"like a .*\.Buffer cannot be made here"):
        package.ops.axpy(Buffer(), Buffer())
    lacking = numpy.ones(3, "float32").view(Lacking)
    with pytest.raises(TypeError, match="has no int32; pass the results, too"):
        package.ops.halves(lacking, None)


def test_a_library_before_the_array_standard(package, monkeypatch):
    """CuPy's arrays name no namespace; the module of their type makes them."""
    monkeypatch.setitem(sys.modules, "early", SimpleNamespace(empty=numpy.empty, asarray=None))
    x = numpy.arange(3, dtype="float32").view(Early)
    assert package.ops.axpy(x, x, alpha=2.0).tolist() == [0, 3, 6]


class TestJax:
    def test_arrays_then_numbers_then_results(self, package):
        assert package._ops._jax_order("axpy") == ["args", "attrs.alpha", "rets"]
        assert package._ops._jax_order("halves") == ["args", "attrs.n", "rets"]
        with pytest.raises(TypeError, match="late: JAX passes arrays before numbers"):
            package._ops._jax_order("late")
        with pytest.raises(TypeError, match="join: JAX passes no lists of arrays; register"):
            package._ops._jax_order("join")

    def test_numbers_have_their_defaults(self, package):
        def call(*arrays: Any, **numbers: Any) -> Any:
            return arrays, numbers

        run = package._ops._jax_call("halves", call)
        assert run(1, 2) == ((1, 2), {"n": 2})
        assert run(1, 2, n=3) == ((1, 2), {"n": 3})
        with pytest.raises(TypeError, match="halves: it has no m; pass numbers by name"):
            run(1, 2, m=3)
        with pytest.raises(TypeError, match="fill_: it needs value"):
            package._ops._jax_call("fill_", call)(1)

    def test_its_arrays_are_no_results(self, package, monkeypatch):
        monkeypatch.setitem(
            sys.modules,
            "jax",
            SimpleNamespace(Array=numpy.ndarray, core=SimpleNamespace(Tracer=int)),
        )
        with pytest.raises(TypeError, match="call it through `jax_ffi_call`"):
            package.ops.axpy(numpy.ones(3), numpy.ones(3))


class Lacking(numpy.ndarray):  # type: ignore[misc]
    """An array of a library that has few dtypes."""

    def __array_namespace__(self, **_: Any) -> Any:
        return SimpleNamespace(__name__="lacking", empty=numpy.empty, float32=numpy.float32)


class Early(numpy.ndarray):  # type: ignore[misc]
    """An array of a library that does not know the standard."""

    __module__ = "early.core"

    @property
    def __array_namespace__(self) -> Any:
        raise AttributeError("__array_namespace__")


class Buffer:
    """It has a shape and a dtype, and no array library stands behind it."""

    shape, dtype = (3,), "float32"
