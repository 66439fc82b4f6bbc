import torch
import triton
import triton.language as tl


@triton.jit
def _forward(x, w, y, rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    values = tl.load(x + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / N + eps)
    tl.store(rstd + row, scale)
    weight = tl.load(w + columns, mask=mask, other=0.0).to(tl.float32)
    tl.store(y + row * N + columns, values * scale * weight, mask=mask)


@triton.jit
def _backward(dy, x, w, rstd, dx, dw, stride_dy, stride_x, rows, N, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    count = tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < N
    weight = tl.load(w + columns, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(program, rows, count):
        values = tl.load(x + row.to(tl.int64) * stride_x + columns, mask=mask, other=0.0).to(
            tl.float32
        )
        grad = tl.load(dy + row.to(tl.int64) * stride_dy + columns, mask=mask, other=0.0).to(
            tl.float32
        )
        scale = tl.load(rstd + row)
        scaled = values * scale
        total += grad * scaled
        grad *= weight
        mean = tl.sum(grad * scaled, axis=0) / N
        tl.store(dx + row.to(tl.int64) * N + columns, (grad - scaled * mean) * scale, mask=mask)
    tl.store(dw + program.to(tl.int64) * N + columns, total, mask=mask)


def settings(n):
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise ValueError(f"rows of {n} elements are too long")
    return block, 4 if block < 2048 else 8 if block < 8192 else 16


class RMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps=1e-6):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        if x.stride(-1) != 1:
            x = x.contiguous()
        rows, n = x.shape
        y = torch.empty((rows, n), dtype=x.dtype, device=x.device)
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        block, warps = settings(n)
        _forward[(rows,)](x, weight, y, rstd, x.stride(0), n, eps, BLOCK=block, num_warps=warps)
        ctx.save_for_backward(x, weight, rstd)
        ctx.block, ctx.warps = block, warps
        return y.view(shape)

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        rows, n = x.shape
        shape = dy.shape
        dy = dy.reshape(-1, n).contiguous()
        programs = torch.cuda.get_device_properties(x.device).multi_processor_count
        dx = torch.empty((rows, n), dtype=x.dtype, device=x.device)
        dw = torch.empty((programs, n), dtype=torch.float32, device=x.device)
        _backward[(programs,)](
            dy,
            x,
            weight,
            rstd,
            dx,
            dw,
            dy.stride(0),
            x.stride(0),
            rows,
            n,
            BLOCK=ctx.block,
            num_warps=ctx.warps,
        )
        dw = dw.sum(dim=0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        return dx.view(shape), dw, None
