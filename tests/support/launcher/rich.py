"""The extension that most tests call: every kind of op, images for several archs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kbuild.dsl.launcher.resolved_kernel import ResolvedOp
from kbuild.ops.image import ImageParameter, TensorMap
from kbuild.ops.tuned_tables import TunedRow, TunedTable
from kbuild.ops.unit import KernelUnit
from tests.support.launcher.launched import Kernel, launched, ops_of

TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100f", "compute_80")


def gemm(unit: KernelUnit) -> Mapping[str, Any]:
    """The first candidate needs more shared memory than small devices have."""
    large = dict(unit.constants)["BLOCK"] == 64
    return {"shared": 120_000 if large else 40_000, "threads": 256}


def odd(unit: KernelUnit) -> Mapping[str, Any]:
    size = dict(unit.constants)["C"]
    if size in (2, 5):
        return {}
    if size == 1:
        return {"scratch": 100, "scratch_align": 1024, "pdl": True}
    return {"cluster": (size, 1, 1), "cooperative": True, "shared": 60_000}


def copy(unit: KernelUnit) -> Mapping[str, Any]:
    parts = [("i32", "shape.0"), ("i32", "shape.1"), ("i64", "stride.0"), ("i64", "stride.1")]
    return {
        "parameters": (
            ImageParameter("tensor_map", "tensor_map", "x_desc"),
            *(ImageParameter("int", kind, f"x_desc.{name}") for kind, name in parts),
            ImageParameter("pointer", "*fp16", "out_ptr"),
        ),
        "tensor_maps": (TensorMap("x_desc", (128, 64), 2, 6, 3),),
        "divisible": frozenset(),
    }


KERNELS = {
    "add": Kernel(("x_ptr", "y_ptr", "out_ptr", "n", "BLOCK!")),
    "norm_kernel": Kernel(
        ("x", "w", "b", "out", "x_stride", "count", "eps", "BLOCK!", "HAS!", "W!"), floats="fp64"
    ),
    "gemm": Kernel(
        ("a_ptr", "b_ptr", "c_ptr", "M", "stride_am", "stride_ak", "stride_bk", "stride_bn",
         "stride_om", "BLOCK!"), gemm,
    ),
    "scale_": Kernel(("x_ptr", "n", "f", "s", "half", "big", "m", "cc"), floats="fp16"),
    "part": Kernel(("a_ptr", "partial_ptr", "k", "BLOCK!")),
    "whole": Kernel(("partial_ptr", "out0", "out1", "M", "BLOCK!")),
    "odd": Kernel(("x_ptr", "out_ptr", "C!"), odd),
    "copy": Kernel(("x_desc", "out_ptr", "BLOCK!"), copy),
    "race": Kernel(("x_ptr", "out_ptr", "N")),
    "exact": Kernel(("x_ptr", "y_ptr", "out_ptr", "N", "BLOCK!")),
    "late": Kernel(("x_ptr", "b_ptr", "out_ptr", "s", "f", "BLOCK!")),
}  # fmt: skip


_WINNER = 4
"""`BLOCK` of a candidate of `norm` that a build compiles because of `TABLES` alone."""


def _keep(unit: KernelUnit) -> bool:
    if unit.op in ("copy", "late"):
        return unit.target.arch == "sm_90a"
    if unit.op == "norm" and dict(unit.constants)["BLOCK"] == _WINNER and not unit.aligned:
        return False  # as for candidates that only a tuned table names
    return unit.op != "norm" or unit.target.arch != "sm_89"


def _row(n: int, rows: int, block: int, dtype: str = "float16") -> TunedRow:
    dtypes = (("x", dtype), ("w", dtype), ("out", dtype))
    constants = (("BLOCK", block),)
    return TunedRow(
        "rich", "norm", 0, dtypes, (n, rows), constants, (("num_warps", block),), 1.0, 2.0
    )


TABLES = (
    TunedTable("Fake 90", "sm_90", (_row(256, 1, 4), _row(256, 1024, 2), _row(64, 1, 2))),
    TunedTable("Fake elsewhere", "sm_90", (_row(100, 1, 4), _row(200, 1, 4, "float32"))),
)


def rich() -> tuple[ResolvedOp, ...]:
    text = Path(__file__).with_name("rich.toml").read_text("utf-8")
    return tuple(launched(op, KERNELS, TARGETS, _keep) for op in ops_of(text))
