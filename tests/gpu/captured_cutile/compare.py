"""Captured cuTile launches beside Torch, and beside the original functions if cuTile is there.

`python compare.py FOLDER [--save FILE]`: `FOLDER` is the project as `kbuild build` left it. Results
have to be those of the original bit for bit; with Torch's own computation, they agree up to
rounding. The package is called first, in a process that has not imported cuTile by then.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import packaged, report

SHAPES = ((1, 8), (7, 300), (2, 3, 1000), (64, 1024), (5, 1, 3, 2500), (33, 4096))
DTYPES = (torch.float32, torch.bfloat16)
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


def random(*sizes, dtype=torch.float32):
    """A tensor of random numbers."""
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def cases():
    """Name of a function, and its arguments."""
    for dtype in DTYPES:
        for sizes in SHAPES:
            x, y = random(*sizes, dtype=dtype), random(*sizes, dtype=dtype)
            yield "scaled_add", (x, y, 0.5)
            yield "scaled_add", (x.transpose(0, 1), y.transpose(0, 1), 0.5)
            yield "softmax", (x,)
            yield "softmax", (x.transpose(0, 1),)
        for sizes in ((6,), (3, 5), (2, 3, 4)):
            yield "rms_norm", (random(*sizes, 1000, dtype=dtype), random(1000, dtype=dtype), 1e-6)
        for m, k, n in ((64, 64, 64), (100, 72, 136), (77, 33, 55), (1000, 1024, 776)):
            a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
            yield "matmul", (a, b)
            yield "matmul", (a.t().contiguous().t(), b.t().contiguous().t())
            yield "matmul", (a[:, 1:], b[1:])
    for n in (1, 255, 4096, 10000):
        yield "add_", (random(n), random(n), 2.0)
        yield "add_", (random(2 * n)[::2], random(n + 1)[1:], 2.0)
    overlapping = random(4097)
    yield "add_", (overlapping[:4096], overlapping[:4096], 2.0)
    for m, n in ((1, 2), (64, 64), (33, 77), (512, 1000)):
        yield "halves_transposed", (random(m, n),)
        yield "halves_transposed", (random(n, m).t(),)


def by_torch(name, arguments):
    """The same by Torch in float32."""
    first, dtype = arguments[0], arguments[0].dtype
    own = [a.float() if isinstance(a, torch.Tensor) else a for a in arguments]
    functions = {
        "scaled_add": lambda x, y, scale: x + scale * y,
        "add_": lambda x, y, scale: x + scale * y,
        "softmax": lambda x: x.softmax(-1),
        "matmul": lambda a, b: a.double() @ b.double(),
        "halves_transposed": lambda x: x.t(),
        "rms_norm": rms_norm,
    }
    return functions[name](*own).to(first.device, dtype)


def rms_norm(x, weight, eps):
    """The norm, whose gradient Torch computes."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def results(function, name, arguments):
    """What a function returns; for the norm, with the gradients of its tensors."""
    arguments = [a.clone() if name == "add_" and at == 0 else a for at, a in enumerate(arguments)]
    if name != "rms_norm":
        return [function(*arguments)]
    x, weight, eps = arguments
    x, weight = (t.clone().requires_grad_() for t in (x, weight))
    out = function(x, weight, eps)
    factors = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape)
    (out.float() * factors).sum().backward()
    return [out.detach(), x.grad, weight.grad]


def difference(got, wanted):
    """The largest difference, relative to the largest number."""
    got, wanted = got.float(), wanted.float()
    if got.shape != wanted.shape or not bool(got.isfinite().all()):
        return float("inf")
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def originals():
    """The author's own functions, if cuTile can be imported here."""
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        from cutile_ops import kernels
    except ImportError:
        return None
    return {
        name: kernels.RMSNorm.apply if name == "rms_norm" else getattr(kernels, name)
        for name, _ in cases()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    ours, calls = packaged(next((args.folder / "build").glob("*cu130*"))), [*cases()]
    found = [results(getattr(ours, name), name, arguments) for name, arguments in calls]
    imported = "cuda.tile" in sys.modules
    own, differ, beside = originals(), [], 0
    for (name, arguments), got in zip(calls, found, strict=True):
        kind = arguments[0].dtype
        label = (
            f"{name} {[tuple(a.shape) for a in arguments if isinstance(a, torch.Tensor)]} {kind}"
        )

        def torch_function(*values, name=name):
            return by_torch(name, values)

        expected = results(torch_function, name, arguments)
        # The original has sums of products in another order, and rounds to TF32 nowhere.
        most = max(map(difference, got, expected))
        if most > TOLERANCES[kind]:
            differ.append(f"{label}: by {most} from Torch")
        if own is not None:
            beside += 1
            same = results(own[name], name, arguments)
            if not all(map(torch.equal, got, same)):
                differ.append(f"{label}: by {max(map(difference, got, same))} from the original")
    report(
        {"comparisons": len(calls), "originals": beside, "differ": differ, "imported": imported},
        args.save,
    )
    return int(bool(differ) or imported)


if __name__ == "__main__":
    sys.exit(main())
