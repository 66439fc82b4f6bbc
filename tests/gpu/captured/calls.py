"""Calls of the ops; `python calls.py DEVICE` makes all of them, for `kbuild capture --record`."""

from __future__ import annotations

import sys

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def calls(ops, device):
    """Each call's name, the function, and its tensors, which need gradients where it has some."""
    rows = 6
    for dtype in DTYPES:
        for n in (100, 1024, 4096):
            generator = torch.Generator().manual_seed(n)

            def random(*shape, generator=generator, dtype=dtype):
                return torch.randn(*shape, generator=generator).to(dtype).to(device)

            name = f"{str(dtype).rpartition('.')[2]} {n}"
            x, weight = random(rows, n), random(n)
            yield f"rms_norm {name}", ops.rms_norm, (x, weight), True
            yield f"scale {name}", lambda x: ops.scale(x, 2.0), (x,), False
            label = torch.randint(0, n, (rows,), generator=generator).to(device)
            label[1] = -100
            for reduction in ("mean", "none"):
                for own in (None, weight):

                    def loss(x, label, own=own, reduction=reduction):
                        return ops.cross_entropy(x, label, own, reduction=reduction)

                    weighted = "" if own is None else " weighted"
                    yield f"cross_entropy {name} {reduction}{weighted}", loss, (x, label), False
            if n > 100:
                yield f"tiles {name}", ops.tiles, (x,), False


def results(function, tensors, *, differentiable):
    """What a call returns, and the gradients."""
    tensors = tuple(tensor.detach().clone() for tensor in tensors)
    for tensor in tensors:
        tensor.requires_grad_(differentiable)
    out = function(*tensors)
    if not differentiable:
        return [out]
    out.backward(torch.ones_like(out))
    return [out, *(tensor.grad for tensor in tensors)]


if __name__ == "__main__":
    import captured_ops

    for _name, function, tensors, differentiable in calls(captured_ops, sys.argv[1]):
        results(function, tensors, differentiable=differentiable)
