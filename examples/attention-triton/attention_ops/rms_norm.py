"""RMS normalisation of rows."""

import torch
import triton
import triton.language as tl

LONGEST_ROW = 65536


@triton.jit
def _rms_norm_forward(x, weight, y, rstd, stride_x, length, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < length
    values = tl.load(x + row * stride_x + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / length + eps)
    tl.store(rstd + row, scale)
    factors = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * length + columns, values * scale * factors, mask=mask)


@triton.jit
def _rms_norm_backward(
    dy, x, weight, rstd, dx, dweight, stride_x, rows, length, rows_per_program, BLOCK: tl.constexpr
):
    program = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < length
    factors = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    first = program * rows_per_program
    for row in range(first, min(first + rows_per_program, rows)):
        values = tl.load(x + row * stride_x + columns, mask=mask, other=0.0).to(tl.float32)
        grad = tl.load(dy + row * length + columns, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row)
        normal = values * scale
        total += grad * normal
        inner = grad * factors
        mean = tl.sum(inner * normal, axis=0) / length
        tl.store(dx + row * length + columns, (inner - normal * mean) * scale, mask=mask)
    tl.store(dweight + program * length + columns, total, mask=mask)


def launch_settings(length):
    """`BLOCK` and `num_warps` for rows of a length."""
    if length > LONGEST_ROW:
        raise ValueError(f"rows of {length} elements are too long")
    block = triton.next_power_of_2(length)
    num_warps = 4
    if block >= 2048:
        num_warps = 8
    if block >= 8192:
        num_warps = 16
    return block, num_warps


class RMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        rows, length = x.shape
        block, num_warps = launch_settings(length)
        y = torch.empty((rows, length), dtype=x.dtype, device=x.device)
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        _rms_norm_forward[(rows,)](
            x, weight, y, rstd, x.stride(0), length, eps, BLOCK=block, num_warps=num_warps
        )
        ctx.save_for_backward(x, weight, rstd)
        ctx.block, ctx.num_warps = block, num_warps
        return y.view(shape)

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        shape = dy.shape
        dy = dy.reshape(-1, shape[-1]).contiguous()
        rows, length = x.shape
        programs = torch.cuda.get_device_properties(x.device).multi_processor_count
        dx = torch.empty_like(dy)
        dweight = torch.empty((programs, length), dtype=torch.float32, device=x.device)
        _rms_norm_backward[(programs,)](
            dy,
            x,
            weight,
            rstd,
            dx,
            dweight,
            x.stride(0),
            rows,
            length,
            triton.cdiv(rows, programs),
            BLOCK=ctx.block,
            num_warps=ctx.num_warps,
        )
        return dx.view(shape), dweight.sum(dim=0).to(weight.dtype), None


def rms_norm(x, weight, eps=1e-6):
    """Divide rows by their root mean square, and multiply them by `weight`."""
    return RMSNormFunction.apply(x, weight, eps)
