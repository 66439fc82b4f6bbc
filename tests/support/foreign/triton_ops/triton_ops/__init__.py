from triton_ops.add import add

__all__ = ["add"]
