from .scale_ops.scale import Mode, compiled_scale, scale
from .scale_ops.tuned import tuned_scale

__all__ = ["Mode", "compiled_scale", "scale", "tuned_scale"]
