"""What an author's Triton files run with in a package: no Triton, no Torch, no kbuild."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kbuild.ops.language import LANGUAGES
from kbuild.plugins.capture.coverage import Coverage
from kbuild.plugins.capture.launch_package import LaunchKernel, launch_files
from kbuild.plugins.capture.launches import CapturedFunction, launch_ops

OPS = """
class Ops:
    calls = []

    def __getattr__(self, name):
        import types
        return types.SimpleNamespace(default=lambda *args: self.calls.append((name, args)))

ops = Ops()
"""
HEAD = "import triton\nimport triton.language as tl\n"
PLAIN = (
    HEAD
    + """
@triton.jit
def k(x_ptr, b_ptr, n, scale, BLOCK: tl.constexpr, DTYPE: tl.constexpr = tl.float32):
    tl.store(x_ptr, tl.load(b_ptr))
"""
)
NUMBERS = count()


@dataclass
class Tensor:
    dtype: str

    def data_ptr(self) -> int:
        return 0


def launch(constants: dict[str, Any], options: dict[str, Any] | None = None, **kinds: Any) -> Any:
    return {"arguments": kinds, "constants": constants, "options": options or {}}


def k_launch(block: int = 64, *, b: str = "*float16", **options: Any) -> Any:
    kinds = {"x_ptr": "*float16", "b_ptr": b, "n": "int", "scale": "float"}
    return launch({"BLOCK": block, "DTYPE": {"dtype": "float32"}}, options, **kinds)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a package of sources and imports it; no Triton is there, and a Torch of dtypes only."""
    torch = ModuleType("torch")
    vars(torch).update({name: name for name in ("float16", "float32", "int64")})
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "triton", None)
    # Another test of this process may have imported the real one.
    for module in [name for name in sys.modules if name.startswith("triton.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)

    def make(sources: dict[str, str], *functions: tuple[str, str, list[Any]], jit: bool = False):
        root = tmp_path / "project"
        for path, text in sources.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        captured = [
            CapturedFunction(source=source, function=name, launches=launches)
            for source, name, launches in functions
        ]
        tables = [table for ops in launch_ops("k", captured) for table in ops.functions]
        triton, pins = LANGUAGES.get("triton"), ("triton==3.9.0",)
        kernel = LaunchKernel(triton, pins, tuple(sources), tuple(tables), has_jit=jit)
        name = f"package_{next(NUMBERS)}"
        files = launch_files([kernel], f"torch-ext/{name}")
        copies = {path: (root / source).read_text() for path, source in files.sources.items()}
        for path, text in {**files.texts, **copies}.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        (tmp_path / name / "_ops.py").write_text(OPS)
        (tmp_path / name / "__init__.py").touch()
        return importlib.import_module(name), name

    return make


def imported(name: str, module: str) -> Any:
    return importlib.import_module(f"{name}.{module}")


def calls_of(name: str) -> list[Any]:
    return imported(name, "_ops").Ops.calls


def test_a_launch_calls_its_op(packaged) -> None:
    launches = [k_launch(64), k_launch(128), k_launch(64, num_warps=8), k_launch(64, b="none")]
    _, name = packaged({"k.py": PLAIN}, ("k.py", "k", launches))
    k = imported(name, "k").k
    x, b = Tensor("float16"), Tensor("float16")
    k[(3,)](x, b, 100, 0.5, BLOCK=64)
    k[lambda meta: (meta["n"] // meta["BLOCK"], 2)](x, b, 256, 0.5, 128)
    k[4](x, b, n=100, scale=0.5, BLOCK=64, num_warps=8, num_ctas=1)
    k[[1, 2, 3]](x, None, 100, 0.5, BLOCK=64)
    k.run(x, b, 100, 0.5, grid=(1,), BLOCK=64, warmup=False)
    ops = [(op, args[0]) for op, args in calls_of(name)]
    assert len(set(ops)) == 4
    assert [args[1:] for _, args in calls_of(name)] == [
        (x, b, 100, 0.5, 3, 1, 1),
        (x, b, 256, 0.5, 2, 2, 1),
        (x, b, 100, 0.5, 4, 1, 1),
        (x, 100, 0.5, 1, 2, 3),
        (x, b, 100, 0.5, 3 - 2, 1, 1),
    ]
    assert ops[0] == ops[4]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"BLOCK": 32}, "BLOCK: 32"),
        ({"x_ptr": Tensor("float32")}, "x_ptr: float32"),
        ({"n": 1.0}, "n: 1.0"),
        ({"scale": 1}, "scale: 1"),
        ({"BLOCK": 64.0}, "BLOCK: 64.0"),
        ({"num_warps": 4}, "num_warps=4"),
        ({"waves_per_eu": 2}, "waves_per_eu=2"),
    ],
)
def test_what_was_not_compiled_is_refused(packaged, change, part) -> None:
    _, name = packaged({"k.py": PLAIN}, ("k.py", "k", [k_launch(64), k_launch(1)]))
    usual = {"x_ptr": Tensor("float16"), "b_ptr": Tensor("float16"), "n": 1, "scale": 1.0}
    with pytest.raises(RuntimeError, match=r"`k` \(k\.py:\d+\) was not compiled") as caught:
        imported(name, "k").k[(1,)](**{**usual, "BLOCK": 64, **change})
    assert part in str(caught.value)
    assert "kbuild capture --record" in str(caught.value)
    assert calls_of(name) == []


def test_constants_may_be_constexpr_objects_and_dtypes(packaged) -> None:
    source = PLAIN + "SIZE: tl.constexpr = tl.constexpr(64)\nHALF = tl.float16\n"
    half = k_launch(64)
    half["constants"]["DTYPE"] = {"dtype": "float16"}
    _, name = packaged({"k.py": source}, ("k.py", "k", [k_launch(64), half]))
    module, x = imported(name, "k"), Tensor("float16")
    module.k[(1,)](x, x, 1, 1.0, BLOCK=module.SIZE)
    module.k[(1,)](x, x, 1, 1.0, BLOCK=64, DTYPE=module.HALF)
    forms = [(op, args[0]) for op, args in calls_of(name)]
    assert len(set(forms)) == 2


def test_wide_integers_have_launches_of_their_own(packaged) -> None:
    wide = k_launch(64)
    wide["arguments"]["n"] = "int64"
    _, name = packaged({"k.py": PLAIN}, ("k.py", "k", [k_launch(64), wide]))
    k, x = imported(name, "k").k, Tensor("float16")
    k[(1,)](x, x, 2**31 - 1, 1.0, BLOCK=64)
    k[(1,)](x, x, 2**31, 1.0, BLOCK=64)
    assert len({op for op, _ in calls_of(name)}) == 2


def test_heuristics_and_candidates(packaged) -> None:
    source = (
        HEAD
        + """
log = []

@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 32}, num_warps=2),
        triton.Config({"BLOCK": 64}, num_warps=4, pre_hook=lambda args: log.append(args["n"])),
        triton.Config({"BLOCK": 128}, num_warps=8),
    ],
    key=["n"],
    reset_to_zero=["x_ptr"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def k(x_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    pass
"""
    )
    launches = [
        launch({"BLOCK": block, "EVEN": even}, {"num_warps": warps, "num_stages": 3},
               x_ptr="*float16", n="int")
        for block, warps in ((64, 4), (128, 8))
        for even in (True, False)
    ]  # fmt: skip
    _, name = packaged({"k.py": source}, ("k.py", "k", launches))
    module, x = imported(name, "k"), Tensor("float16")
    for n in (128, 100, 128):
        module.k[lambda meta: (meta["BLOCK"],)](x, n)
    assert [args[1:] for _, args in calls_of(name)] == [(x, n, 64, 1, 1) for n in (128, 100, 128)]
    assert module.log[-1] == 128
    assert module.k.best_config.kwargs == {"BLOCK": 64}
    table = imported(name, "_launch_table").TABLE
    row = {"num_warps": 8, "num_stages": 3, "BLOCK": 128}
    table["functions"][0]["tuned"] = [{"device": "other", "key": [1 << 20], "config": row}]
    module.k[lambda meta: (meta["BLOCK"],)](x, 1 << 20)
    assert calls_of(name)[-1][1][2:] == (1 << 20, 128, 1, 1)


def test_heuristics_compute_constants(packaged) -> None:
    source = (
        HEAD
        + """
@triton.heuristics({
    "EVEN": lambda args: args["n"] % 16 == 0,
    "BLOCK": lambda args: 64 if args["EVEN"] else 128,
})
@triton.jit
def k(x_ptr, BLOCK: tl.constexpr, n, EVEN: tl.constexpr, LAST: tl.constexpr = 3):
    pass
"""
    )
    launches = [
        launch({"BLOCK": block, "EVEN": even, "LAST": 3}, x_ptr="*float16", n="int")
        for block, even in ((64, True), (128, False))
    ]
    _, name = packaged({"k.py": source}, ("k.py", "k", launches))
    k, x = imported(name, "k").k, Tensor("float16")
    k[lambda meta: (meta["BLOCK"],)](x, n=32)
    k[lambda meta: (meta["BLOCK"],)](x, n=33)
    assert [args[1:] for _, args in calls_of(name)] == [(x, 32, 64, 1, 1), (x, 33, 128, 1, 1)]
    with pytest.raises(RuntimeError, match="LAST: 4"):
        k[(1,)](x, n=32, LAST=4)
    with pytest.raises(RuntimeError, match="num_warps=2"):
        k[(1,)](x, n=32, num_warps=2)
    x_only = imported(name, "k").k.fn
    with pytest.raises(TypeError, match="missing"):
        x_only[(1,)](x)


def test_descriptors_are_passed_as_tensors(packaged) -> None:
    source = HEAD + (
        "from triton.tools.tensor_descriptor import TensorDescriptor\n"
        "@triton.jit\ndef k(x_desc, ROWS: tl.constexpr):\n    pass\n"
    )

    class Matrix(Tensor):
        shape = (8, 8)

        def stride(self) -> tuple[int, int]:
            return 8, 1

        def as_strided(self, shape: Any, strides: Any) -> Any:
            return ("view", shape, strides)

    kinds = {"x_desc": {"tensor": "float16", "block": [4, 8]}}
    _, name = packaged({"k.py": source}, ("k.py", "k", [launch({"ROWS": 4}, **kinds)]))
    module, x = imported(name, "k"), Matrix("float16")
    module.k[(1,)](module.TensorDescriptor.from_tensor(x, [4, 8]), 4)
    module.k[(1,)](module.TensorDescriptor(x, [4, 4], [8, 1], [4, 8]), 4)
    assert [args[1] for _, args in calls_of(name)] == [x, ("view", [4, 4], [8, 1])]
    with pytest.raises(RuntimeError, match=r"a descriptor of float16 \[2, 8\]"):
        module.k[(1,)](module.TensorDescriptor.from_tensor(x, [2, 8]), 4)


def test_descriptors_of_gluon(packaged) -> None:
    """Their layout is part of what was compiled."""
    source = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.aggregate
class State:
    rows: gl.tensor


@gluon.jit(do_not_specialize=["n"])
def k(x_desc, n, ROWS: gl.constexpr):
    pass


def launch(x, block, **options):
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float16, **options)
    k[(1,)](TensorDescriptor.from_tensor(x, block, layout), 3, 4)
    return layout
"""

    class Matrix(Tensor):
        shape = (8, 64)

        def stride(self) -> tuple[int, int]:
            return 64, 1

    layout = {"swizzle_byte_width": 128}
    kinds = {"x_desc": {"tensor": "float16", "block": [8, 64], "layout": layout}, "n": "int"}
    _, name = packaged({"k.py": source}, ("k.py", "k", [launch({"ROWS": 4}, **kinds)]))
    module, x = imported(name, "k"), Matrix("float16")
    assert module.launch(x, [8, 64]).swizzle_byte_width == 128
    assert [args[1] for _, args in calls_of(name)] == [x]
    with pytest.raises(RuntimeError, match="was not compiled for this launch"):
        module.launch(x, [8, 64], transposed=True)
    default = module.gl.NVMMASharedLayout.get_default_for
    widths = [default(block, module.gl.bfloat16).swizzle_byte_width for block in ([8, 48], [4, 64])]
    assert widths == [32, 0]


def test_sources_find_each_other_and_keep_the_names_of_triton(packaged) -> None:
    sources = {
        "ops/__init__.py": "from ops.k import k\nimport ops.deep.inner as inner\n",
        "ops/k.py": PLAIN + "from .deep import inner\nfrom triton import next_power_of_2, cdiv\n",
        "ops/deep/inner.py": HEAD
        + """
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import rsqrt
from triton.runtime.autotuner import Config
from triton.runtime import driver
SM_COUNT = lambda: driver.active.utils.get_device_properties(0)["multiprocessor_count"]

@triton.testing.perf_report(triton.testing.Benchmark(x_names=["n"], args={}))
def benchmark(n):
    return n

try:
    raise triton.CompilationError("no")
except triton.CompilationError as error:
    message = str(error)

SIZES = [triton.next_power_of_2(n) for n in (1, 5, 64)] + [triton.cdiv(7, 2)]
VERSION = tuple(map(int, triton.__version__.split(".")))
KINDS = {tl.float16: "half"}

@triton.jit(do_not_specialize=["n"])
def helper(n):
    return libdevice.rsqrt(n)

@triton.jit
def other(x: tl.tensor):
    return tl.sum(x)
""",
    }
    _, name = packaged(sources, ("ops/k.py", "k", [k_launch()]))
    package = imported(name, "ops")
    inner = package.inner
    assert inner is imported(name, "ops.deep.inner")
    assert (inner.SIZES, inner.VERSION, inner.message) == ([1, 8, 64, 4], (3, 9, 0), "no")
    assert inner.KINDS[inner.tl.float16] == "half"
    assert package.k is imported(name, "ops.k").k
    assert inner.benchmark(3) == 3
    properties = SimpleNamespace(multi_processor_count=132)
    sys.modules["torch"].cuda = SimpleNamespace(get_device_properties=lambda _: properties)
    assert inner.SM_COUNT() == 132
    assert not isinstance(3, inner.tl.tensor)
    assert not hasattr(inner.tl, "_experimental_make_tensor_descriptor")
    with pytest.raises(RuntimeError, match=r"`triton\.language\.sum` can be called only inside"):
        inner.tl.sum(3)
    with pytest.raises(RuntimeError, match="is a kernel: launch it"):
        inner.helper(3)
    assert sys.modules["triton"] is None
    assert [key for key in sys.modules if key.startswith("triton.")] == []


def test_importlib_imports_what_statements_import(packaged) -> None:
    sources = {
        "ops/k.py": PLAIN
        + """
import importlib
import importlib.util
from importlib import import_module

VERSION = importlib.import_module("triton").__version__
paths = import_module("os.path"), importlib.util.find_spec("os").name
late = lambda: import_module("ops.late")
""",
        "ops/late.py": "from ops.k import k\n",
    }
    _, name = packaged(sources, ("ops/k.py", "k", [k_launch()]))
    module = imported(name, "ops.k")
    assert module.VERSION == "3.9.0"
    assert module.paths == (os.path, "os")
    assert module.late() is imported(name, "ops.late")
    assert sys.modules["triton"] is None


def test_files_of_the_package_folder_stay_where_they_are(packaged) -> None:
    number = next(NUMBERS) + 1
    package = f"package_{number}"
    sources = {f"torch-ext/{package}/layers.py": PLAIN}
    _, name = packaged(sources, (f"torch-ext/{package}/layers.py", "k", [k_launch()]))
    assert name == package
    assert imported(name, "layers").k.arg_names[:2] == ["x_ptr", "b_ptr"]


def test_triton_compiles_the_rest_where_it_is_the_fallback(packaged, monkeypatch) -> None:
    _, name = packaged({"k.py": PLAIN}, ("k.py", "k", [k_launch()]), jit=True)
    module, x = imported(name, "k"), Tensor("float32")
    with pytest.raises(RuntimeError, match="install Triton, which then compiles it"):
        module.k[(1,)](x, x, 1, 1.0, BLOCK=64)
    launched = []

    class JITFunction:  # named as Triton's is
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **kwargs: launched.append((grid, args, kwargs))

    triton = ModuleType("triton")
    triton.__spec__ = importlib.machinery.ModuleSpec("triton", None)
    triton.__path__ = []
    triton.jit = lambda _: JITFunction()
    triton.language = ModuleType("triton.language")
    triton.language.constexpr = triton.language.float32 = None
    triton.language.dtype = lambda text: f"dtype {text}"
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", triton.language)
    module.k[(1,)](x, x, 1, 1.0, BLOCK=64, DTYPE=module.tl.float32)
    assert launched == [((1,), (x, x, 1, 1.0, 64, "dtype fp32"), {})]


def test_a_launch_without_an_image_is_listed(packaged, tmp_path, monkeypatch) -> None:
    _, name = packaged({"k.py": PLAIN}, ("k.py", "k", [k_launch(64)]))
    k = imported(name, "k").k
    folder = tmp_path / "coverage"
    folder.mkdir()
    monkeypatch.setenv("KBUILD_COVERAGE", str(folder))
    coverage = Coverage()
    for block in (64, 32, 32):
        with suppress(RuntimeError):
            k[(3,)](Tensor("float16"), Tensor("float16"), 100, 0.5, BLOCK=block)
    (file,) = folder.iterdir()
    coverage.add(file.read_text().splitlines())
    (missing,) = coverage.missing
    assert missing.startswith("`k` (k.py:4) was not compiled for this launch: x_ptr: float16")
    assert "BLOCK: 32" in missing
