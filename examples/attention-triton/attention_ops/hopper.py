"""What the kernels for Hopper in Gluon have in common."""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = gl.constexpr(64)
"""Rows of a group of four warps."""


@gluon.jit
def make_barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    """Barriers, each of which opens after as many arrivals."""
    bars = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for at in gl.static_range(NUMBER):
        mbarrier.init(bars.index(at), count=ARRIVALS)
    return bars


def can_run(q, k, v):
    """Whether the GPU is a Hopper, and the hardware can copy the tensors."""
    if torch.version.hip is not None or torch.cuda.get_device_capability(q.device)[0] != 9:
        return False
    return all(_is_aligned(x) for x in (q, k, v))


def _is_aligned(x):
    """Whether a tensor and all its strides but the last are aligned to 16 bytes."""
    strides = [stride * x.element_size() % 16 for stride in x.stride()[:-1]]
    return x.data_ptr() % 16 == 0 and all(rest == 0 for rest in strides)


def descriptor_of(x, rows):
    """A descriptor of blocks of one head's rows."""
    block = [1, rows, 1, x.shape[-1]]
    dtype = gl.float16 if x.dtype == torch.float16 else gl.bfloat16
    layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
    return TensorDescriptor.from_tensor(x, block, layout)
