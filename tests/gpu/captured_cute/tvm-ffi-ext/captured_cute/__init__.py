from .scale_ops.scale import Mode, compiled_scale, scale, tuned_scale

__all__ = ["Mode", "compiled_scale", "scale", "tuned_scale"]
