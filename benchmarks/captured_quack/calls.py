"""Calls of quack-kernels' functions: with fake tensors to record them, on a GPU to compare them."""

from __future__ import annotations

import contextlib
import importlib
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

DTYPES = (torch.bfloat16, torch.float32)
ROWS, COLUMNS = (128, 7), (1024, 4096)
MODULES = (
    "cross_entropy",
    "cute_dsl_utils",
    "gemm_interface",
    "linear",
    "rmsnorm",
    "rotary",
    "softmax",
    "topk",
    "transform.hadamard",
)
"""Modules that calls import."""


class Calls:
    """One call of each function for given sizes; the results are tensors."""

    def __init__(self, load, *, fake=False, tuned=True):
        """Take a function that imports a module of quack by its name."""
        self._load, self._fake, self._tuned = load, fake, tuned
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
            for name in ("rotary", "variants", "residual", "layernorm", "weighted"):
                run = getattr(self, f"_{name}")
                yield f"{name} {word}", lambda run=run, dtype=dtype: run(dtype)
        for name in ("gemm", "linear", "act", "gated", "rms", "symmetric", "tuned"):
            yield f"gemm {name}", getattr(self, f"_gemm_{name}")

    def first(self):
        """Return a call whose time on the host counts."""
        softmax, x = self._load("softmax"), self._new(128, 1024, dtype=torch.bfloat16)
        return lambda: softmax.softmax_fwd(x)

    def facts(self):
        """Return what the original and the package have to know alike."""
        clusters = self._load("cute_dsl_utils").get_max_active_clusters
        return {"active clusters of 1, 2, 4": [clusters(size) for size in (1, 2, 4)]}

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
        x = self._new(m, n, dtype=dtype, grad=True)
        values, indices = self._load("topk").topk(x, 16)
        return values, indices, *self._gradients(values, x)

    def _hadamard(self, m, n, dtype):
        x = self._new(m, n, dtype=dtype, grad=True)
        y = self._load("transform.hadamard").hadamard_transform(x)
        return y, *self._gradients(y, x)

    def _rotary(self, dtype):
        """In halves and interleaved, and with sequences of their own lengths."""
        rotary = self._load("rotary").apply_rotary_emb
        x, cos, sin = (self._new(*s, dtype=dtype) for s in ((2, 128, 8, 64), (128, 32), (128, 32)))
        x.requires_grad_()
        ys = [rotary(x, cos, sin), rotary(x, cos, sin, interleaved=True)]
        ends = torch.tensor([0, 128, 256], dtype=torch.int32, device=self._device)
        flat = self._new(256, 8, 64, dtype=dtype, grad=True)
        y = rotary(flat, cos, sin, cu_seqlens=ends, max_seqlen=128)
        return (*ys, y, *self._gradients(ys[0], x), *self._gradients(ys[1], x))

    def _variants(self, dtype):
        """Topk of which softmax is taken, and logits of which the gradient comes with the loss."""
        x = self._new(64, 1024, dtype=dtype, grad=True)
        values, indices = self._load("topk").topk(x, 16, softmax=True)
        entropy = self._load("cross_entropy").cross_entropy_fwd
        target = torch.arange(64, device=self._device) * 7
        more = entropy(x.detach(), target, return_lse=True, return_dx=True)
        return values, indices, *self._gradients(values, x), *more

    def _residual(self, dtype):
        """Rmsnorm of a sum, with a bias; the sum is a result."""
        rms = self._load("rmsnorm")
        x, residual = (self._new(64, 1024, dtype=dtype, grad=True) for _ in range(2))
        weight, bias = (self._new(1024, dtype=torch.float32, grad=True) for _ in range(2))
        y, total = rms.rmsnorm(x, weight, bias, residual, prenorm=True)
        given = [self._new(64, 1024, dtype=dtype) for _ in range(2)]
        return y, total, *torch.autograd.grad([y, total], [x, weight, bias, residual], given)

    def _layernorm(self, dtype):
        rms = self._load("rmsnorm")
        x, dout = (self._new(64, 1024, dtype=dtype) for _ in range(2))
        weight, bias = (self._new(1024, dtype=torch.float32) for _ in range(2))
        y, rstd, mean = rms.layernorm_fwd(x, weight, bias, return_rstd=True, return_mean=True)
        return y, rstd, mean, *rms.layernorm_bwd(x, weight, dout, rstd, mean)

    def _weighted(self, dtype):
        """Cross entropy with weights of classes, by the functions below the gradient."""
        entropy = self._load("cross_entropy")
        device = "cuda"
        x = torch.randn(64, 1024, device=device).to(dtype)
        target, weight = torch.arange(64, device=device) * 7, torch.rand(1024, device=device)
        loss, lse = entropy.cross_entropy_fwd(x, target, weight=weight, return_lse=True)
        return loss, entropy.cross_entropy_bwd(x, target, loss, lse, weight=weight)

    def _gradients(self, y, *inputs):
        return torch.autograd.grad(y, inputs, self._new(*y.shape, dtype=y.dtype))

    def _matrices(self, grad=False):
        """Return factors of a product of 512 x 1024."""
        sizes = ((512, 256), (256, 1024))
        return [self._new(*each, dtype=torch.bfloat16, grad=grad) for each in sizes]

    def _gemm_gemm(self):
        """Products with each of the linear terms."""
        gemm, (a, b) = self._load("gemm_interface"), self._matrices()
        c, bias = (self._new(*each, dtype=torch.bfloat16) for each in ((512, 1024), (1024,)))
        batch = [torch.stack([each, each]) for each in (a, b)]
        return (
            gemm.gemm(a, b, tuned=False),
            gemm.gemm(a, b, bias=bias, tuned=False),
            gemm.gemm(*batch, alpha=0.5, out_dtype=torch.float32, tuned=False),
            gemm.gemm_add(a, b, c, tuned=False),
            gemm.gemm_add(a, b, c, beta=0.5, tuned=False),
        )

    def _gemm_linear(self):
        """Linear layers with gradients of all inputs."""
        x = self._new(512, 256, dtype=torch.bfloat16, grad=True)
        weight = self._new(1024, 256, dtype=torch.bfloat16, grad=True)
        y = self._load("linear").linear_func(x, weight, tuned=False)
        return y, *self._gradients(y, x, weight)

    def _gemm_act(self):
        gemm, (a, b) = self._load("gemm_interface"), self._matrices()
        preact = self._new(512, 1024, dtype=torch.bfloat16)
        return (
            *gemm.gemm_act(a, b, activation="gelu_tanh_approx", tuned=False),
            *gemm.gemm_dact(a, b, preact, activation="gelu_tanh_approx", tuned=False),
        )

    def _gemm_gated(self):
        gemm, (a, b) = self._load("gemm_interface"), self._matrices()
        preact = self._new(512, 2048, dtype=torch.bfloat16)
        return (
            *gemm.gemm_act(a, b, activation="swiglu", tuned=False),
            *gemm.gemm_dact(a, b, preact, activation="swiglu", tuned=False),
        )

    def _gemm_rms(self):
        gemm, (a, b) = self._load("gemm_interface"), self._matrices()
        norm = gemm.gemm_norm_act(
            a, b, self._new(512, dtype=torch.float32), activation="swiglu", tuned=False
        )
        return *gemm.gemm_rms(a, b, tuned=False), norm[1]

    def _gemm_symmetric(self):
        a, _ = self._matrices()
        return (self._load("gemm_interface").gemm_symmetric(a, a.mT),)

    def _gemm_tuned(self):
        """What the tuner chooses for a product, an activation and a norm."""
        gemm, (a, b) = self._load("gemm_interface"), self._matrices()
        rms, weight = self._load("rmsnorm"), self._new(256, dtype=torch.float32)
        normed = torch.empty_like(a)
        (rms.rmsnorm_fwd_tuned if self._tuned else rms._rmsnorm_fwd)(a, weight, normed)  # noqa: SLF001
        act = gemm.gemm_act(a, b, activation="gelu_tanh_approx", tuned=self._tuned)
        return gemm.gemm(a, b, tuned=self._tuned), *act, normed


if __name__ == "__main__":  # `gpu` runs the calls; other words are parts of the names of some
    asked = sys.argv[1:]
    on_gpu = "gpu" in asked
    parts = [word for word in asked if word != "gpu"]
    calls = Calls(lambda name: importlib.import_module(f"quack.{name}"), fake=not on_gpu)
    with contextlib.nullcontext() if on_gpu else FakeTensorMode():
        for name, run in calls.every():
            if not parts or any(part in name for part in parts):
                print(name, file=sys.stderr)
                run()
