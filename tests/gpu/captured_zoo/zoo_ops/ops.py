"""Functions with one trait each that a capture may lose."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(x, out, n, sx0, sx1, so0, so1, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * sx0 + at * sx1, mask=at < n)
        tl.store(out + row * so0 + at * so1, value * factor, mask=at < n)


@triton.jit
def add_rows(x, b, out, n, sx0, sx1, sb, so0, so1, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * sx0 + at * sx1, mask=at < n)
        if HAS_BIAS:
            value += tl.load(b + at * sb, mask=at < n)
        tl.store(out + row * so0 + at * so1, value, mask=at < n)


@triton.jit
def norm_rows(x, w, out, rstd, n, sx, so, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * sx + at, mask=at < n, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value) / n + eps)
    tl.store(rstd + row, scale)
    weight = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(out + row * so + at, value * scale * weight, mask=at < n)


@triton.jit
def norm_rows_backward(g, x, w, rstd, dx, n, sg0, sg1, sx, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    grad = tl.load(g + row * sg0 + at * sg1, mask=at < n, other=0.0).to(tl.float32)
    value = tl.load(x + row * sx + at, mask=at < n, other=0.0).to(tl.float32)
    weight = tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.load(rstd + row)
    wide = grad * weight
    mean = tl.sum(wide * value) / n
    tl.store(dx + row * n + at, (wide - value * mean * scale * scale) * scale, mask=at < n)


@triton.jit
def softmax_rows(x, out, n, sx0, sx1, so0, so1, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * sx0 + at * sx1, mask=at < n, other=float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value))
    tl.store(out + row * so0 + at * so1, value / tl.sum(value), mask=at < n)


def _scaled(x, out, factor):
    strides = (*x.stride(), *out.stride())
    scale_rows[(x.shape[0],)](x, out, x.shape[1], *strides, factor, BLOCK=128)
    return out


def scaled(x, factor=2.0):
    return _scaled(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), factor)


def in_place(x, factor=2.0):
    return _scaled(x, x, factor)


def into(x, out=None):
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return _scaled(x, out, 3.0)


def only_out(x, out):
    _scaled(x, out, 0.5)


def biased(x, bias=None):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.shape[0] > 0:
        step = 0 if bias is None else bias.stride(0)
        strides = (*x.stride(), step, *out.stride())
        options = {"HAS_BIAS": bias is not None, "BLOCK": 128}
        add_rows[(x.shape[0],)](x, bias, out, x.shape[1], *strides, **options)
    return out


def shifted(x, n=1):
    """A negative quotient, and a remainder."""
    return _scaled(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), int(n / 3) + n % 5)


def padded(x):
    """A result whose rows are apart."""
    rows, n = x.shape
    pitch = (n + 15) // 16 * 16 + 16
    out = torch.empty_strided((rows, n), (pitch, 1), dtype=x.dtype, device=x.device)
    return _scaled(x, out, 1.5)


def turned(x):
    """A result whose columns lie behind each other."""
    rows, n = x.shape
    out = torch.empty_strided((rows, n), (1, rows), dtype=x.dtype, device=x.device)
    return _scaled(x, out, 1.25)


def expanded(x):
    if 0 in x.stride():
        x = x.clone()
    return _scaled(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), 1.0)


def empty_or_not(x):
    if x.numel() == 0:
        return torch.full(x.shape, -1.0, dtype=x.dtype, device=x.device)
    return _scaled(x, torch.empty_like(x), 2.0)


def softmax(x):
    rows, n = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rows > 0:
        softmax_rows[(rows,)](x, out, n, *x.stride(), *out.stride(), BLOCK=1024)
    return out


def first_rows(x):
    """A view of what is computed, and twice the same."""
    out = _scaled(x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device), 2.0)
    return out[: x.shape[0] // 2], out.sum(-1)


def by_tf32(x):
    factor = 2.0 if torch.backends.cuda.matmul.allow_tf32 else 3.0
    return _scaled(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), factor)


def by_grad_mode(x):
    factor = 2.0 if torch.is_grad_enabled() else 3.0
    return _scaled(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), factor)


def by_autocast(x):
    factor = 2.0 if torch.is_autocast_enabled("cuda") else 3.0
    return _scaled(x, torch.empty(x.shape, dtype=x.dtype, device=x.device), factor)


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps):
        rows, n = x.shape
        x = x if x.stride(1) == 1 else x.contiguous()
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        if rows > 0:
            norm_rows[(rows,)](x, w, out, rstd, n, x.stride(0), n, eps, BLOCK=1024)
        ctx.save_for_backward(x, w, rstd)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, w, rstd = ctx.saved_tensors
        rows, n = x.shape
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if rows > 0:
            strides = (*grad.stride(), x.stride(0))
            norm_rows_backward[(rows,)](grad, x, w, rstd, dx, n, *strides, BLOCK=1024)
        return dx, None, None


def norm(x, w, eps=1e-6):
    return Norm.apply(x, w, eps)
