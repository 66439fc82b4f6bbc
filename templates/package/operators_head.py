"""The functions as operators of Torch, for `torch.compile` and the like. Written by kbuild."""

import torch

from ._ops import _operators, _several, module, torch_register_op

# The package may be imported under several names, and an operator is defined once.
_registered = vars(_operators).setdefault("_kbuild_registered", set())


def _operator(schema, function):
    def register(fake):
        if schema not in _registered:
            _registered.add(schema)
            torch_register_op(schema, function, fake=fake)
        return fake

    return register


def _control(schema, function):
    if schema not in _registered:
        _registered.add(schema)
        torch_register_op(schema, function, key="CompositeExplicitAutograd")


def _preload():
    module._kbuild_preload(torch.cuda.current_device() if torch.cuda.is_available() else 0)


_control("_kbuild_preload() -> ()", _preload)
