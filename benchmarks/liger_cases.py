"""Random calls of ops of liger-kernel: by kbuild's build and by the original."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

DTYPES = ("float16", "bfloat16", "float32")
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One call, for both sides."""

    inputs: Sequence[Any]
    """Tensors; gradients are asked of those that require them."""
    built: Function
    """Takes the inputs."""
    original: Function
    close: Mapping[str, float] = field(default_factory=dict)
    """Results (`output 0`, `gradient 1`) that atomics add up in any order, with how far they may be
    apart in relation to the largest number; every other one must be equal, bit for bit."""


class Draw:
    """Random tensors and settings of one dtype."""

    def __init__(self, built: Any, seed: int, dtype: str, device: str) -> None:
        import torch

        self.torch, self.built = torch, built
        self.dtype, self.device = getattr(torch, dtype), device
        self.random = random.Random(seed)  # noqa: S311
        self._generator = torch.Generator().manual_seed(seed)

    def original(self, module: str, name: str) -> Function:
        """The `apply` of a class of the original."""
        function: Function = getattr(import_module(f"liger_kernel.ops.{module}"), name).apply
        return function

    def one_of(self, *values: Any) -> Any:
        """One of them."""
        return self.random.choice(values)

    def between(self, low: int, high: int, step: int = 1) -> int:
        """An integer, both ends included."""
        return self.random.randrange(low, high + 1, step)

    def width(self) -> int:
        """How long a row is, for images with 1024 elements a block; one in three is odd."""
        return self.between(513, 1024) if self.between(0, 2) == 0 else self.between(528, 1024, 16)

    def tensor(self, *shape: int, dtype: Any = None, grad: bool = True, scale: float = 1.0) -> Any:
        """Normally distributed numbers."""
        numbers = self.torch.randn(shape, generator=self._generator) * scale
        return numbers.to(dtype or self.dtype).to(self.device).requires_grad_(grad)

    def logs(self, *shape: int, grad: bool = True) -> Any:
        """Log-probabilities."""
        numbers = self.torch.randn(shape, generator=self._generator)
        return numbers.log_softmax(-1).to(self.dtype).to(self.device).requires_grad_(grad)

    def probabilities(self, *shape: int) -> Any:
        """Probabilities, without gradients."""
        numbers = self.torch.randn(shape, generator=self._generator)
        return numbers.softmax(-1).to(self.dtype).to(self.device)

    def integers(self, high: int, *shape: int) -> Any:
        """Below a bound."""
        return self.torch.randint(0, high, shape, generator=self._generator).to(self.device)

    def labels(self, high: int, rows: int) -> Any:
        """Classes, one in five of which does not count."""
        labels = self.integers(high, rows)
        skipped = self.integers(5, rows) == 0
        skipped[0] = False
        labels[skipped] = -100
        return labels


def relu_squared(draw: Draw) -> Case:
    x = draw.tensor(draw.between(1, 9), draw.between(1, 40), draw.one_of(256, 1000, 4096))
    return Case(
        [x], draw.built.relu_squared, draw.original("relu_squared", "LigerReLUSquaredFunction")
    )


def geglu(draw: Draw) -> Case:
    shape = draw.between(1, 9), draw.between(1, 40), draw.one_of(1000, 2048)
    inputs = [draw.tensor(*shape), draw.tensor(*shape)]
    return Case(inputs, draw.built.geglu, draw.original("geglu", "LigerGELUMulFunction"))


def swiglu(draw: Draw) -> Case:
    if draw.one_of(True, False):
        y = draw.tensor(draw.between(1, 300), draw.one_of(1024, 2048))
        function = draw.original("swiglu", "LigerFusedGateUpSiLUMulFunction")
        return Case([y], draw.built.swiglu_fused, function)
    shape = draw.between(1, 9), draw.between(1, 40), draw.one_of(1000, 2048)
    gate, down = draw.one_of((1.0, 1.0), (0.5, 1.0), (1.25, 3.0))
    function = draw.original("swiglu", "LigerSiLUMulFunction")
    return Case(
        [draw.tensor(*shape), draw.tensor(*shape)],
        lambda a, b: draw.built.swiglu(a, b, gate, down),
        lambda a, b: function(a, b, gate, down),
    )


def softmax(draw: Draw) -> Case:
    columns = draw.one_of(draw.between(65, 128), draw.width(), draw.between(2049, 4096))
    x = draw.tensor(draw.between(1, 9), draw.between(1, 40), columns, scale=3.0)
    return Case([x], draw.built.softmax, draw.original("softmax", "LigerSoftmaxFunction"))


def sparsemax(draw: Draw) -> Case:
    sizes = [draw.between(1, 9), draw.width()]
    dim = draw.one_of(-1, 0)
    x = draw.tensor(*(sizes if dim else reversed(sizes)), scale=2.0)
    function = draw.original("sparsemax", "LigerSparsemaxFunction")
    return Case([x], lambda x: draw.built.sparsemax(x, dim), lambda x: function(x, dim))


def vocab_parallel_cross_entropy(draw: Draw) -> Case:
    s, b = draw.between(1, 20), draw.between(1, 5)
    v = draw.one_of(draw.width(), draw.between(30000, 40000))
    smoothing = draw.one_of(0.0, 0.1)
    x, target = draw.tensor(s, b, v), draw.labels(v, s * b).view(s, b)
    function = draw.original("vocab_parallel_cross_entropy", "LigerVocabParallelCEFunction")
    return Case(
        [x, target],
        lambda x, target: draw.built.vocab_parallel_cross_entropy(x, target, -100, smoothing),
        lambda x, target: function(x, target, None, -100, smoothing, "pytorch", "global"),
    )


def cross_entropy(draw: Draw) -> Case:
    reduction, scale, smoothing, extras = draw.one_of(
        ("mean", 0.0, 0.0, False), ("mean", 1e-4, 0.1, True), ("sum", 0.0, 0.1, False)
    )
    softcap = 30.0 if extras else None
    rows = draw.between(1, 200)
    columns = (
        draw.one_of(draw.width(), draw.between(30000, 70000)) if not smoothing else draw.width()
    )
    weight = draw.one_of([], [draw.tensor(columns, dtype=draw.torch.float32, grad=False).abs()])
    function = draw.original("cross_entropy", "LigerCrossEntropyFunction")

    def original(x: Any, target: Any, weight: Any = None) -> Any:
        return function(
            x, target, weight, -100, scale, smoothing, reduction, softcap, extras, extras, extras
        )

    def built(x: Any, target: Any, weight: Any = None) -> Any:
        return draw.built.cross_entropy(
            x, target, weight, scale, smoothing, reduction, softcap, extras
        )

    return Case(
        [draw.tensor(rows, columns, scale=3.0), draw.labels(columns, rows), *weight],
        built,
        original,
    )


def kl_div(draw: Draw) -> Case:
    reduction, log_target = (
        draw.one_of("none", "sum", "mean", "batchmean"),
        draw.one_of(True, False),
    )
    rows, columns = draw.between(1, 200), draw.width()
    if reduction == "none":
        columns -= columns % 16
    target = (
        draw.logs(rows, columns, grad=False) if log_target else draw.probabilities(rows, columns)
    )
    function = draw.original("kl_div", "LigerKLDivLossFunction")
    return Case(
        [draw.logs(rows, columns), target],
        lambda y, target: draw.built.kl_div(y, target, reduction, log_target),
        lambda y, target: function(y, target, reduction, log_target),
    )


def tvd(draw: Draw) -> Case:
    reduction = draw.one_of("none", "sum", "mean", "batchmean")
    rows, columns = draw.between(1, 200), draw.width()
    labels = draw.one_of([], [draw.labels(columns, rows)])
    function = draw.original("tvd", "LigerTVDLossFunction")
    p = draw.probabilities(rows, columns).requires_grad_()
    return Case(
        [p, draw.probabilities(rows, columns), *labels],
        lambda p, q, labels=None: draw.built.tvd(p, q, labels, reduction),
        lambda p, q, labels=None: function(p, q, labels, reduction, -100),
    )


def jsd(draw: Draw) -> Case:
    beta, low, high = draw.one_of(
        (0.0, 528, 1024), (0.5, 528, 1024), (1.0, 528, 1024), (0.5, 4112, 9000)
    )
    rows, columns = draw.between(1, 100), draw.between(low, high, 16)
    labels = draw.one_of([], [draw.labels(columns, rows)])
    function = draw.original("jsd", "LigerJSDFunction")
    return Case(
        [draw.logs(rows, columns), draw.logs(rows, columns, grad=False), *labels],
        lambda x, y, labels=None: draw.built.jsd(x, y, labels, beta),
        lambda x, y, labels=None: function(x, y, labels, beta, -100, "nvidia-triton"),
    )


def rope(draw: Draw) -> Case:
    heads, groups, size, width, every = draw.one_of(
        (8, 2, 64, 64, False), (8, 2, 64, 64, True), (6, 3, 80, 48, False)
    )
    batch, tokens = draw.between(2, 5), draw.between(1, 70)
    angles = [draw.tensor(batch if every else 1, tokens, width, grad=False) for _ in range(2)]
    q, k = draw.tensor(batch, heads, tokens, size), draw.tensor(batch, groups, tokens, size)
    return Case([q, k, *angles], draw.built.rope, draw.original("rope", "LigerRopeFunction"))


def qwen2vl_mrope(draw: Draw) -> Case:
    batch, heads, groups, size, *section = draw.one_of(
        (1, 8, 2, 64, 8, 12), (2, 12, 4, 128, 16, 24)
    )
    tokens = draw.between(1, 70)
    angles = [draw.tensor(3, batch, tokens, size, grad=False) for _ in range(2)]
    q, k = draw.tensor(batch, heads, tokens, size), draw.tensor(batch, groups, tokens, size)
    function = draw.original("qwen2vl_mrope", "LigerQwen2VLMRopeFunction")
    return Case(
        [q, k, *angles],
        lambda *inputs: draw.built.qwen2vl_mrope(*inputs, section),
        lambda *inputs: function(*inputs, section),
    )


def llama4_rope(draw: Draw) -> Case:
    heads, groups, size = draw.one_of((8, 2, 64), (4, 4, 128), (3, 2, 40))
    batch, tokens = draw.between(1, 5), draw.between(1, 70)
    angles = draw.tensor(tokens, size // 2, 2, dtype=draw.torch.float32, grad=False)
    q, k = draw.tensor(batch, tokens, heads, size), draw.tensor(batch, tokens, groups, size)
    inputs = [q, k, draw.torch.view_as_complex(angles)]
    return Case(
        inputs, draw.built.llama4_rope, draw.original("llama4_rope", "LigerLlama4RopeFunction")
    )


def multi_token_attention(draw: Draw) -> Case:
    batch, heads, size = draw.between(1, 3), draw.between(1, 4), draw.between(33, 64)
    sparse = draw.dtype == draw.torch.float32 and draw.one_of(True, False)
    weight, bias = draw.tensor(heads, heads, 3, 3, scale=0.3), draw.tensor(heads)
    function = draw.original("multi_token_attention", "LigerMultiTokenAttentionFunction")
    return Case(
        [draw.tensor(batch, heads, size, size), weight, bias],
        lambda *inputs: draw.built.multi_token_attention(*inputs, 1, 1, 1, 1, sparse),
        lambda *inputs: function(*inputs, 1, 1, 1, 1, sparse),
    )


def fused_neighborhood_attention(draw: Draw) -> Case:
    *shape, window, step = draw.one_of((2, 4, 128, 64, 7, 1), (1, 2, 96, 32, 5, 2))
    function = draw.original(
        "fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction"
    )
    return Case(
        [draw.tensor(*shape) for _ in range(3)],
        lambda *inputs: draw.built.neighborhood_attention(*inputs, window, step),
        lambda *inputs: function(*inputs, window, step),
    )


def group_norm(draw: Draw) -> Case:
    size, channels, groups = (*draw.one_of((64, 4), (256, 2), (256, 4)), draw.between(1, 6))
    # The sums of two rows are the same in any order.
    x = draw.tensor(draw.between(1, 2), groups * channels, size)
    function = draw.original("group_norm", "LigerGroupNormFunction")
    return Case(
        [x, draw.tensor(groups * channels), draw.tensor(groups * channels)],
        lambda *inputs: draw.built.group_norm(*inputs, groups, 1e-5),
        lambda *inputs: function(*inputs, groups * channels, groups, 1e-5),
    )


def embedding(draw: Draw) -> Case:
    rows, size = draw.between(10, 300), draw.one_of(64, 192, 100)
    indices = draw.integers(rows, draw.between(1, 9), draw.between(1, 60))
    many = indices.unique(return_counts=True)[1].max() > 2
    function = draw.original("experimental.embedding", "LigerEmbeddingFunction")
    close = {"gradient 0": 1e-6 if draw.dtype == draw.torch.float32 else 2e-2} if many else {}
    return Case([draw.tensor(rows, size), indices], draw.built.embedding, function, close)


def attn_res(draw: Draw) -> Case:
    blocks, batch, tokens = draw.between(1, 8), draw.between(1, 4), draw.between(1, 40)
    size = draw.one_of(draw.between(272, 512, 16), draw.between(1040, 2048, 16))
    function = draw.original("attn_res", "LigerAttnResFunction")
    weight = 1e-5 if draw.dtype == draw.torch.float32 else 2e-2
    return Case(
        [draw.tensor(blocks, batch, tokens, size), draw.tensor(size, scale=0.1), draw.tensor(size)],
        draw.built.attn_res,
        lambda *inputs: function(*inputs, 1e-6),
        {"gradient 1": weight, "gradient 2": weight},
    )


def few_rows(draw: Draw) -> tuple[int, ...]:
    """So few that no multiprocessor has more than two."""
    return draw.between(1, 4), draw.between(1, 50)


def dyt(draw: Draw) -> Case:
    size = draw.one_of(512, 1000, 2048)
    beta = draw.one_of([], [draw.tensor(size)])
    inputs = [draw.tensor(*few_rows(draw), size), draw.tensor(1), draw.tensor(size), *beta]
    function = draw.original("dyt", "LigerDyTFunction")
    return Case(
        inputs, draw.built.dyt, lambda x, alpha, gamma, beta=None: function(x, alpha, gamma, beta)
    )


def layer_norm(draw: Draw) -> Case:
    size = draw.width()
    function = draw.original("layer_norm", "LigerLayerNormFunction")
    return Case(
        [draw.tensor(*few_rows(draw), size), draw.tensor(size), draw.tensor(size)],
        lambda *inputs: draw.built.layer_norm(*inputs, 1e-6),
        lambda *inputs: function(*inputs, 1e-6),
    )


def rms_norm(draw: Draw) -> Case:
    size = draw.width()
    modes = ("llama", "gemma") if draw.dtype == draw.torch.float16 else ("llama", "gemma", "none")
    offset, mode, in_place = draw.one_of(0.0, 1.0), draw.one_of(*modes), draw.one_of(True, False)
    function = draw.original("rms_norm", "LigerRMSNormFunction")
    return Case(
        [draw.tensor(*few_rows(draw), size), draw.tensor(size)],
        lambda *inputs: draw.built.rms_norm(*inputs, 1e-6, offset, mode),
        lambda *inputs: function(*inputs, 1e-6, offset, mode, in_place),
    )


def fused_add_rms_norm(draw: Draw) -> Case:
    size, shape = draw.width(), few_rows(draw)
    offset, mode = draw.one_of(0.0, 1.0), draw.one_of("llama", "gemma")
    function = draw.original("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")
    return Case(
        [draw.tensor(*shape, size), draw.tensor(*shape, size), draw.tensor(size)],
        lambda *inputs: draw.built.fused_add_rms_norm(*inputs, 1e-6, offset, mode),
        lambda *inputs: function(*inputs, 1e-6, offset, mode, False),
    )


def poly_norm(draw: Draw) -> Case:
    function = draw.original("poly_norm", "LigerPolyNormFunction")
    inputs = [draw.tensor(*few_rows(draw), draw.width()), draw.tensor(3), draw.tensor()]
    return Case(inputs, draw.built.poly_norm, lambda *inputs: function(*inputs, 1e-6, False))


def modulated_rms_norm(draw: Draw) -> Case:
    size, mode, each = (
        draw.between(528, 1024, 16),
        draw.one_of("llama", "gemma"),
        draw.one_of(True, False),
    )
    batch = draw.between(1, 30)
    scales = [draw.tensor(batch, *([8] if each else []), size) for _ in range(2)]
    function = draw.original("modulated_rms_norm", "LigerModulatedRMSNormFunction")
    close = 1e-5 if draw.dtype == draw.torch.float32 else 2e-2
    return Case(
        [draw.tensor(batch, 8, size), draw.tensor(size), *scales],
        lambda *inputs: draw.built.modulated_rms_norm(*inputs, 1e-6, mode),
        lambda *inputs: function(*inputs, 1e-6, 0.0, mode, False),
        {} if each else {"gradient 2": close, "gradient 3": close},
    )


def mhc(draw: Draw) -> Case:
    tokens, size = 80, 128
    streams, outer, float32 = 4, (2, tokens // 2), draw.torch.float32
    what = draw.one_of("coeffs", "pre", "post_res")
    x = draw.tensor(*outer, streams, size)
    if what == "pre":
        weights = draw.tensor(*outer, streams, dtype=float32)
        return Case([x, weights], draw.built.mhc_pre, draw.original("mhc", "LigerMHCPreFunction"))
    if what == "post_res":
        weights = [
            draw.tensor(*outer, *more, dtype=float32) for more in ((streams,), (streams, streams))
        ]
        function = draw.original("mhc", "LigerMHCPostResFunction")
        inputs = [x, draw.tensor(*outer, size), *weights]
        return Case(
            inputs, draw.built.mhc_post_res, function, {"gradient 2": 1e-5, "gradient 3": 1e-5}
        )
    mixes = streams * streams + 2 * streams
    alphas = [draw.tensor(dtype=float32) for _ in range(3)]
    inputs = [
        x,
        draw.tensor(streams * size, mixes, scale=0.05),
        draw.tensor(mixes, dtype=float32),
        *alphas,
    ]
    function = draw.original("mhc", "LigerMHCCoeffsFunction")
    return Case(
        inputs,
        draw.built.mhc_coeffs,
        lambda *inputs: function(*inputs, True, 5, 1e-6, 1e-4, 1e-6, 2.0),
        {"gradient 1": 1e-5 if draw.dtype == float32 else 2e-2},
    )


CASES: Mapping[str, tuple[Callable[[Draw], Case], Sequence[str]]] = {
    "relu_squared": (relu_squared, DTYPES),
    "geglu": (geglu, DTYPES),
    "swiglu": (swiglu, DTYPES),
    "softmax": (softmax, DTYPES),
    "sparsemax": (sparsemax, DTYPES),
    "vocab_parallel_cross_entropy": (vocab_parallel_cross_entropy, DTYPES),
    "cross_entropy": (cross_entropy, DTYPES),
    "kl_div": (kl_div, DTYPES),
    "tvd": (tvd, DTYPES),
    "jsd": (jsd, DTYPES),
    "rope": (rope, DTYPES),
    "qwen2vl_mrope": (qwen2vl_mrope, DTYPES),
    "llama4_rope": (llama4_rope, ("float32",)),
    "multi_token_attention": (multi_token_attention, DTYPES),
    "fused_neighborhood_attention": (fused_neighborhood_attention, DTYPES),
    "group_norm": (group_norm, ("bfloat16", "float32")),
    "embedding": (embedding, DTYPES),
    "attn_res": (attn_res, DTYPES),
    "dyt": (dyt, DTYPES),
    "layer_norm": (layer_norm, DTYPES),
    "rms_norm": (rms_norm, DTYPES),
    "fused_add_rms_norm": (fused_add_rms_norm, DTYPES),
    "poly_norm": (poly_norm, DTYPES),
    "modulated_rms_norm": (modulated_rms_norm, ("bfloat16", "float32")),
    "mhc": (mhc, DTYPES),
}
"""Module of liger-kernel -> how a call is drawn, and for which dtypes."""
