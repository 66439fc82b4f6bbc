"""Kernels in Helion: of any sizes and of fixed ones, with no config, one, and several."""

from __future__ import annotations

import helion
import helion.language as hl
import torch

ROW = helion.Config(block_sizes=[1], num_warps=8)


@helion.kernel(config=helion.Config(block_sizes=[8, 128], num_warps=4), static_shapes=False)
def scaled_add(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(out.size()):
        out[rows, columns] = x[rows, columns] + scale * y[rows, columns]
    return out


@helion.kernel(static_shapes=False)
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :].to(torch.float32)
        exponentials = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[rows, :] = (exponentials / exponentials.sum(dim=1, keepdim=True)).to(out.dtype)
    return out


@helion.kernel(configs=[ROW, helion.Config(block_sizes=[2], num_warps=16)], static_shapes=False)
def rms_norm_forward(
    x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(x)
    scales = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :].to(torch.float32)
        scale = torch.rsqrt((values * values).mean(dim=-1) + eps)
        out[rows, :] = (values * scale[:, None] * weight[:].to(torch.float32)).to(out.dtype)
        scales[rows] = scale
    return out, scales


@helion.kernel(config=helion.Config(block_sizes=[4], num_warps=8), static_shapes=False)
def rms_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    grad_x = torch.empty_like(x)
    block = hl.register_block_size(x.size(0))
    sums = x.new_empty([helion.cdiv(x.size(0), block), x.size(1)], dtype=torch.float32)
    for rows in hl.tile(x.size(0), block_size=block):
        values, given = x[rows, :].to(torch.float32), grad[rows, :].to(torch.float32)
        scale = scales[rows][:, None]
        weighted = given * weight[:].to(torch.float32)
        inner = (weighted * values).mean(dim=-1)[:, None]
        grad_x[rows, :] = (scale * weighted - scale * scale * scale * values * inner).to(x.dtype)
        sums[rows.id, :] = (given * values * scale).sum(dim=0)
    return grad_x, sums.sum(0).to(weight.dtype)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        out, scales = rms_norm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, scales)
        return out

    @staticmethod
    def backward(ctx, grad):
        return *rms_norm_backward(grad.contiguous(), *ctx.saved_tensors), None


@helion.kernel(config=ROW, static_shapes=False)
def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :].to(torch.float32)
        centred = values - values.mean(dim=-1)[:, None]
        scale = torch.rsqrt((centred * centred).mean(dim=-1) + eps)
        affine = centred * scale[:, None] * weight[:].to(torch.float32) + bias[:].to(torch.float32)
        out[rows, :] = affine.to(out.dtype)
    return out


@helion.kernel(
    configs=[
        helion.Config(block_sizes=[64, 64, 32], num_warps=4, num_stages=2),
        helion.Config(block_sizes=[128, 128, 64], num_warps=8, pid_type="persistent_blocked"),
        helion.Config(block_sizes=[64, 128, 64], l2_groupings=[8], num_warps=4, num_stages=3),
    ],
    static_shapes=False,
)
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    inner, n = y.size()
    assert k == inner, "the inner sizes differ"
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([m, n]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for depth in hl.tile(k):
            total = torch.addmm(total, x[rows, depth], y[depth, columns])
        out[rows, columns] = total.to(out.dtype)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16, 64]), static_shapes=False)
def embedding(indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    flat = indices.view(-1)
    out = torch.empty([flat.size(0), table.size(1)], dtype=table.dtype, device=table.device)
    for rows, columns in hl.tile([flat.size(0), table.size(1)]):
        out[rows, columns] = table[flat[rows], columns]
    return out


@helion.kernel(config=helion.Config(block_sizes=[512]), static_shapes=False)
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(gate)
    flat_gate, flat_up, flat_out = gate.view(-1), up.view(-1), out.view(-1)
    for items in hl.tile(gate.numel()):
        value = flat_gate[items].to(torch.float32)
        flat_out[items] = (value * torch.sigmoid(value)).to(out.dtype) * flat_up[items]
    return out


@helion.kernel(config=ROW, static_shapes=False)
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    losses = torch.empty([logits.size(0)], dtype=torch.float32, device=logits.device)
    flat = logits.view(-1)
    for rows in hl.tile(logits.size(0)):
        values = logits[rows, :].to(torch.float32)
        most = torch.amax(values, dim=-1)
        logsum = most + torch.log(torch.exp(values - most[:, None]).sum(dim=-1))
        label = hl.load(flat, [rows.index * logits.size(1) + labels[rows]]).to(torch.float32)
        losses[rows] = logsum - label
    return losses.mean()


@helion.kernel(
    config=helion.Config(block_sizes=[1], reduction_loops=[1024], num_warps=8), static_shapes=False
)
def row_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for rows in hl.tile(x.size(0)):
        out[rows] = x[rows, :].to(torch.float32).sum(dim=-1)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16, 64]))
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        out[rows, columns] = x[rows, columns] * 2
    return out


@helion.kernel(config=ROW)
def multiplied(x: torch.Tensor, factor: int, is_negative: hl.constexpr) -> torch.Tensor:
    """Has code for each factor and each sign."""
    factor = hl.specialize(factor)
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * (-factor if is_negative else factor)
    return out


@helion.kernel(config=ROW, static_shapes=False)
def refused(x: torch.Tensor) -> torch.Tensor:
    """Helion compiles no kernel without a loop over tiles."""
    return x * 2


@helion.kernel(config=ROW, static_shapes=False, backend="cute")
def in_cute(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = x[rows, :] * 2
    return out
