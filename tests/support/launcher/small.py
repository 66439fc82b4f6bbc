"""The smallest kernel: one op, one launch, two candidates."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.dsl.launcher.resolved_kernel import ResolvedOp
from tests.support.launcher.launched import Kernel, launched, ops_of

SECTION = """
[kernel.{name}]
language = "triton"
toolchain = "triton==3.9.0"
src = ["k.py"]
[[kernel.{name}.op]]
schema = "{name}(Tensor x) -> Tensor"
shapes = {{ x = ["N"], out = "x" }}
dtypes = ["float16"]
configs = [{{ BLOCK = 64 }}, {{ BLOCK = 128 }}]
grid = ["cdiv(N, BLOCK)"]
"""
KERNEL = Kernel(("x", "out", "N", "BLOCK!"))


def small(
    name: str = "k", targets: Sequence[str] = ("sm_90a",), kernel: Kernel = KERNEL
) -> ResolvedOp:
    """An op with its images."""
    (op,) = ops_of(SECTION.format(name=name))
    return launched(op, {name: kernel}, targets)
