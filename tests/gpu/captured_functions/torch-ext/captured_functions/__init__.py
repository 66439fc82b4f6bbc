from ._ops import ops

__all__ = ["add_bias", "bias_relu", "rms_norm", "softmax"]

add_bias = ops.add_bias
bias_relu = ops.bias_relu
rms_norm = ops.rms_norm
softmax = ops.softmax
