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
