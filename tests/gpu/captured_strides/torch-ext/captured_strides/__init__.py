from ._captured import double, double_heads

__all__ = ["double", "double_heads"]
