"""The product that the op launches, with Hopper's copy engine where that can be used."""

import cutlass
from cuda.bindings.driver import CUstream
from cutlass import Int32, cute
from gemm_fp8_cute import hopper, plain

WORD = 16
"""Bytes: what the copy engine wants addresses and rows to be multiples of."""


@cute.jit
def gemm(
    a: cute.Tensor,
    b: cute.Tensor,
    scales_a: cute.Tensor,
    scales_b: cute.Tensor,
    out: cute.Tensor,
    multiprocessors: Int32,
    groups: cutlass.Constexpr,
    waves: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    group: cutlass.Constexpr,
    unroll: cutlass.Constexpr,
    stream: CUstream,
):
    if cutlass.const_expr(a.iterator.alignment >= WORD):
        config = (groups, waves, width, stages, cluster, group, unroll)
        hopper.launch(a, b, scales_a, scales_b, out, multiprocessors, *config, stream)
    else:
        plain.launch(a, b, scales_a, scales_b, out, stream)
