from ._ops import ops

__all__ = ["accumulate", "centred", "matmul", "scaled", "total"]

accumulate = ops.accumulate
centred = ops.centred
matmul = ops.matmul
scaled = ops.scaled
total = ops.total
