"""Results, temporaries and arguments that have a value before the first launch."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kbuild.dsl.launcher.calls import DTYPE_ORDER
from kbuild.ops.dtypes import DTYPES
from tests.support.launcher.functions import Functions, library
from tests.support.launcher.launched import (
    FAKES,
    Driver,
    Kernel,
    compiler,
    extension,
    files_of,
    launched,
    ops_of,
)

pytestmark = [pytest.mark.compile, pytest.mark.torch]
HEAD = """
[kernel.k]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
"""
VALUES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "zero": ("0", DTYPE_ORDER),
    "one": ("1", DTYPE_ORDER),
    "many": (
        "-3",
        tuple(name for name in DTYPE_ORDER if name != "bool" and not name.startswith("u")),
    ),
    "half": ("0.1", tuple(name for name in DTYPE_ORDER if "float" in name)),
    "least": ('"-inf"', tuple(n for n in DTYPE_ORDER if "float" in n and n != "float8_e4m3fn")),
    "most": ('"inf"', ("float32", "float64", "bfloat16")),
    "none": ('"nan"', tuple(name for name in DTYPE_ORDER if "float" in name)),
    "wide": ("4886718345", ("int64", "uint64", "float64")),
}
"""Op -> what its results are filled with, and their dtypes."""


def filled(name: str, value: str, dtypes: tuple[str, ...]) -> str:
    """An op with a result of each dtype, made for a kernel that writes nothing."""
    results = [f"r{index}" for index in range(len(dtypes))]
    rules = "".join(f', {one} = ["{dtype}"]' for one, dtype in zip(results, dtypes, strict=True))
    shapes = "".join(f', {one} = ["N"]' for one in results)
    values = ", ".join(f"{one} = {value}" for one in results)
    returned = ", ".join(f"Tensor {one}" for one in results)
    return f"""
[[kernel.k.op]]
schema = "{name}(Tensor x) -> ({returned})"
shapes = {{ x = ["N"]{shapes} }}
dtypes = {{ x = ["float32"]{rules} }}
fill = {{ {values} }}
configs = [{{ BLOCK = 64 }}]
grid = ["cdiv(N, BLOCK)"]
"""


OTHERS = """
[[kernel.k.op]]
schema = "sums(Tensor x, Tensor(a!) total, Tensor(b!)? extra=None) -> Tensor out"
shapes = { x = ["N"], total = ["N"], extra = ["N"], out = ["N"], part = ["N", 2] }
dtypes = { x = ["float16"], total = ["float32"], extra = ["int32"], out = "x", part = ["float64"] }
contiguous = ["total", "extra"]
temporaries = ["part"]
zero = ["total", "out"]
fill = { part = 1.5, extra = -1 }
configs = [{ BLOCK = 64 }]
grid = ["cdiv(N, BLOCK)"]

[[kernel.k.op]]
schema = "plain(Tensor x) -> Tensor out"
shapes = { x = ["N"], out = "x" }
dtypes = ["float16"]
configs = [{ BLOCK = 64 }]
grid = ["cdiv(N, BLOCK)"]
"""
SECTION = HEAD + "".join(filled(name, *pair) for name, pair in VALUES.items()) + OTHERS


def all_ops() -> list[Any]:
    tensors = {name: [f"r{index}" for index in range(len(own[1]))] for name, own in VALUES.items()}
    tensors |= {"sums": ["total", "extra", "part", "out"], "plain": ["out"]}
    kernels = {name: Kernel(("x", *own, "N", "BLOCK!")) for name, own in tensors.items()}
    return [launched(op, kernels, ["sm_90a"]) for op in ops_of(SECTION)]


@pytest.fixture(scope="module")
def torch_ops(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch = pytest.importorskip("torch")
    files = files_of("k", all_ops())
    torch.ops.load_library(str(extension(files, tmp_path_factory.mktemp("fills"), "_fill_tests")))
    return torch.ops._fill_tests


@pytest.fixture(scope="module")
def ffi_functions(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Functions:
    pytest.importorskip("tvm_ffi")
    made = all_ops()
    files = files_of("k", made, framework="tvm-ffi")
    path = library(files, tmp_path_factory.mktemp("fills-tvm-ffi"), "fills")
    return Functions(path, [op.spec for op in made])


@pytest.fixture
def ops(host: str, driver: Driver, request: pytest.FixtureRequest) -> Iterator[Any]:
    found = request.getfixturevalue("torch_ops" if host == "torch" else "ffi_functions")
    driver.use_stream(0, 0x77)
    driver.said()
    yield found
    driver.use_stream(0, 0)
    driver.library.fake_fail(0)


def same(one: Any, other: Any) -> bool:
    """Bit for bit, except that one NaN is as good as another."""
    import torch

    wide = (one.float(), other.float()) if "float" in str(one.dtype) else (one, other)
    equal = torch.equal(one.view(torch.uint8), other.view(torch.uint8))
    return equal or (
        "float" in str(one.dtype) and bool(wide[0].isnan().all() and wide[1].isnan().all())
    )


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("size", [0, 1, 1027])
def test_every_dtype_is_filled_as_torch_fills_it(ops, driver, name, size):
    import torch

    written, dtypes = VALUES[name]
    value = float(written.strip('"')) if not written.lstrip("-").isdigit() else int(written)
    results = getattr(ops, name)(torch.randn(size))
    assert len(results) == len(dtypes)
    for result, dtype in zip(results, dtypes, strict=True):
        kind = getattr(torch, dtype)
        expected = torch.full((size,), value, dtype=kind)
        assert result.dtype == kind
        assert same(result, expected), (dtype, result[:4], expected[:4])
    lines = [line for line in driver.said() if line.startswith("set ")]
    assert bool(lines) == bool(size)
    assert all(line.endswith(" stream=0x77") for line in lines)


def test_temporaries_and_arguments_before_the_launch(ops, driver):
    import torch

    x, total = torch.randn(8).half(), torch.full((8,), 7.0)
    extra = torch.full((8,), 7, dtype=torch.int32)
    out = ops.sums(x, total, extra)
    assert torch.equal(out, torch.zeros(8).half())
    assert torch.equal(total, torch.zeros(8))
    assert torch.equal(extra, torch.full((8,), -1, dtype=torch.int32))
    what = [line.partition(" stream")[0] for line in driver.said()]
    sets = [line for line in what if line.startswith("set ")]
    assert sets == ["set 8 x 4", "set 8 x 2", "set 16 x 4", "set 16 x 4", "set 8 x 4"]
    assert what.index(next(w for w in what if w.startswith("launch"))) > what.index(sets[-1])
    ops.sums(x, total, None)
    assert len([line for line in driver.said() if line.startswith("set ")]) == 4


def test_what_the_driver_refuses_is_told(ops, driver):
    import torch

    ops.plain(torch.ones(4).half())
    driver.library.fake_fail(700)
    with pytest.raises(RuntimeError, match=r"cannot give `r0` its value: an illegal memory access"):
        ops.zero(torch.ones(4))


HIP = """
import ctypes, sys, torch
hip = ctypes.CDLL(sys.argv[1])
hip.fake_text.restype = ctypes.c_char_p
torch.ops.load_library(sys.argv[2])
ops = torch.ops._hip_fills
x = torch.zeros(5)
for result, value in zip((*ops.zero(x), *ops.wide(x)), (0,) * 15 + (4886718345,) * 3, strict=True):
    expected = torch.full((5,), value, dtype=result.dtype)
    assert torch.equal(result.view(torch.uint8), expected.view(torch.uint8)), result
for line in hip.fake_text().decode().splitlines():
    assert not line.startswith("set ") or line.endswith("stream=0x10"), line
"""


def test_on_hip(tmp_path):
    pytest.importorskip("torch")
    own = [op for op in ops_of(SECTION) if op.name in {"zero", "wide"}]
    parameters = {"zero": 15, "wide": 3}
    kernels = {
        name: Kernel(("x", *(f"r{i}" for i in range(n)), "N", "BLOCK!"))
        for name, n in parameters.items()
    }
    files = files_of("k", [launched(op, kernels, ["gfx942", "gfx90a"]) for op in own])
    path = extension(files, tmp_path, "_hip_fills", "-O0")
    compiler(FAKES / "hip_runtime.c", tmp_path / "libtorch_hip.so")
    command = (sys.executable, "-c", HIP, str(tmp_path / "libtorch_hip.so"), str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: TID251
    assert done.returncode == 0, done.stderr


def problems(
    keys: str, schema: str = "f(Tensor x, Tensor(a!) y, int n) -> Tensor out"
) -> list[str]:
    from tests.support.sections import read

    text = f"""{HEAD}
[[kernel.k.op]]
schema = "{schema}"
shapes = {{ x = ["N"], y = ["N"], out = ["N"] }}
dtypes = {{ x = ["float8_e4m3fn", "uint8"], y = ["int8", "bool"], out = "x" }}
configs = [{{ BLOCK = 64 }}]
grid = ["cdiv(N, BLOCK)"]
{keys}
"""
    return [f"{one.path[4:]}: {one.message}" for one in read(text).issues]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('zero = ["outt"]', "('zero', 0): `outt` is neither a result nor a temporary"),
        ('zero = ["x"]', "`x` is only read"),
        ('zero = ["n"]', "`n` is neither a result nor a temporary"),
        ('zero = ["y"]', "the argument `y` may have gaps"),
        ('zero = ["out"]\nfill = { out = 1 }', "('fill', 'out'): `out` has a value already"),
        ('zero = ["out", "out"]', "`out` has a value already"),
        ('fill = { out = "inf" }', "`out` may be float8_e4m3fn, which cannot be inf"),
        ("fill = { out = -1 }", "`out` may be uint8, which cannot be -1"),
        ("fill = { out = 500 }", "`out` may be float8_e4m3fn, which cannot be 500"),
        ("fill = { out = 0.5 }", "`out` may be uint8, which cannot be 0.5"),
        ('contiguous = ["y"]\nfill = { y = 2 }', "`y` may be bool, which cannot be 2"),
        ('fill = { out = "many" }', "`many` is not a number"),
        ("fill = { out = [1] }", "must be a float or an integer or a string or a boolean"),
        ('contiguous = ["y"]\nzero = ["y", "out"]', ""),
    ],
)
def test_what_cannot_be_filled(keys, words):
    found = problems(keys)
    if words:
        assert len(found) == 1
        assert words in found[0]
    else:
        assert not found


def test_patterns_agree_with_torch_on_random_values():
    """Rounding to even, subnormal numbers, the ends of each format."""
    import random

    torch = pytest.importorskip("torch")
    from kbuild.ops.dtypes import bit_pattern

    source = random.Random(4)  # noqa: S311 - no secrets
    kinds = [name for name in DTYPES if "float" in name]
    values = [source.uniform(-2, 2) * 2.0 ** source.randint(-30, 16) for _ in range(3000)]
    values += [
        0.0,
        -0.0,
        448.0,
        464.0,
        57344.0,
        2.0**-9,
        2.0**-10,
        3 * 2.0**-11,
        math.ldexp(1, -133),
    ]
    for dtype in kinds:
        kind, size = getattr(torch, dtype), DTYPES[dtype]
        for value in values:
            bits = bit_pattern(value, dtype)
            made = torch.tensor([value], dtype=torch.float64).to(
                torch.float32 if size < 4 else kind
            )
            made = made.to(kind)
            if bits is None:
                assert not made.float().isfinite().all() or abs(value) > 448
                continue
            expected = int.from_bytes(bytes(made.view(torch.uint8).tolist()), "little")
            assert bits == expected, (dtype, value, hex(bits), hex(expected))
