import torch


@torch.library.register_fake("rows::row_sum")
def _row_sum_fake(x):
    return x.new_empty(x.shape[0])


def row_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.rows.row_sum(x)
