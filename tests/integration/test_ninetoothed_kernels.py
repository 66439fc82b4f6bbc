"""Kernels as libraries in NineToothed have them: packages, double numbers, sizes as constants."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

import pytest

from tests.support.command_project import ROOT
from tests.support.dsl.ninetoothed_kernels import PINS, compile_section, compile_wide
from tests.support.dsl.triton_kernels import shop
from tests.support.stores import dsl_store, warm_cache

pytestmark = [
    pytest.mark.network,
    pytest.mark.compile,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="Triton 3.9 has no wheel for it"),
    pytest.mark.skipif(
        (platform.machine(), platform.system()) != ("x86_64", "Linux"),
        reason="Triton compiles on x86_64 Linux",
    ),
]
COMMON = """\
def flat(*tensors, block):
    return tuple(one.flatten().tile((block,)) if one.ndim else one for one in tensors)
"""
SCALE = """\
import enum
import functools
import ninetoothed
import ninetoothed.language as ntl
from ninetoothed import Tensor
from lib.common import flat

class Mode(enum.IntEnum):
    DOWN = 1
    UP = 2

def application(x, factor, out, mode):
    if mode == 2:
        out = x * ntl.cast(factor + 1, x.dtype)
    else:
        out = x * ntl.cast(factor, x.dtype)

def premake(ndim):
    tensors = (
        Tensor(ndim, dtype=ninetoothed.float32), Tensor(0, dtype=ninetoothed.float64),
        Tensor(ndim, dtype=ninetoothed.float32), Tensor(0, constexpr=True, value=Mode.UP),
    )
    return functools.partial(flat, block=64), application, tensors

configs = (((6,), {}, {}),)
"""
ROWS = """\
import ninetoothed
import ninetoothed.language as ntl
from ninetoothed import Tensor

def arrangement(x, y, out):
    return x.tile((1, -1)), y.tile((1, 8)).tile((1, -1)), out.tile((1, -1))

def application(x, y, out):
    total = ntl.zeros(x.shape, dtype=ntl.float32)
    for i in range(y.shape[1]):
        total += ntl.sum(y[0, i])
    out = x + total

def premake():
    exact = (None, {"constexpr": True})
    tensors = tuple(
        Tensor(2, dtype=ninetoothed.float32, shape_options=exact) for _ in range(3)
    )
    return arrangement, application, tensors

configs = (((), {}, {}),)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with NineToothed."""
    store = dsl_store("ninetoothed-0.26.0", "ninetoothed", tmp_path_factory)
    return warm_cache(tmp_path_factory.mktemp("cache"), store, tmp_path_factory)


def section(src, **op):
    return {
        "language": "ninetoothed",
        "toolchain": list(PINS),
        "src": src,
        "op": [{"dtypes": ["float32"], **op}],
    }


def test_a_package_with_double_numbers_and_six_dimensions(cache: Path, tmp_path: Path) -> None:
    sources = {"src/lib/scale.py": SCALE, "src/lib/common.py": COMMON}
    dims = ["A", "B", "C", "D", "E", "F"]
    wanted = section(
        list(sources),
        schema="scale(Tensor x, float factor) -> Tensor out",
        shapes={"x": dims, "out": dims},
    )
    with shop(cache, tmp_path / "project") as own:
        own.write(sources)
        made = compile_section(own, "scale", wanted, "sm_90a", wide=False)
    (plain,) = (one.image for one in made if not one.unit.aligned)
    types = {one.name: one.type for one in plain.parameters}
    assert types["factor"] == "fp64"
    assert types["x_size_5"] == "i64"


def test_sizes_as_constants(cache: Path, tmp_path: Path) -> None:
    """Those of `x` are in shapes; that of `y` counts a loop, so each call may have its own."""
    wanted = section(
        ["rows.py"],
        schema="rows(Tensor x, Tensor y) -> Tensor out",
        shapes={"x": ["M", "N"], "y": ["M", "K"], "out": ["M", "N"]},
        constants={"N": {"value": "N", "choices": [64, 128, 256]}},
    )
    with shop(cache, tmp_path / "project") as own:
        own.write({"rows.py": ROWS})
        made = compile_section(own, "rows", wanted, "sm_90a", wide=False)
    constants = [dict(one.unit.constants) for one in made if not one.unit.aligned]
    assert [(one["x_size_1"], one["x_power_1"], one["out_power_1"]) for one in constants] == [
        (64, 64, 64),
        (128, 128, 128),
        (256, 256, 256),
    ]
    types = {one.name: one.type for one in made[0].image.parameters}
    assert "y_size_1" in types
    assert "x_size_1" not in types


WIDENING = re.compile(r"(?:cvt\.[us]64\.[us]32|mul\.wide\.[us]32)\b")
"""What widens a number in assembly."""


def test_the_first_element_of_a_block_has_64_bits(cache: Path, tmp_path: Path) -> None:
    """Block 2**22 of 512 elements begins at 2**31, which 32 bits take for less than nothing."""
    with shop(cache, tmp_path / "project") as own:
        made = compile_wide(own, ROOT / "examples" / "add-ninetoothed", "add", "compute_80")
    assert [one.unit.aligned for one in made] == [True, True, False]
    for one in made:
        text = one.code.decode()
        register = re.search(r"mov\.u32 \t?(%r\d+), %ctaid\.x;", text)
        assert register is not None, text
        used = [line.strip() for line in text.splitlines() if f"{register[1]}," in line]
        used += [line.strip() for line in text.splitlines() if f" {register[1]};" in line]
        others = [line for line in used if "%ctaid" not in line]
        assert others, text
        assert [line for line in others if not WIDENING.match(line)] == []
        assert {kind.type for kind in one.image.parameters if kind.kind == "int"} == {"i64"}
