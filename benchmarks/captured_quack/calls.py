"""Calls of quack-kernels' functions: with fake tensors to record them, on a GPU to compare them."""

from __future__ import annotations

import importlib
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = (torch.bfloat16, torch.float32)
ROWS, COLUMNS = (128, 7), (1024, 4096)


class Calls:
    """One call of each function for given sizes; the results are tensors."""

    def __init__(self, load, *, fake=False):
        """Take a function that imports a module of quack by its name."""
        self._load, self._fake = load, fake
        self._device = "cpu" if fake else "cuda"  # fake tensors of a GPU have no gradients here

    def every(self):
        """Name of each call, and a function without arguments."""
        for dtype in DTYPES:
            word = str(dtype).removeprefix("torch.")
            for n in COLUMNS:
                for m in ROWS:
                    for kind in ("softmax", "rmsnorm", "cross_entropy", "topk", "hadamard"):
                        if kind != "topk" or n == COLUMNS[0]:
                            run = getattr(self, f"_{kind}")
                            yield f"{kind} {word} {m}x{n}", lambda run=run, a=(m, n, dtype): run(*a)
            yield f"rotary {word}", lambda dtype=dtype: self._rotary(dtype)

    def _new(self, *sizes, dtype, grad=False):
        if self._fake:
            tensor = torch.empty(sizes, dtype=dtype, device=self._device)
        else:
            tensor = torch.randn(sizes, device=self._device).to(dtype)
        return tensor.requires_grad_() if grad else tensor

    def _softmax(self, m, n, dtype):
        softmax = self._load("softmax")
        y = softmax.softmax_fwd(x := self._new(m, n, dtype=dtype))
        return y, softmax.softmax_bwd(x, y)

    def _rmsnorm(self, m, n, dtype):
        rms = self._load("rmsnorm")
        x = self._new(m, n, dtype=dtype, grad=True)
        weight = self._new(n, dtype=torch.float32, grad=True)
        y = rms.rmsnorm(x, weight)
        if self._fake:  # the op of the gradient runs nothing on fake tensors
            count, floats = rms.get_sm_count(n, x.device), torch.float32
            rstd, partial = self._new(m, dtype=floats), self._new(count, n, dtype=floats)
            dx = self._new(m, n, dtype=dtype)
            rms._rmsnorm_bwd(x, weight, y, rstd, dx, partial, None, None, None, count)  # noqa: SLF001
        return y, *torch.autograd.grad(y, [x, weight], self._new(m, n, dtype=dtype))

    def _cross_entropy(self, m, n, dtype):
        x = self._new(m, n, dtype=dtype, grad=True)
        target = torch.arange(m, device=self._device) * 7 % n
        loss = self._load("cross_entropy").cross_entropy(x, target, reduction="none")
        return loss, *torch.autograd.grad(loss, [x], self._new(m, dtype=torch.float32))

    def _topk(self, m, n, dtype):
        return self._load("topk").topk(self._new(m, n, dtype=dtype), 16)

    def _hadamard(self, m, n, dtype):
        x = self._new(m, n, dtype=dtype)
        return (self._load("transform.hadamard").hadamard_transform(x),)

    def _rotary(self, dtype):
        x, cos, sin = (self._new(*s, dtype=dtype) for s in ((2, 128, 8, 64), (128, 32), (128, 32)))
        return (self._load("rotary").apply_rotary_emb(x, cos, sin),)


if __name__ == "__main__":
    calls = Calls(lambda name: importlib.import_module(f"quack.{name}"), fake=True)
    with FakeTensorMode():
        for name, run in calls.every():
            print(name, file=sys.stderr)
            run()
