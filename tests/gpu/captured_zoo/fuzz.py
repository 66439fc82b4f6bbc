"""Random calls of the captured zoo beside the author's functions, on a GPU.

`python fuzz.py FOLDER [--calls N] [--seed N] [--save FILE]`: `FOLDER` is the project as `kbuild
build` left it, with the Triton of the GPU's machine. Sizes, layouts, options, settings of the
process and gradients are drawn. Values have to be equal bit for bit, sums within rounding, as
Triton adds up in another order where it knows more about divisibility; shapes, strides, aliases,
what is written to arguments, gradients and errors as well. Calls that only the op refuses are
counted. It ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
import sys
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import packaged, report

HERE = Path(__file__).parent
SIZES = (0, 1, 2, 3, 7, 16, 31, 64, 127, 128, 257, 1000, 1024)
WRITABLE = ("contiguous", "contiguous", "rows", "columns", "turned", "offset")
LAYOUTS = (*WRITABLE, "expanded")
TENSORS = {
    "into": ("out",), "only_out": ("out",), "biased": ("bias",), "norm": ("w",),
}  # fmt: skip
OPTIONAL = ("into", "biased")
SUMS = ("softmax", "norm")
NUMBERS = {
    "scaled": (2.0, 0.0, -1.5), "in_place": (2.0, -0.5), "norm": (1e-6, 1e-2),
    "shifted": (1, 0, -1, -7, 8, 16, 100),
}  # fmt: skip


def tensor(shape, dtype, layout, seed, device):
    """A tensor that can be made again, with its layout."""
    generator = torch.Generator(device).manual_seed(seed)

    def made(*sizes):
        return torch.randn(sizes, generator=generator, device=device).to(dtype)

    if layout == "expanded":
        return made(1, *shape[1:]).expand(shape) if len(shape) > 1 else made(1).expand(shape)
    if layout == "turned":
        return made(*shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "offset":
        return made(shape[0] + 1, *shape[1:])[1:]
    if layout == "rows":
        return made(*shape[:-1], shape[-1] + 13)[..., 3 : 3 + shape[-1]]
    if layout == "columns":
        return made(*shape[:-1], 2 * shape[-1])[..., ::2]
    return made(*shape)


def drawn(name, draw):
    """One call: shapes, layouts, dtypes, numbers and settings."""
    rows, n = draw.choice(SIZES[:10]), draw.choice(SIZES)
    dtype = draw.choice(("float32", "float16")) if name == "norm" else "float32"
    # Rows that share memory are written in no order.
    layouts = WRITABLE if name == "in_place" else LAYOUTS
    tensors = [((rows, n), draw.choice(layouts), draw.randrange(1 << 20))]
    for other in TENSORS.get(name, ()):
        if name in OPTIONAL and draw.random() < 0.4:
            tensors.append(None)
            continue
        shape = (rows, n) if other == "out" else (n,)
        layouts = {"w": ("contiguous",), "out": WRITABLE}.get(other, LAYOUTS)
        layout = draw.choice(layouts)
        tensors.append((shape, layout, draw.randrange(1 << 20)))
    return {
        "dtype": dtype,
        "tensors": tensors,
        "numbers": [draw.choice(NUMBERS[name])] if name in NUMBERS else [],
        "gradients": name == "norm" and draw.random() < 0.7,
        "expanded gradient": draw.random() < 0.3,
        "tf32": draw.random() < 0.5,
        "grad mode": draw.random() < 0.5,
        "autocast": draw.random() < 0.3,
    }


@contextlib.contextmanager
def settings(call, device):
    """The settings of the process in a call."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = call["tf32"]
    mode = call["grad mode"] or call["gradients"]
    autocast = torch.autocast(device, dtype=torch.float16, enabled=call["autocast"])
    try:
        with torch.set_grad_enabled(mode), autocast:
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def described(value, arguments):
    """A result as what has to be equal: bits, layout, and whose memory it is."""
    if value is None:
        return None
    data = value.detach()
    strides = [s for s, n in zip(data.stride(), data.shape, strict=True) if n > 1]
    owners = [
        at
        for at, a in enumerate(arguments)
        if a is not None
        and data.numel()
        and a.untyped_storage()._cdata == data.untyped_storage()._cdata
    ]
    kind = {2: torch.int16, 4: torch.int32}[data.element_size()]
    bits = data.contiguous().view(kind).cpu().flatten().tolist()
    shape = (str(data.dtype), tuple(data.shape))
    return (*shape, tuple(strides) if data.numel() else (), tuple(owners), bits)


def outcome(function, call, device):
    """What a call gives and leaves behind, or its error."""
    dtype = getattr(torch, call["dtype"])
    tensors = [t if t is None else tensor(t[0], dtype, t[1], t[2], device) for t in call["tensors"]]
    if call["gradients"]:
        tensors[0].requires_grad_()
    with settings(call, device):
        try:
            result = function(*tensors, *call["numbers"])
        except Exception as error:  # noqa: BLE001 - the other has to raise one as well
            return {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
        listed = result if isinstance(result, tuple) else (result,)
        found = {f"result {at}": described(r, tensors) for at, r in enumerate(listed)}
        if call["gradients"]:
            found["recorded"] = listed[0].requires_grad
            upstream = torch.ones((), device=device, dtype=dtype).expand_as(listed[0])
            if not call["expanded gradient"]:
                upstream = tensor(tuple(listed[0].shape), dtype, "contiguous", 7, device)
            listed[0].backward(upstream)
            found["gradient"] = described(tensors[0].grad, ())
    arguments = {f"argument {at}": described(t, ()) for at, t in enumerate(tensors)}
    return {**found, **arguments}


def is_rounded(got, want):
    """Whether two sums differ by rounding alone."""
    if got is None or want is None or got[:-1] != want[:-1]:
        return False
    kinds = {"torch.float16": (torch.int16, 2e-3), "torch.float32": (torch.int32, 1e-5)}
    kind, tolerance = kinds[got[0]]
    dtype = torch.float16 if kind == torch.int16 else torch.float32
    values = (torch.tensor(v[-1], dtype=kind).view(dtype).double() for v in (got, want))
    return torch.allclose(*values, rtol=tolerance, atol=tolerance)


def compared(ours, theirs, name, calls, seed, device):
    """The calls of one function."""
    draw = random.Random(f"{seed} {name}")  # noqa: S311 - draws calls
    counts, differ, refused = Counter(), [], Counter()
    for _ in range(calls):
        call = drawn(name, draw)
        want, got = outcome(theirs, call, device), outcome(ours, call, device)
        if "error" in want or "error" in got:
            if "error" not in want:
                refused[got["error"].partition(": its ")[0][:160]] += 1
            elif "error" in got:
                counts["refused by both"] += 1
            else:
                differ.append(f"{call}: only the original raises {want['error']}")
            continue
        counts["same"] += want == got
        for key in want.keys() | got.keys():
            if want.get(key) == got.get(key):
                continue
            if name in SUMS and key != "recorded" and is_rounded(got.get(key), want.get(key)):
                counts["rounded"] += 1
            else:
                values = ([*v[:-1]] if v else v for v in (got.get(key), want.get(key)))
                differ.append("{}: {}: {} in place of {}".format(call, key, *values))
    return {**counts, "refused by the op alone": dict(refused), "differ": differ}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--calls", type=int, default=60, help="of each function")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--original", action="store_true", help="the original beside itself")
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    sys.path.insert(0, str(HERE))
    theirs = importlib.import_module("zoo_ops.ops")
    names = ("scaled", "in_place", "into", "only_out", "biased", "shifted", "padded",
                         "turned", "expanded", "empty_or_not", "softmax", "first_rows", "by_tf32",
                         "by_grad_mode", "by_autocast", "norm")  # fmt: skip
    ours = theirs if args.original else packaged(next((args.folder / "build").glob("*cu130*")))
    functions = {
        name: compared(
            getattr(ours, name), getattr(theirs, name), name, args.calls, args.seed, args.device
        )
        for name in names
    }
    values = {
        "calls": args.calls * len(names),
        "differences": sum(len(f["differ"]) for f in functions.values()),
        "functions": functions,
    }
    report(values, args.save)
    return 1 if values["differences"] else 0


if __name__ == "__main__":
    sys.exit(main())
