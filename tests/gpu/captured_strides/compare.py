"""Captured NineToothed functions on tensors in many layouts.
`python compare.py FOLDER [--save FILE]`: `FOLDER` is the project as `kbuild build` left it.
Results have to be twice the argument, bit for bit, with the strides of `torch.empty_like`.
NineToothed is not needed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from built import packaged, report


def cases(ours):
    """Function, and a tensor in some layout."""
    for rows, n in ((1, 1), (3, 5), (7, 300), (64, 256), (33, 1000), (300, 7)):
        big = torch.randn(rows + 2, n + 24, device="cuda")
        yield ours.double, big[:rows, 3 : 3 + n]
        yield ours.double, torch.randn(n, rows, device="cuda").t()
        yield ours.double, torch.randn(1, n, device="cuda").expand(rows, n)
        yield ours.double, torch.randn(rows, 1, device="cuda").expand(rows, n)
        yield ours.double, torch.randn(rows, 2 * n, device="cuda")[:, ::2]
        yield ours.double, torch.randn(rows, n, device="cuda")
    for b, h, s, d in ((2, 3, 5, 64), (1, 8, 128, 64), (4, 2, 16, 32), (3, 5, 7, 80)):
        half = {"device": "cuda", "dtype": torch.float16}
        yield ours.double_heads, torch.randn(b, h, s, d, **half)
        yield ours.double_heads, torch.randn(b, s, h, d, **half).transpose(1, 2)
        yield ours.double_heads, torch.randn(b, s, 3, h, d, **half)[:, :, 1].transpose(1, 2)
        yield ours.double_heads, torch.randn(b, h, d, s, **half).transpose(2, 3)
        yield ours.double_heads, torch.randn(s, b, h, d, **half).permute(1, 2, 0, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path)
    args = parser.parse_args()
    variant = next((args.folder / "build").glob("*cu130*"))
    count, differ = 0, []
    for function, x in cases(packaged(variant)):
        count += 1
        text = f"{function.__name__} {tuple(x.shape)} {x.stride()}"
        try:
            got = function(x)
        except RuntimeError as error:
            differ.append(f"{text}: {error}")
            continue
        like = torch.empty_like(x)
        pairs = zip(got.stride(), like.stride(), x.shape, strict=True)
        if not torch.equal(got, x * 2):
            differ.append(f"{text}: values")
        elif any(own != wanted for own, wanted, size in pairs if size > 1):
            differ.append(f"{text}: strides {got.stride()}, not {like.stride()}")
    report({"comparisons": count, "differ": differ}, args.save)


if __name__ == "__main__":
    main()
