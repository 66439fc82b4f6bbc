"""The operators of this build, under a namespace of their own. Written by kbuild."""

import torch

from . import _fast_relu_cuda_1a2b3c4  # noqa: F401 - importing it registers the operators

ops = torch.ops._fast_relu_cuda_1a2b3c4


def add_op_namespace_prefix(op_name: str) -> str:
    """Name an operator as `torch.library` does: `namespace::op_name`."""
    return f"_fast_relu_cuda_1a2b3c4::{op_name}"
