from .scale_ops.scale import Bias, Mode, compiled_scale, scale

__all__ = ["Bias", "Mode", "compiled_scale", "scale"]
