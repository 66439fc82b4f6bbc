"""A loss that asks data: how many labels count."""

import torch
import triton
import triton.language as tl

from captured_ops.settings import exp_of, settings


@triton.heuristics({"HAS_WEIGHT": lambda args: args["weight_ptr"] is not None})
@triton.jit
def loss_kernel(
    x_ptr,
    label_ptr,
    weight_ptr,
    loss_ptr,
    stride,
    n,
    ignored,
    count,
    smoothing,
    BLOCK: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    REDUCTION: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(label_ptr + row)
    if label == ignored:
        tl.store(loss_ptr + row, 0.0)
        return
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + i, i < n, float("-inf")).to(tl.float32)
    largest = tl.max(x, 0)
    total = tl.sum(exp_of(x - largest), 0)
    own = tl.load(x_ptr + row * stride + label).to(tl.float32)
    loss = (tl.log(total) + largest - own) * (1 - smoothing)
    if HAS_WEIGHT:
        loss *= tl.load(weight_ptr + label).to(tl.float32)
    if REDUCTION == "mean":
        loss = loss / count
    tl.store(loss_ptr + row, loss)


def cross_entropy(x, label, weight=None, ignored=-100, reduction="mean", smoothing=0.0):
    rows, n = x.shape
    count = (label != ignored).sum().item()
    loss = torch.empty(rows, dtype=torch.float32, device=x.device)
    block, warps = settings(n)
    loss_kernel[(rows,)](
        x,
        label,
        weight,
        loss,
        x.stride(0),
        n,
        ignored,
        count,
        smoothing,
        BLOCK=block,
        REDUCTION=reduction,
        num_warps=warps,
    )
    return loss.sum() if reduction == "mean" else loss
