"""The Python side of generated ops: `_aot.py`, which needs neither kbuild nor a DSL."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.fileset import FileSet
from kbuild.languages.spec import OpSpec, fake_source

FOLDER = "aot/python"
"""Of the generated project: what goes into the package, beside the launchers."""
MODULE = "_aot.py"
_HEAD = '''\
"""What torch.compile is told of operators that were compiled ahead of time. Written by kbuild."""

import torch

from ._ops import add_op_namespace_prefix, ops

# The package may be imported under several names, and an operator has one fake kernel.
_registered = vars(ops).setdefault("_kbuild_fakes", set())


def _fake(name):
    def register(function):
        if name not in _registered:
            _registered.add(name)
            torch.library.register_fake(add_op_namespace_prefix(name), function)
        return function

    return register
'''
_REGISTER = "_fake({name!r})"


def package_files(ops: Sequence[OpSpec]) -> FileSet:
    """What goes into the package for the ops of a variant."""
    fakes = (fake_source(op, _REGISTER) for op in ops)
    text = "\n\n".join((_HEAD, *fakes))
    return FileSet({f"{FOLDER}/{MODULE}": text})
