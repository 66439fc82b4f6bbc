"""ATen calls and views between launches: what the op returns is what Torch computes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbuild.ops.fake_kernels import fake_source
from tests.support.launcher.launched import (
    Driver,
    Kernel,
    extension,
    files_of,
    launched,
    ops_of,
)

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.compile, pytest.mark.torch]
HEAD = """
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
"""
LAUNCH = """
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = ["cdiv(N, BLOCK)"]
args = { p = "x" }
"""

# An operator, its arguments and its result on `x` and `y` [M, N], `i` of int32, `b` of bool; what
# Torch gives; the dtype of a second result. One for each form of arguments that a call can have.
CASES = {
    "summed": ("sum.dim_IntList", '["x", [0], false, { dtype = "float32" }]', '["N"]', '"float32"',
               lambda x, **_: x.sum(0, dtype=torch.float32)),
    "total": ("sum", '["x"]', "[]", '"x"', lambda x, **_: x.sum()),
    "cast": ("_to_copy", '["x", { dtype = "float64" }]', '"x"', '"float64"',
             lambda x, **_: x.double()),
    "told": ("_to_copy", '["x", "t"]', '"x"', '"t"', lambda x, t, **_: x.to(t)),
    "formatted": ("clone", '["x", { string = "contiguous_format" }]', '"x"', '"x"',
                  lambda x, **_: x.contiguous()),
    "product": ("mul.Tensor", '["x", "y"]', '"x"', '"x"', lambda x, y, **_: x * y),
    "python": ("mul.Tensor", '["x", 0.1]', '"x"', '"x"', lambda x, **_: x * 0.1),
    "scaled": ("mul.Scalar", '["x", "scale * 0.5 / (N + 1)"]', '"x"', '"x"',
               lambda x, scale, **_: x * (scale * 0.5 / (x.shape[1] + 1))),
    "counted": ("mul.Scalar", '["x", "n + 1"]', '"x"', '"x"', lambda x, n, **_: x * (n + 1)),
    "risen": ("mul.Scalar", '["i", 2.5]', '"i"', '"float32"', lambda i, **_: i * 2.5),
    "alpha": ("add.Tensor", '["x", "y", "scale"]', '"x"', '"x"',
              lambda x, y, scale, **_: torch.add(x, y, alpha=scale)),
    "ints": ("add.Tensor", '["i", "i", 3]', '"i"', '"i"',
             lambda i, **_: torch.add(i, i, alpha=3)),
    "mixed": ("sub.Tensor", '["i", "y"]', '"x"', '"x"', lambda i, y, **_: i - y),
    "power": ("pow.Scalar", '[2.0, "x"]', '"x"', '"x"', lambda x, **_: 2.0**x),
    "clamped": ("clamp", '["x", -0.5, "0.25 * scale"]', '"x"', '"x"',
                lambda x, **_: x.clamp(-0.5, 0.5)),
    "floored": ("clamp", '["x", 0]', '"x"', '"x"', lambda x, **_: x.clamp(min=0)),
    "chosen": ("where.ScalarOther", '["b", "x", 0.5]', '"x"', '"x"',
               lambda x, b, **_: torch.where(b, x, 0.5)),
    "masked": ("masked_fill.Scalar", '["x", "b", { float = "-inf" }]', '"x"', '"x"',
               lambda x, b, **_: x.masked_fill(b, -float("inf"))),
    "filled": ("full", '[["N", 2], "scale", { dtype = "float32" }]', '["N", 2]', '"float32"',
               lambda x, scale, **_: torch.full((x.shape[1], 2), scale)),
    "seven": ("full", '[["N"], 7]', '["N"]', '"int64"',
              lambda x, **_: torch.full((x.shape[1],), 7)),
    "joined": ("cat", '[["x", "y"], 1]', '["M", "2 * N"]', '"x"',
               lambda x, y, **_: torch.cat([x, y], 1)),
    "sorted": ("sort", '["x", 1, true]', '"x"', '"x"',
               lambda x, **_: torch.sort(x, 1, True), '"int64"'),
    "largest": ("max.dim", '["x", 1]', '["M"]', '"x"',
                lambda x, **_: torch.max(x, 1), '"int64"'),
    "repeated": ("repeat_interleave.self_int", '["x", "n", 0]', '["M * n", "N"]', '"x"',
                 lambda x, n, **_: x.repeat_interleave(n, 0)),
    "rounded": ("div.Tensor_mode", '["x", "y", "mode"]', '"x"', '"x"',
                lambda x, y, mode, **_: torch.div(x, y, rounding_mode=mode)),
    "padded": ("constant_pad_nd", '["x", [1, 2], "scale"]', '["M", "N + 3"]', '"x"',
               lambda x, scale, **_: torch.nn.functional.pad(x, (1, 2), value=scale)),
    "numbers": ("nan_to_num", '["x", "None", "scale"]', '"x"', '"x"',
                lambda x, scale, **_: torch.nan_to_num(x, None, scale)),
    "places": ("arange", '["N * 2", { dtype = "int32" }]', '["N * 2"]', '"int32"',
               lambda x, **_: torch.arange(x.shape[1] * 2, dtype=torch.int32)),
    "indices": ("arange", '["M"]', '["M"]', '"int64"', lambda x, **_: torch.arange(x.shape[0])),
}  # fmt: skip
ARGUMENTS = (
    "Tensor x, Tensor y, Tensor i, Tensor b, float scale=2.0, int n=3, "
    'str mode=\\"trunc\\", ScalarType t=float64'
)


def _section(name: str) -> str:
    operator, arguments, shape, dtype, _, *more = CASES[name]
    second = "".join(more)
    returned = "(Tensor out, Tensor more)" if second else "(Tensor out)"
    shapes = f", out = {shape}" + (f", more = {shape}" if second else "")
    dtypes = f", out = {dtype}" + (f", more = {second}" if second else "")
    results = '["out", "more"]' if second else '["out"]'
    return f"""
[[kernel.k.op]]
schema = "{name}({ARGUMENTS}) -> {returned}"
shapes = {{ x = ["M", "N"], y = "x", i = "x", b = "x"{shapes} }}
[kernel.k.op.dtypes]
x = ["float16", "float32", "float64", "bfloat16"]
y = "x"
i = "int32"
b = "bool"
t = ["float32", "float64"]
{dtypes[2:].replace(", more", chr(10) + "more")}
{LAUNCH}
[[kernel.k.op.launch]]
aten = "{operator}"
arguments = {arguments}
results = {results}
"""


OTHERS = """
[[kernel.k.op]]
schema = "norm(Tensor x, Tensor(a!) sums, Tensor? weight=None) -> (Tensor heads, Tensor total)"
temporaries = ["turned", "all", "left", "right"]
zero = ["all"]
[kernel.k.op.shapes]
x = ["M", "N"]
sums = ["N"]
weight = ["N"]
total = ["N"]
turned = ["N", "M"]
all = ["2 * M * N"]
left = ["M", "N // 2"]
right = ["M", "N // 2"]
[kernel.k.op.dtypes]
x = ["float32", "float16"]
sums = "float32"
weight = "x"
total = "float32"
turned = "x"
all = "x"
left = "x"
right = "x"
[kernel.k.op.views]
flat = { of = "x", shape = ["M * N"] }
tail = { of = "flat", shape = ["N"], offset = "(M - 1) * N" }
middle = { of = "all", shape = ["M", "N"], offset = "M * N" }
heads = { of = "all", shape = ["N", 2], strides = [1, "N"], offset = "N" }
scale = { of = "weight", shape = ["N"] }
[[kernel.k.op.launch]]
aten = "permute"
arguments = ["x", [1, 0]]
results = ["turned"]
[[kernel.k.op.launch]]
aten = "split.Tensor"
arguments = ["x", "N // 2", 1]
results = ["left", "right"]
[[kernel.k.op.launch]]
aten = "copy_"
arguments = ["middle", "x"]
[[kernel.k.op.launch]]
aten = "mul_.Scalar"
arguments = ["middle", 2]
when = "dtype(x) == 'float16'"
[[kernel.k.op.launch]]
aten = "mul_.Tensor"
arguments = ["middle", "scale"]
when = "has(weight)"
[[kernel.k.op.launch]]
aten = "add_.Tensor"
arguments = ["sums", "tail", -0.5]
[[kernel.k.op.launch]]
function = "rows"
configs = [{ BLOCK = 64 }]
grid = ["size(middle, 0)"]
[kernel.k.op.launch.args]
p = "tail"
q = "turned"
r = "right"
stride = "stride(heads, 1)"
halves = "1.0 / size(tail, 0)"
[[kernel.k.op.launch]]
aten = "sum.dim_IntList"
arguments = ["turned", [1], false, { dtype = "float32" }]
results = ["total"]

[[kernel.k.op]]
schema = "two(Tensor x, bool by_kernel, float p=0.0, float? q=None) -> Tensor out"
shapes = { x = ["M", "N"], out = "x", unused = ["M", "N", 1024, 1024, 1024] }
dtypes = ["float32"]
temporaries = ["unused"]
[[kernel.k.op.launch]]
function = "rows"
configs = [{ BLOCK = 64 }]
grid = ["M"]
args = { p = "out", q = "x", r = "x", stride = 1, halves = 1.0 }
when = "by_kernel"
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = ["M"]
args = { p = "unused" }
when = "N == 1"
[[kernel.k.op.launch]]
aten = "neg"
arguments = ["x"]
results = ["out"]
when = "not by_kernel"
[[kernel.k.op.launch]]
aten = "mul_.Scalar"
arguments = ["out", "p"]
when = "p > 0.0 and not q <= 0.5"

[[kernel.k.op]]
schema = "wrong(Tensor x, int what) -> Tensor out"
shapes = { x = ["M", "N"], out = "x", s = ["N"] }
dtypes = { x = "float32", out = "x", s = "float32" }
temporaries = ["s"]
views = { far = { of = "x", shape = ["N"], offset = "what" } }
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = [1]
args = { p = "far" }
when = "what >= 0"
[[kernel.k.op.launch]]
aten = "sum.dim_IntList"
arguments = ["x", ["-what"]]
results = ["s"]
when = "what < 0"
[[kernel.k.op.launch]]
aten = "clone"
arguments = ["x"]
results = ["out"]
when = "what != -1"
[[kernel.k.op.launch]]
aten = "to.dtype"
arguments = ["s", { dtype = "float16" }, false, true]
results = ["out"]
when = "what == -1"

[[kernel.k.op]]
schema = "pitched(Tensor x, int pitch, int room) -> Tensor out"
shapes = { x = ["M", "N"], memory = ["room"] }
dtypes = { x = "float32", memory = "x" }
temporaries = ["memory"]
views = { out = { of = "memory", shape = ["M", "N"], strides = ["pitch", 1] } }
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = ["M"]
args = { p = "memory" }

[[kernel.k.op]]
schema = "picked(Tensor x, Tensor k, Tensor? w=None, bool more=False) -> (Tensor out, Tensor? z)"
shapes = { x = ["M", "N"], k = ["K"], w = ["N"], out = ["M", "K"], z = ["M", "K"] }
dtypes = { x = "float32", k = "int64", w = "float32", out = "x", z = "x" }
returned = { z = "more" }
views = { scale = { of = "w", shape = ["N"] } }
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = [1]
args = { p = "scale" }
[[kernel.k.op.launch]]
aten = "index.Tensor"
arguments = ["x", ["None", "k"]]
results = ["out"]
[[kernel.k.op.launch]]
aten = "clone"
arguments = ["out"]
results = ["z"]
[[kernel.k.op.launch]]
aten = "native_layer_norm"
arguments = ["x", ["N"], "scale", "None", 1e-5]
results = ["None", "None", "None"]

[[kernel.k.op]]
schema = "turned(Tensor x) -> Tensor out"
shapes = { x = ["M", "N"], out = ["N", "M"], copy = "x" }
dtypes = ["float32"]
temporaries = ["copy"]
[[kernel.k.op.launch]]
function = "touch"
configs = [{ BLOCK = 64 }]
grid = [1]
args = { p = "x" }
[[kernel.k.op.launch]]
aten = "clone"
arguments = ["x"]
results = ["copy"]
[[kernel.k.op.launch]]
aten = "t"
arguments = ["copy"]
results = ["out"]
"""
KERNELS = {
    "touch": Kernel(("p", "BLOCK!")),
    "rows": Kernel(("p", "q", "r", "stride", "halves", "N", "BLOCK!")),
}


def _text() -> str:
    return HEAD + "".join(map(_section, CASES)) + OTHERS


@pytest.fixture(scope="module")
def ops(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    specs = ops_of(_text())
    files = files_of("k", [launched(op, KERNELS, ["sm_90a"]) for op in specs])
    path = extension(files, tmp_path_factory.mktemp("aten"), "_aten_tests", "-O0")
    torch.ops.load_library(str(path))
    names = {"torch": torch, "add_op_namespace_prefix": lambda name: f"_aten_tests::{name}"}
    for spec in specs:
        exec(fake_source(spec), names)  # noqa: S102 - as the package does
    return torch.ops._aten_tests


@pytest.fixture(autouse=True)
def quiet(driver: Driver) -> Iterator[None]:
    driver.said()
    yield
    driver.said()


def _inputs(dtype: Any, shape: tuple[int, int] = (4, 6)) -> dict[str, Any]:
    torch.manual_seed(shape[1])
    return {
        "x": torch.randn(shape).to(dtype),
        "y": torch.randn(shape).to(dtype) + 3,
        "i": torch.arange(shape[0] * shape[1], dtype=torch.int32).reshape(shape),
        "b": torch.rand(shape) > 0.5,
        "scale": 2.0,
        "n": 3,
        "mode": "trunc",
        "t": torch.float64,
    }


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


@pytest.mark.parametrize("name", CASES)
def test_a_call_gives_what_torch_gives(ops, name):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for shape in ((4, 6), (1, 1), (3, 0)):
            if name == "largest" and not shape[1]:
                continue
            inputs = _inputs(dtype, shape)
            results = _as_tuple(getattr(ops, name)(**inputs))
            expected = _as_tuple(CASES[name][4](**inputs))
            for result, value in zip(results, expected, strict=True):
                assert (result.dtype, result.shape) == (value.dtype, value.shape)
                torch.testing.assert_close(result, value, rtol=0, atol=0, equal_nan=True)


def test_views_steps_and_results_share_the_memory_that_they_say(ops, driver):
    for dtype, given in [(torch.float32, True), (torch.float16, False)]:
        x, sums = torch.randn(4, 6).to(dtype), torch.ones(6)
        weight = torch.randn(6).to(dtype) if given else None
        heads, total = ops.norm(x, sums, weight)
        everything = torch.zeros(48, dtype=dtype)
        everything[24:] = (x * weight if given else x * 2).flatten()
        wanted = everything.as_strided((6, 2), (1, 6), 6)
        assert (heads.stride(), heads.storage_offset()) == ((1, 6), 6)
        torch.testing.assert_close(heads, wanted, rtol=0, atol=0)
        torch.testing.assert_close(sums, 1 - 0.5 * x[3].float(), rtol=0, atol=0)
        torch.testing.assert_close(total, x.sum(0, dtype=torch.float32))
        (record,) = driver.launches()
        assert record.grid == (4, 1, 1)
        first = x.data_ptr()
        pointers = [record.integer(at) for at in range(3)]
        assert pointers == [first + 18 * x.itemsize, first, first + 3 * x.itemsize]
        assert record.integer(3) == 6
        assert record.parameters[4] == struct.pack("<f", 1 / 6)


def test_what_no_step_uses_is_not_allocated(ops, driver):
    """`unused` would have 24 billion elements."""
    x = torch.randn(4, 6)
    torch.testing.assert_close(ops.two(x, by_kernel=False), -x)
    assert driver.launches() == []
    torch.testing.assert_close(ops.two(x, False, 0.25), -0.25 * x)
    torch.testing.assert_close(ops.two(x, False, 0.25, 0.75), -0.25 * x)
    torch.testing.assert_close(ops.two(x, False, 0.25, 0.5), -x)
    torch.testing.assert_close(ops.two(x, False, -0.25), -x)
    out = ops.two(x, by_kernel=True)
    (record,) = driver.launches()
    assert record.integer(0) == out.data_ptr()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (18, None),
        (19, "the view `far` has the elements 19 to 24 of `x`, which has 24"),
        (2**62, "of `x`, which has 24"),
        (-7, r"ATen's `aten::sum.dim_IntList` failed: Dimension out of range"),
        (-1, "`aten::to.dtype` returned `out` as float16, not float32"),
    ],
)
def test_what_is_wrong_at_run_time_is_said(ops, what, message):
    x = torch.randn(4, 6)
    if message is None:
        torch.testing.assert_close(ops.wrong(x, what), x)
        return
    with pytest.raises(RuntimeError, match="`wrong`: ") as raised:
        ops.wrong(x if what != -1 else x[:1, :1].contiguous(), what)
    assert message in str(raised.value)


def test_no_launch_writes_beyond_the_memory_of_a_result(ops, driver):
    x = torch.randn(3, 5)
    out = ops.pitched(x, 8, 2 * 8 + 5)
    assert (out.shape, out.stride()) == (x.shape, (8, 1))
    (record,) = driver.launches()
    assert record.integer(0) == out.data_ptr()
    with pytest.raises(RuntimeError, match="`out` has the elements 0 to 20 of `memory`"):
        ops.pitched(x, 8, 3 * 5)
    assert driver.launches() == []
    assert ops.pitched(x[:0], 8, 0).shape == (0, 5)
    assert driver.launches() == []


def test_what_may_be_none(ops, driver):
    """Items of a list, a result, and a view of an argument that is not there."""
    x, k, w = torch.randn(4, 6), torch.tensor([3, 1]), torch.randn(6)
    for weight, more in ((w, True), (None, False)):
        out, z = ops.picked(x, k, weight, more)
        torch.testing.assert_close(out, x[:, k])
        assert (z is None) if not more else torch.equal(z, out)
        (record,) = driver.launches()
        assert ("no-scale" in record.line) == (weight is None)


def test_a_result_is_contiguous(ops):
    with pytest.raises(RuntimeError, match=r"`aten::t` returned `out`, which is not contiguous"):
        ops.turned(torch.randn(4, 6))


def test_what_the_op_calls_records_no_gradients(ops):
    inputs = _inputs(torch.float32)
    inputs["x"].requires_grad_()
    assert ops.product(**inputs).grad_fn.name() == "torch::autograd::WarnNotImplemented"
    assert torch.is_grad_enabled()


def test_torch_compiles_ops_with_steps(ops):
    checks = ("test_schema", "test_faketensor")
    x = torch.randn(4, 6)
    torch.library.opcheck(ops.norm, (x, torch.ones(6), None), test_utils=checks)
    for name in ("summed", "joined", "sorted"):
        torch.library.opcheck(getattr(ops, name), (), _inputs(torch.float32), test_utils=checks)

    def called(x: Any, sums: Any) -> Any:
        heads, total = ops.norm(x * 1, sums)
        return heads.sum(1), total

    compiled = torch.compile(called, backend="aot_eager", fullgraph=True, dynamic=True)
    for result, value in zip(compiled(x, torch.ones(6)), called(x, torch.ones(6)), strict=True):
        torch.testing.assert_close(result, value)


def test_nothing_is_leaked(ops):
    """Each call makes a tensor of 8 MB at least, of which one a round would be 160 MB in all."""
    inputs = _inputs(torch.float32, (1024, 2048))
    sums = torch.ones(2048)

    def use() -> None:
        for name in ("formatted", "clamped", "masked", "alpha", "ints", "joined"):
            getattr(ops, name)(**inputs)
        ops.norm(inputs["x"], sums)

    def pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    use()
    before = pages()
    for _ in range(20):
        use()
    assert (pages() - before) * 4096 < 100e6
