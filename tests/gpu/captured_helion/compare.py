"""Captured Helion kernels beside Helion's own runs of them.
`python compare.py FOLDER [--save FILE]`: `FOLDER` is the project as `kbuild build` left it.
Results have to be the same, bit for bit, if Triton is the release that the project pins: Helion
runs the first config, as a package without a table does. Of `softmax`, which has none, Helion
takes another default for each first call. The package is called in this process first, which has
not imported Helion by then.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from functools import partial
from pathlib import Path

os.environ["HELION_AUTOTUNE_EFFORT"] = "none"  # the default config where there is none

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import packaged, report

ROWS = ((1, 8), (7, 300), (64, 1024), (33, 4096))


def random(*sizes, dtype=torch.bfloat16):
    """A tensor of random numbers."""
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def cases():
    """Name of a function, and its arguments."""
    for m, n in ROWS:
        for dtype in (torch.float32, torch.bfloat16):
            yield "scaled_add", (random(m, n, dtype=dtype), random(m, n, dtype=dtype), 0.5)
        yield "softmax", (random(m, n),)
        yield "rms_norm", (random(m, n), random(n), 1e-6)
        yield "layer_norm", (random(m, n), random(n), random(n), 1e-5)
        yield "swiglu", (random(m, n), random(m, n))
        yield "row_sums", (random(m, n),)
        labels = torch.randint(0, n, (m,), device="cuda")
        yield "cross_entropy", (random(m, n, dtype=torch.float32), labels)
        yield "embedding", (torch.randint(0, m, (3, 5), device="cuda"), random(m, n))
    for m, k, n in ((64, 64, 64), (100, 72, 136), (512, 1024, 256)):
        yield "matmul", (random(m, k), random(k, n))
        yield "matmul", (random(k, m).t(), random(n, k).t())
    yield "doubled", (random(64, 1024),)
    for factor, is_negative in itertools.product((2, 3), (True, False)):
        yield "multiplied", (random(64, 128, dtype=torch.float32), factor, is_negative)


def configured(kernels):
    """Let Helion run the first of several configs, in place of measuring them."""
    for name in ("matmul", "rms_norm_forward"):
        own = getattr(kernels, name)
        del own.configs[1:]
    return {name: getattr(kernels, name) for name, _ in cases() if name != "rms_norm"}


def with_gradients(function, arguments):
    """Result and gradients of a norm."""
    x, weight, eps = arguments
    x, weight = (t.clone().requires_grad_() for t in (x, weight))
    out = function(x, weight, eps)
    out.backward(torch.ones_like(out))
    return [out.detach(), x.grad, weight.grad]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    variant = next((args.folder / "build").glob("*cu130*"))
    ours, calls = packaged(variant), [*cases()]
    results = []
    for name, arguments in calls:
        function = getattr(ours, name)
        if name == "rms_norm":
            results.append(with_gradients(function, arguments))
        else:
            results.append([function(*arguments)])
    imported = sorted({"helion", "triton"} & sys.modules.keys())
    sys.path.insert(0, str(Path(__file__).parent))
    from helion_ops import kernels

    own = {**configured(kernels), "rms_norm": kernels.RMSNorm.apply}
    differ = []
    for (name, arguments), got in zip(calls, results, strict=True):
        if name == "rms_norm":
            wanted = with_gradients(own[name], arguments)
        else:
            if name == "row_sums":
                own[name].reset()  # its loop follows from the sizes of the first call
            wanted = [own[name](*arguments)]
        # Other orders of a sum are rounded to another bfloat16.
        is_same = partial(torch.allclose, rtol=2**-7) if name == "softmax" else torch.equal
        if not all(map(is_same, got, wanted)):
            most = max(float((a - b).abs().max()) for a, b in zip(got, wanted, strict=True))
            differ.append(f"{name} {[getattr(t, 'shape', t) for t in arguments]}: by {most}")
    try:
        ours.doubled(random(32, 1024))
        is_refused = False
    except RuntimeError:
        is_refused = True
    report(
        {"comparisons": len(calls), "differ": differ, "imported": imported, "refused": is_refused},
        args.save,
    )


if __name__ == "__main__":
    main()
