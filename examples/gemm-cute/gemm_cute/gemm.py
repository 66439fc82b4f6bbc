"""The matrix product that the op launches, with Hopper's copy engine where that can be used."""

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Int32, cute
from gemm_cute import hopper, plain

WORD = 16
"""Bytes: what the copy engine wants addresses and rows to be multiples of."""


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    out: cute.Tensor,
    multiprocessors: Int32,
    groups: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    split: cutlass.Constexpr,
    group: cutlass.Constexpr,
    stream: CUstream,
):
    if cutlass.const_expr(a.iterator.alignment >= WORD):
        hopper.launch(
            a, b, out, multiprocessors, groups, width, stages, cluster, split, group, stream
        )
    else:
        plain.launch(a, b, out, stream)
