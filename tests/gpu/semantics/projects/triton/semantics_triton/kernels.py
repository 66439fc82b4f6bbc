"""Kernels that accumulate, skip, alias, mutate, return early, and count beyond 32 bits."""

import triton
import triton.language as tl


@triton.jit
def count_values_kernel(values, counts, n, bins, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(values + at, mask=at < n, other=-1)
    tl.atomic_add(counts + value, 1, mask=(value >= 0) & (value < bins))


@triton.jit
def add_row_sums_kernel(x, sums, N, stride_xm, stride_xn, stride_sum, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = x + row * stride_xm + column.to(tl.int64) * stride_xn
    part = tl.load(place, mask=column < N, other=0.0)
    tl.atomic_add(sums + row * stride_sum, tl.sum(part.to(tl.float32)))


@triton.jit
def scatter_rows_kernel(
    x,
    index,
    out,
    N,
    rows,
    stride_xm,
    stride_xn,
    stride_index,
    stride_om,
    stride_on,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    row = tl.load(index + program * stride_index)
    if row < 0:
        return
    if row >= rows:
        return
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + program * stride_xm + column * stride_xn, mask=column < N)
        tl.store(out + row * stride_om + column * stride_on, value, mask=column < N)


@triton.jit
def copy_where_kernel(x, keep, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.load(keep + at, mask=at < n, other=0)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=(at < n) & (kept != 0))


@triton.jit
def axpy_kernel(y, x, n, a, stride_y, stride_x, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    new = tl.load(y + at * stride_y, mask=at < n) + a * tl.load(x + at * stride_x, mask=at < n)
    tl.store(y + at * stride_y, new, mask=at < n)


@triton.jit
def add_strided_kernel(
    x,
    y,
    out,
    M,
    N,
    stride_xm,
    stride_xn,
    stride_ym,
    stride_yn,
    stride_om,
    stride_on,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    n = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    inside = (m < M) & (n < N)
    left = tl.load(x + m * stride_xm + n * stride_xn, mask=inside)
    right = tl.load(y + m * stride_ym + n * stride_yn, mask=inside)
    tl.store(out + m * stride_om + n * stride_on, left + right, mask=inside)


@triton.jit
def toggle_bytes_kernel(x, n, value, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    byte = (value + tl.zeros((), tl.int32)).to(tl.int8)
    tl.store(x + at, tl.load(x + at, mask=at < n) ^ byte, mask=at < n)


@triton.jit
def copy_bytes_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def copy_corners_kernel(x, out, M, N, stride_xm, stride_xn, stride_om, stride_on):
    """The four corners of a matrix, however far apart they lie."""
    program = tl.program_id(0)
    m = tl.where(program < 2, 0, M - 1).to(tl.int64)
    n = tl.where(program % 2 == 0, 0, N - 1).to(tl.int64)
    tl.store(out + m * stride_om + n * stride_on, tl.load(x + m * stride_xm + n * stride_xn))


@triton.jit
def scale_bias_kernel(
    x,
    bias,
    out,
    M,
    N,
    scale,
    negate,
    stride_xm,
    stride_bias,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    factor = tl.where(negate, -scale, scale)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * stride_xm + column, mask=column < N) * factor
        if HAS_BIAS:
            value += tl.load(bias + column * stride_bias, mask=column < N)
        tl.store(out + row * N + column, value, mask=column < N)


@triton.jit
def swap_kernel(x, y, n, stride_x, stride_y, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    left = tl.load(x + at * stride_x, mask=at < n)
    right = tl.load(y + at * stride_y, mask=at < n)
    tl.debug_barrier()
    tl.store(x + at * stride_x, right, mask=at < n)
    tl.store(y + at * stride_y, left, mask=at < n)


@triton.jit
def part_sums_kernel(x, parts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + at, mask=at < n, other=0).to(tl.int64)))


@triton.jit
def sum_of_parts_kernel(parts, out, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.int64)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(parts + at, mask=at < count, other=0)
    tl.store(out, tl.sum(total))


@triton.jit
def keep_extremes_kernel(x, extremes, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) * BLOCK >= n:
        return
    value = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_min(extremes, tl.min(tl.where(at < n, value, 2147483647)))
    tl.atomic_max(extremes + 1, tl.max(tl.where(at < n, value, -2147483648)))
