"""Fake kernels of the operators, for torch.compile. Written by kbuild."""

import torch

from ._ops import add_op_namespace_prefix, ops

# The package may be imported under several names, and an operator has one fake kernel.
_registered = vars(ops).setdefault("_kbuild_registered", set())


def _fake(name):
    def register(function):
        if name not in _registered:
            _registered.add(name)
            torch.library.register_fake(add_op_namespace_prefix(name), function)
        return function

    return register
