"""A kernel whose op takes arguments of every kind."""

# ruff: noqa: N803, SIM108 - the names of constants, and two branches

import einops  # noqa: F401 - a pure-Python package of the environment
import triton
import triton.language as tl


@triton.jit
def asked(
    x_ptr,
    bias_ptr,
    out_ptr,
    sums_ptr,
    nothing,
    stride,
    pad,
    parts,
    eps,
    M,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    ACT: tl.constexpr,
    WINDOW: tl.constexpr,
    OUT: tl.constexpr,
    HAS_SUM: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    if nothing is None:
        x += eps
    if WINDOW is not None:
        x = tl.where(cols < WINDOW, x, 0.0)
    if ACT == "silu":
        x = x * tl.sigmoid(x)
    else:
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    x = tl.where(mask, x, 0.0)
    width = N + pad
    tl.store(out_ptr + row * width + cols, x.to(OUT), mask=mask)
    at = N
    while at < width:
        tl.store(out_ptr + row * width + at, tl.full((), 0, OUT))
        at += 1
    if HAS_SUM:
        total = tl.sum(x, 0)
        part = 0
        while part < parts:
            tl.store(sums_ptr + part * M + row, total * (part + 1))
            part += 1


@triton.jit
def joined(
    xs,
    sums_0_ptr,
    sums_1_ptr,
    more_0_ptr,
    more_1_ptr,
    out_ptr,
    N,
    stride_xs_0_0,
    stride_xs_1_0,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """Adds tensors, and up the tensors; `SPLIT` blocks are worked on in turn."""
    count: tl.constexpr = 1 if SPLIT is None else SPLIT
    for part in range(count):
        at = (tl.program_id(0) * count + part) * BLOCK + tl.arange(0, BLOCK)
        mask = at < N
        first = tl.load(xs[0] + at * stride_xs_0_0, mask=mask, other=0.0)
        second = tl.load(xs[1] + at * stride_xs_1_0, mask=mask, other=0.0)
        tl.atomic_add(sums_0_ptr, tl.sum(first.to(tl.float32)))
        tl.atomic_add(sums_1_ptr, tl.sum(second.to(tl.float32)))
        total = first + second
        if more_0_ptr is not None:
            total += tl.load(more_0_ptr + at, mask=mask)
        if more_1_ptr is not None:
            total += 2 * tl.load(more_1_ptr + at, mask=mask)
        tl.store(out_ptr + at, total, mask=mask)
