"""Root mean square normalisation of rows: out = x / sqrt(mean(x^2) + eps) * weight.

Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, https://arxiv.org/abs/1910.07467
"""

import triton
import triton.language as tl


@triton.jit
def rmsnorm_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    rows,
    N,
    eps,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    LOOP: tl.constexpr,
):
    """Normalise ROWS rows of N elements each, with sums in float32."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = row.to(tl.int64)[:, None] * N
    column = tl.arange(0, BLOCK)[None, :]
    is_row = row[:, None] < rows
    if LOOP:
        squares = tl.zeros((ROWS, BLOCK), tl.float32)
        for first in range(0, N, BLOCK):
            mask = is_row & (first + column < N)
            x = tl.load(x_ptr + start + first + column, mask, 0.0, eviction_policy="evict_last")
            x = x.to(tl.float32)
            squares += x * x
        scale = tl.rsqrt(tl.sum(squares, 1) / N + eps)[:, None]
        for first in range(0, N, BLOCK):
            mask = is_row & (first + column < N)
            x = tl.load(x_ptr + start + first + column, mask, 0.0, eviction_policy="evict_first")
            weight = tl.load(weight_ptr + first + column, first + column < N, 0.0)
            out = x.to(tl.float32) * scale * weight.to(tl.float32)
            tl.store(out_ptr + start + first + column, out.to(out_ptr.dtype.element_ty), mask)
    else:
        mask = is_row & (column < N)
        weight = tl.load(weight_ptr + column, column < N, 0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + start + column, mask, 0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x, 1) / N + eps)[:, None]
        out = x * scale * weight.to(tl.float32)
        tl.store(out_ptr + start + column, out.to(out_ptr.dtype.element_ty), mask)
