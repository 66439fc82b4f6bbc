"""What several kernels use."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


def settings(n):
    """Block and warps for rows of `n` elements."""
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError(f"rows of {n} elements are too long")
    return block, 4 if block < 2048 else 8


@triton.jit
def exp_of(x):
    return tl.exp2(x * LOG2E)
