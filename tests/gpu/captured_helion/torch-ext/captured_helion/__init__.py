from ._captured import (
    cross_entropy,
    doubled,
    embedding,
    layer_norm,
    matmul,
    multiplied,
    rms_norm,
    row_sums,
    scaled_add,
    softmax,
    swiglu,
)

__all__ = [
    "cross_entropy",
    "doubled",
    "embedding",
    "layer_norm",
    "matmul",
    "multiplied",
    "rms_norm",
    "row_sums",
    "scaled_add",
    "softmax",
    "swiglu",
]
