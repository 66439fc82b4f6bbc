"""Captured functions beside the same functions with Triton: results and gradients.

`python compare.py FOLDER [--save FILE]`: `FOLDER` is the project as `kbuild build` left it.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import first_call, packaged, report


def strided(shape, dtype, kind):
    """A tensor with some layout: contiguous, every other column, or with its dimensions turned."""
    if kind == 0:
        return torch.randn(shape, device="cuda", dtype=dtype)
    if kind == 1:
        return torch.randn((*shape[:-1], shape[-1] + 24), device="cuda", dtype=dtype)[..., 8:-16]
    return torch.randn(shape[::-1], device="cuda", dtype=dtype).permute(*range(len(shape))[::-1])


def cases(ours, theirs, draw):
    """Name, our function, theirs, tensors and whether they have gradients."""
    rms, softmax = theirs["rms_norm"].RMSNormFunction, theirs["pointwise"].SoftmaxFunction
    for at in range(40):
        n, kind = draw.randint(512, 4096), at % 3
        lead = [draw.randint(1, 9) for _ in range(draw.choice([1, 2, 3]))]
        dtype = draw.choice([torch.float16, torch.bfloat16])
        eps = draw.choice([1e-6, 1e-2])
        tensors = [strided((*lead, n), dtype, kind), strided((n,), dtype, 0)]
        needs = [True, at % 4 != 0]
        yield (
            "rms_norm",
            lambda x, w, eps=eps: ours.rms_norm(x, w, eps),
            lambda x, w, eps=eps: rms.apply(x, w, eps),
            tensors,
            needs,
        )
    for at in range(30):
        rows, n = draw.randint(1, 70), draw.randint(2, 700)
        dtype = draw.choice([torch.float16, torch.float32])
        tensors = [strided((rows, n), dtype, at % 3)]
        tensors += [strided((n,), dtype, 0)] if at % 2 else []
        scale = draw.choice([1.0, 0.25, -3.0])
        yield (
            "add_bias",
            lambda x, b=None, scale=scale: ours.add_bias(x, b, scale),
            lambda x, b=None, scale=scale: theirs["pointwise"].add_bias(x, b, scale),
            tensors,
            None,
        )
    for at in range(20):
        rows, n = draw.randint(1, 70), draw.randint(1, 400)
        tensors = [strided((rows, 2 * n), torch.float32, at % 2), strided((n,), torch.float32, 0)]
        leaky = bool(at % 2)
        yield (
            "bias_relu",
            lambda x, b, leaky=leaky: ours.bias_relu(x, b, leaky),
            lambda x, b, leaky=leaky: theirs["pointwise"].bias_relu(x, b, leaky),
            tensors,
            None,
        )
    for at in range(30):
        rows, n = draw.randint(1, 70), draw.randint(256, 4096)
        tensors = [strided((rows, n), torch.float32, at % 3)]
        yield "softmax", ours.softmax, softmax.apply, tensors, [True]
    yield from composed(ours, theirs["composed"], draw)


def composed(ours, theirs, draw):
    """Functions that Torch differentiates through an `autograd.Function` and other operators."""
    for at in range(24):
        rows, n = draw.randint(1, 40), draw.randint(512, 4096)
        half = strided((draw.randint(1, 4), rows, n), torch.float16, at % 3)
        single = strided((rows, n), torch.float32, at % 3)
        needs = [at % 4 != 1, at % 4 != 2]
        weight = strided((n,), torch.float16, 0)
        yield "norm_as_called", ours.norm_as_called, theirs.norm_as_called, [half, weight], needs
        other = strided((rows, n), torch.float32, at % 2)
        mine, own = ours.softmax_residual, theirs.softmax_residual
        yield "softmax_residual", mine, own, [single, other], needs
        yield "softmax_cast", ours.softmax_cast, theirs.softmax_cast, [half], [True]
        for training in (True, False):
            yield (
                "softmax_in_training",
                lambda x, training=training: ours.softmax_in_training(x * 2, training)["y"],
                lambda x, training=training: theirs.softmax_in_training(x * 2, training)["y"],
                [single],
                [True],
            )


def results(function, tensors, needs):
    """What a function returns, and gradients."""
    own = [tensor.detach() for tensor in tensors]
    if needs is None:
        return [function(*own)]
    own = [tensor.requires_grad_(need) for tensor, need in zip(own, needs, strict=True)]
    out = function(*own)
    torch.manual_seed(1)
    out.backward(
        torch.randn_like(out) if out.numel() % 2 else torch.randn_like(out)[..., :1].expand_as(out)
    )
    return [out.detach(), *(tensor.grad for tensor in own)]


def compared(ours, theirs):
    """Comparisons, those with the same bits, and those that differ by more than rounding."""
    draw = random.Random(0)  # noqa: S311 - draws cases
    torch.manual_seed(0)
    count, same, differ = 0, 0, []
    for at, (name, own, other, tensors, needs) in enumerate(cases(ours, theirs, draw)):
        pairs = zip(results(own, tensors, needs), results(other, tensors, needs), strict=True)
        for got, want in pairs:
            count += 1
            if (got is None) != (want is None):
                differ.append(f"{at} {name}: None")
            elif got is None or torch.equal(got, want):
                same += 1
            elif not torch.allclose(got.float(), want.float(), atol=2e-2, rtol=2e-2):
                differ.append(f"{at} {name} {[tuple(t.shape) for t in tensors]}")
    return count, same, differ


def refused(ours):
    """Calls outside of what was captured that raise an error."""
    half = {"device": "cuda", "dtype": torch.float16}
    calls = {
        "short rows": lambda: ours.rms_norm(torch.randn(2, 100, **half), torch.randn(100, **half)),
        "long rows": lambda: ours.rms_norm(torch.randn(2, 8192, **half), torch.randn(8192, **half)),
        "another dtype": lambda: ours.softmax(torch.randn(2, 512, **half)),
        "the author's error": lambda: ours.softmax(torch.randn(2, 5000, device="cuda")),
        "a gradient that is not captured": lambda: ours.add_twice(
            torch.randn(2, 64, **half), torch.randn(64, requires_grad=True, **half)
        ),
    }
    return {name: _error(call) for name, call in calls.items()}


def _error(call):
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def compiled(ours, theirs):
    """Whether `torch.compile` makes one graph of it that gives the same."""
    x = torch.randn(3, 5, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    function = torch.compile(lambda x, w: ours.rms_norm(x * 2, w) + 1, fullgraph=True)
    got = torch.autograd.grad(function(x, w).sum(), (x, w))
    apply = theirs["rms_norm"].RMSNormFunction.apply
    want = torch.autograd.grad((apply(x * 2, w) + 1).sum(), (x, w))
    return all(torch.allclose(a, b, atol=0.1, rtol=2e-2) for a, b in zip(got, want, strict=True))


def checked(ours):
    """What `opcheck` says of each op."""
    from importlib import import_module

    ops = import_module(f"{ours.__name__}._ops").ops
    x = torch.randn(3, 1024, device="cuda", dtype=torch.float16, requires_grad=True)
    w = torch.randn(1024, device="cuda", dtype=torch.float16, requires_grad=True)
    single = torch.randn(3, 1024, device="cuda", requires_grad=True)
    calls = (
        (ops._rms_norm_forward.default, (x.detach(), w.detach(), 1e-6)),
        (ops.rms_norm.default, (x, w)),
        (ops.rms_norm.default, (x.detach(), w.detach())),
        (ops.softmax.default, (single,)),
        (ops.add_bias.default, (single.detach(), None, 2.0)),
    )
    answers = [torch.library.opcheck(op, args, raise_exception=False) for op, args in calls]
    return sorted({str(answer) for answers_ in answers for answer in answers_.values()})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    variant = next((args.folder / "build").glob("*cu130*"))
    sys.path.insert(0, str(Path(__file__).parent))
    theirs = {
        name: importlib.import_module(f"norm_ops.{name}")
        for name in ("rms_norm", "pointwise", "composed")
    }
    ours = packaged(variant)
    first, has_triton = first_call(f"packaged({str(variant)!r})", "float16", Path(__file__).parent)
    count, same, differ = compared(ours, theirs)
    values = {
        "comparisons": count,
        "same_bits": same,
        "differ": differ,
        "refused": refused(ours),
        "compiles": compiled(ours, theirs),
        "opcheck": checked(ours),
        "first_call_ms": round(first, 2),
        "imported_triton": has_triton,
    }
    report(values, args.save)


if __name__ == "__main__":
    main()
