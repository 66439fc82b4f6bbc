"""Calls of flash-attn-4: with fake tensors to record them, on a GPU to compare them."""

from __future__ import annotations

import importlib
import itertools
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

LENGTHS, QUERY_HEADS = (512, 1000), 8
MODULES = ("cute.interface",)
"""Modules that calls import."""


class Calls:
    """Forward and backward of each kind of attention; the results are tensors."""

    def __init__(self, load, *, fake=False, **_):
        """Take a function that imports a module of the library by its name."""
        self._interface, self._fake = load("cute.interface"), fake

    def every(self):
        """Name of each call, and a function without arguments."""
        kinds = itertools.product((64, 128), (False, True), (8, 2), (False, True), (False, True))
        for head, causal, heads, varlen, deterministic in kinds:
            words = ["causal"] * causal + ["varlen"] * varlen + ["deterministic"] * deterministic
            for length in LENGTHS[:1] if self._fake else LENGTHS:
                name = f"{' '.join(words)} head {head}, {heads} key heads, length {length}"
                given = (head, heads, length)
                yield (
                    name.strip(),
                    lambda g=given, c=causal, v=varlen, d=deterministic: self._attention(
                        *g, causal=c, varlen=v, deterministic=d
                    ),
                )

    def first(self):
        """Return a call whose time on the host counts."""
        q, k, v, _ = self._tensors((2, 64), 64, 8)
        forward = self._interface._flash_attn_fwd  # noqa: SLF001 - what its public functions call
        return lambda: forward(q, k, v, causal=True, return_lse=True)

    def facts(self):
        """Return what the original and the package have to know alike."""
        return {}

    def _attention(self, head, heads, length, *, causal, varlen, deterministic):
        more = {}
        if varlen:
            longest = 2 * length - length // 3
            starts = (
                torch.empty(3, dtype=torch.int32, device="cuda")
                if self._fake
                else torch.tensor([0, length // 3, 2 * length], dtype=torch.int32, device="cuda")
            )
            more = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
            more |= {"max_seqlen_q": longest, "max_seqlen_k": longest}
        q, k, v, gradient = self._tensors((2 * length,) if varlen else (2, length), head, heads)
        own = self._interface
        out, lse, *_ = own._flash_attn_fwd(q, k, v, causal=causal, return_lse=True, **more)  # noqa: SLF001
        options = {"causal": causal, "deterministic": deterministic, **more}
        gradients = own._flash_attn_bwd(q, k, v, out, gradient, lse, **options)  # noqa: SLF001
        # Gradients that are added up in any order differ from run to run.
        return (out, lse, *gradients[:3]) if deterministic else (out, lse)

    def _tensors(self, lead, head, heads):
        make = torch.empty if self._fake else torch.randn
        sizes = ((*lead, number, head) for number in (QUERY_HEADS, heads, heads, QUERY_HEADS))
        return [make(size, dtype=torch.bfloat16, device="cuda") for size in sizes]


if __name__ == "__main__":
    with FakeTensorMode():
        calls = Calls(lambda name: importlib.import_module(f"flash_attn.{name}"), fake=True)
        for name, run in calls.every():
            print(name, file=sys.stderr)
            run()
