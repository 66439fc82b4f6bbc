"""Functions with an optional argument, an option, own candidates, and ATen between launches."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 1024)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def bias_kernel(x, b, y, n, N, HAS_BIAS: tl.constexpr, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask, other=0.0)
    if HAS_BIAS:
        value += tl.load(b + at % N, mask=mask, other=0.0)
    tl.store(y + at, value, mask=mask)


def add_bias(x, bias=None, scale=1.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    bias_kernel[grid](x, bias, y, n, x.shape[-1], HAS_BIAS=bias is not None)
    return y * scale


@triton.jit
def relu_kernel(x, y, rows, N: tl.constexpr, stride, negative, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + at, mask=at < N, other=0.0)
        tl.store(y + row * N + at, tl.where(value > 0, value, value * negative), mask=at < N)


def bias_relu(x, bias, leaky=False):
    half = x[..., : x.shape[-1] // 2]
    rows, n = half.shape
    y = torch.zeros((rows, n), dtype=x.dtype, device=x.device)
    relu_kernel[(rows,)](half, y, rows, n, half.stride(0), 0.5 if leaky else 0.0, BLOCK=128)
    return y + bias


@triton.jit
def softmax_kernel(x, y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at, mask=at < n, other=float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * n + at, value / tl.sum(value, axis=0), mask=at < n)


@triton.jit
def softmax_gradient_kernel(y, dy, dx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(y + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    gradient = tl.load(dy + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    total = tl.sum(value * gradient, axis=0)
    tl.store(dx + row * n + at, value * (gradient - total), mask=at < n)


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows, n = x.shape
        if n > 4096:
            raise ValueError("too long")
        y = torch.empty((rows, n), dtype=x.dtype, device=x.device)
        x = x.contiguous() if x.stride(1) != 1 else x
        block = triton.next_power_of_2(n)
        softmax_kernel[(rows,)](x, y, x.stride(0), n, BLOCK=block, num_warps=8 if n > 1024 else 4)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        rows, n = y.shape
        dx = torch.empty_like(y)
        block = triton.next_power_of_2(n)
        softmax_gradient_kernel[(rows,)](y, dy.contiguous(), dx, n, BLOCK=block)
        return dx
