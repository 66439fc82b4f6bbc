"""The Python side of generated ops: `_aot.py`, which needs neither kbuild nor a DSL.

For extensions of Torch it holds the fake kernels; those for TVM-FFI have functions there, and what
Torch is told of them in `_aot_torch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kbuild.fileset import FileSet
from kbuild.languages.functions import TORCH_MODULE, functions_source, operators_source
from kbuild.languages.jit import HEAD, IMPORTS, SOURCES, Joined, file_of, jit_source
from kbuild.languages.spec import OpSpec, fake_source

FOLDER = "aot/python"
"""Of the generated project: what goes into the package, beside the launchers."""
MODULE = "_aot.py"
_HEAD = '''\
"""What torch.compile is told of operators that were compiled ahead of time. Written by kbuild."""

{imports}import torch

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
'''
_REGISTER = "_fake({name!r})"


def package_files(
    ops: Sequence[tuple[OpSpec, Joined]],
    root: Path,
    framework: str = "torch",
    *,
    control: bool = False,
) -> FileSet:
    """What goes into the package for the ops of a variant, each with its joined launches.

    Sources are shipped for ops that fall back on their DSL.

    Args:
        ops: of all kernels.
        root: the project.
        framework: `torch` or `tvm-ffi`.
        control: whether candidates can be chosen at run time.
    """
    if framework == "tvm-ffi":
        specs = [op for op, _ in ops]
        return FileSet(
            {
                f"{FOLDER}/{MODULE}": functions_source(specs),
                f"{FOLDER}/{TORCH_MODULE}": operators_source(specs, control=control),
            }
        )
    fallen = [(op, launches) for op, launches in ops if op.fallback == "jit"]
    imports = "".join(f"import {name}\n" for name in IMPORTS if fallen)
    parts = [_HEAD.format(imports=imports + "\n" if imports else "")]
    parts += [HEAD.strip() + "\n"] if fallen else []
    parts += [fake_source(op, _REGISTER) for op, _ in ops]
    parts += [jit_source(op, launches) for op, launches in fallen]
    files = FileSet({f"{FOLDER}/{MODULE}": "\n\n".join(parts)})
    for path in dict.fromkeys(path for op, _ in fallen for path in op.sources):
        files.add(f"{FOLDER}/{SOURCES}/{file_of(path)}", (root / path).read_bytes())
    return files
