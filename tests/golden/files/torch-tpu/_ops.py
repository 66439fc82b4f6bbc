"""The operators of this build, in their own namespace. Written by kbuild."""

import torch

ops = torch.ops._fast_relu_tpu_1a2b3c4


def add_op_namespace_prefix(op_name: str) -> str:
    """Name an operator as `torch.library` does: `namespace::op_name`."""
    return f"_fast_relu_tpu_1a2b3c4::{op_name}"
