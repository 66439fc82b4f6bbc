from .quack import cross_entropy, rmsnorm, rotary, softmax, topk
from .quack.transform import hadamard

__all__ = ["cross_entropy", "hadamard", "rmsnorm", "rotary", "softmax", "topk"]
