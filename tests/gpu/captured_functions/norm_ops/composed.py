"""Functions that call an `autograd.Function` between views, casts and other operators."""

from .pointwise import SoftmaxFunction, add_bias
from .rms_norm import RMSNormFunction


def norm_as_called(x, weight, eps=1e-6):
    return RMSNormFunction.apply(x, weight, eps)


def softmax_residual(x, residual):
    return SoftmaxFunction.apply(x) + residual


def softmax_cast(x):
    return SoftmaxFunction.apply(x.reshape(-1, x.shape[-1]).float()).view(x.shape).to(x.dtype)


def softmax_in_training(x, training=True):
    return {"y": SoftmaxFunction.apply(x) if training else x}


def add_twice(x, bias):
    return add_bias(x, bias) + bias
