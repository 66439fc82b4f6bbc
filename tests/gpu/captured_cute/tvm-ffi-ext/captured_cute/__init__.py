from .scale_ops.scale import Mode, compiled_scale, scale

__all__ = ["Mode", "compiled_scale", "scale"]
