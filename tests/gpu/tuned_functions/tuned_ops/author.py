"""Autotuned functions; each tells by a `mark` next to 1 which candidate ran."""

import torch
import triton
import triton.language as tl


def _configs():
    return [
        triton.Config({"BLOCK": 64}, num_warps=1),
        triton.Config({"BLOCK": 512}, num_warps=4),
        triton.Config({"BLOCK": 4096}, num_warps=8),
    ]


@triton.heuristics({"HAS_BIAS": lambda args: args["b"] is not None})
@triton.autotune(_configs(), key=["n"])
@triton.jit
def scale_kernel(
    x, b, y, mark, n, N, ROUNDS: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask, other=0.0)
    for _ in range(ROUNDS):
        value = value * 1.5
    if HAS_BIAS:
        value += tl.load(b + at % N, mask=mask, other=0.0)
    tl.store(y + at, value, mask=mask)
    if tl.program_id(0) == 0:
        tl.store(mark, 1.0 + BLOCK * 1e-8)


def scaled(x, bias=None):
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mark = torch.empty(1, dtype=torch.float32, device=x.device)
    n, columns = x.numel(), x.shape[-1]
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    scale_kernel[grid](x, bias, y, mark, n, columns, ROUNDS=2 if columns > 512 else 3)
    return y, mark


@triton.autotune(_configs(), key=["n"], reset_to_zero=["result"])
@triton.jit
def total_kernel(x, result, mark, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    tl.atomic_add(result, tl.sum(value * value, axis=0))
    if tl.program_id(0) == 0:
        tl.store(mark, 1.0 + BLOCK * 1e-8)


def total(x):
    x = x.contiguous()
    result = torch.zeros(1, dtype=torch.float32, device=x.device)
    mark = torch.empty(1, dtype=torch.float32, device=x.device)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    total_kernel[grid](x, result, mark, n)
    return result, mark


@triton.autotune(_configs(), key=["n"], restore_value=["out"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def accumulate_kernel(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(out + at, tl.load(out + at) + tl.load(x + at))
        else:
            mask = at < n
            sum_ = tl.load(out + at, mask=mask) + tl.load(x + at, mask=mask)
            tl.store(out + at, sum_, mask=mask)


def accumulate(out, x):
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count
    n = x.shape[0]
    grid = lambda meta: (min(programs, triton.cdiv(n, meta["BLOCK"])),)  # noqa: E731
    accumulate_kernel[grid](x.contiguous(), out, n)


@triton.autotune(
    [
        triton.Config({"BM": 16, "BN": 32, "BK": 128}, num_warps=2, num_stages=4),
        triton.Config({"BM": 64, "BN": 64, "BK": 64}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=8, num_stages=3),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * sam + inner[None, :] * sak,
            mask=(rows[:, None] < M) & (inner[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + inner[:, None] * sbk + columns[None, :] * sbn,
            mask=(inner[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=mask)


def _product(a, b):
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))  # noqa: E731
    matmul_kernel[grid](a, b, c, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    return c


class MatmulFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return _product(a, b)

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        da = _product(dc, b.t()) if ctx.needs_input_grad[0] else None
        db = _product(a.t(), dc) if ctx.needs_input_grad[1] else None
        return da, db


@triton.jit
def rows_kernel(x, y, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    value = tl.load(x + row * stride + at, mask=at < n, other=0.0)
    tl.store(y + row * n + at, value - tl.sum(value, axis=0) / n, mask=at < n)


def centred(x):
    """No candidates: the block is too small for longer rows."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block, warps = (256, 2) if x.shape[1] <= 256 else (4096, 8)
    rows_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=block, num_warps=warps)
    return y
