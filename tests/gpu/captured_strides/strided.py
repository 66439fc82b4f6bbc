"""NineToothed functions that take a tensor in any layout."""

import ninetoothed
import torch
from ninetoothed import Tensor


def rows(source, output):
    return source.tile((1, 256)), output.tile((1, 256))


def heads(source, output):
    return source.tile((1, 1, 16, 64)), output.tile((1, 1, 16, 64))


def twice(source, output):
    output = source * 2.0  # noqa: F841


row_kernel = ninetoothed.make(rows, twice, (Tensor(2), Tensor(2)), kernel_name="double_rows")
head_kernel = ninetoothed.make(heads, twice, (Tensor(4), Tensor(4)), kernel_name="double_tiles")


def double(x):
    out = torch.empty_like(x)
    row_kernel(x, out)
    return out


def double_heads(q):
    out = torch.empty_like(q)
    head_kernel(q, out)
    return out
