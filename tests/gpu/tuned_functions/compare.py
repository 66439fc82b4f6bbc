"""Autotuned functions in a package: results, and which candidate of the shipped table runs.

`python compare.py VARIANT TABLE [--save FILE]`: a variant that `kbuild build` made of this project,
and the table in `tuned/` that it was built with, measured on this machine's GPU model or arch.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import packaged, report


def shape_of(count):
    """Two sizes with a product, the second within the bounds of `scaled`."""
    columns = next(n for n in (8192, 4096, 1024, 512, 256, 64, 32, 8, 1) if count % n == 0)
    return count // columns, columns


def scaled(x, bias):
    y = x.clone()
    for _ in range(2 if x.shape[-1] > 512 else 3):
        y = y * 1.5
    return y if bias is None else y + bias


def chosen(ops, table):
    """Each row of an op with marks: what ran is what the row says."""
    answers = []
    for row in table["rows"]:
        if row["op"] not in ("scaled", "total"):
            continue
        dtype = getattr(torch, row["dtypes"]["x"])
        shape = shape_of(row["key"][0])
        x = torch.randn(shape, device="cuda").to(dtype)
        bias = torch.randn(shape[1], device="cuda").to(dtype)
        if row["op"] == "total":
            _, mark = ops.total(x)
        else:
            _, mark = ops.scaled(x, bias if row["launch"] == 0 else None)
        block = round((float(mark) - 1.0) * 1e8)
        expected = row["constants"]["BLOCK"]
        place = [row["op"], row["launch"], row["key"], row["dtypes"]["x"]]
        answers.append({"place": place, "expected": expected, "ran": block,
                        "same": abs(block - expected) < 32})  # fmt: skip
    return answers


def results(ops, draw):
    """What differs from Torch, and the number of comparisons."""
    wrong, count = [], 0

    def compare(what, ours, theirs, tolerance):
        nonlocal count
        count += 1
        error = (ours.float() - theirs.float()).abs().max().item()
        limit = tolerance * max(theirs.float().abs().max().item(), 1.0)
        if ours.shape != theirs.shape or not error <= limit:
            wrong.append([what, error, limit])

    for at in range(30):
        m, n = draw.randint(1, 300), draw.randint(1, 5000)
        for dtype in (torch.float16, torch.float32):
            x = torch.randn(m, n + 8, device="cuda").to(dtype)[:, 3 : n + 3]
            bias = torch.randn(n, device="cuda").to(dtype) if at % 2 else None
            compare(["scaled", m, n], ops.scaled(x, bias)[0], scaled(x, bias), 4e-3)
        x = torch.randn(m, n, device="cuda").half()
        for _ in range(3):  # nothing is left of an earlier call
            compare(["total", m, n], ops.total(x)[0], x.float().square().sum()[None], 1e-3)
        out, addend = torch.randn(2, m * n, device="cuda")
        expected = out + addend
        ops.accumulate(out, addend)
        compare(["accumulate", m * n], out, expected, 1e-6)
        rows = torch.randn(m, n % 4096 + 1, device="cuda")
        centred = rows - rows.mean(-1, keepdim=True)
        compare(["centred", *rows.shape], ops.centred(rows), centred, 1e-4)
    for m, n, k in ((16, 512, 512), (512, 4096, 512), (4096, 4096, 4096), (33, 65, 127)):
        a, b = (torch.randn(s, device="cuda").half() for s in ((m, k), (k, n)))
        grad = torch.randn(m, n, device="cuda").half()
        sides = []
        for function in (ops.matmul, torch.matmul):
            left, right = a.clone().requires_grad_(), b.clone().requires_grad_()
            product = function(left, right)
            product.backward(grad)
            sides.append((product, left.grad, right.grad))
        for name, ours, theirs in zip(("c", "da", "db"), *sides, strict=True):
            compare(["matmul", name, m, n, k], ours, theirs, 1e-2)
    return wrong, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("variant", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    ops = packaged(args.variant)
    torch.manual_seed(0)
    wrong, count = results(ops, random.Random(0))  # noqa: S311 - sizes, not secrets
    rows = chosen(ops, json.loads(args.table.read_text()))
    values = {
        "comparisons": count,
        "differ": wrong,
        "rows": len(rows),
        "others": [row for row in rows if not row["same"]],
        "imported_triton": "triton" in sys.modules,
    }
    report(values, args.save)


if __name__ == "__main__":
    main()
