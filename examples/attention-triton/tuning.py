"""Tensors for `kbuild tune` that are not random."""

import torch


def sequences(sizes, dtypes, device):
    """Sequences of one length: the bounds of each."""
    count = sizes["P"] - 1
    bounds = torch.arange(sizes["P"], device=device) * (sizes["T"] // count)
    return {"cu_seqlens": bounds.to(torch.int32)}
