"""Which functions name an op or open a namespace, and which argument says so.

Torch's Python API of 2.6 to 2.15, private parts that kernels have been seen to use included.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kbuild.checks.readers.meaning import LIBRARY, LIBRARY_MAKERS, SOME, TORCH_MODULES

# The op is the first argument of each; `impl` and `define` also take a Library there.
REGISTRARS = (
    "custom_op",
    "triton_op",
    "register_kernel",
    "register_fake",
    "register_autograd",
    "register_vmap",
    "register_torch_dispatch",
    "register_autocast",
    "_register_effectful_op",
    "impl",
    "impl_abstract",
    "define",
)
TAKE_LIBRARY = ("impl", "define")
DISTINCT = frozenset(REGISTRARS) - frozenset(TAKE_LIBRARY)
"""Names so much Torch's own that another package's function of that name is a wrapper of it."""
LIBRARY_METHODS = tuple(
    f"{LIBRARY}.{name}" for name in ("define", "impl", "_register_fake", "_impl_with_aoti_compile")
)
"""A Library prefixes the names that they are given, unless those name a namespace."""
OPENERS: Mapping[str, int] = {
    **dict.fromkeys(LIBRARY_MAKERS, 0),
    "torch._library.custom_ops.CustomOpDef": 0,
    "torch._C._dispatch_library": 1,
}
"""What opens a namespace, and which argument names it."""
JAX_TARGET = "jax.ffi.register_ffi_target"
LOADERS = ("torch.ops.load_library", "torch.classes.load_library")
NAME_KEYWORDS = ("name", "qualname", "op", "op_name", "ns", "namespace")
MAKE_PARTIALS = ("functools.partial", "functools.partialmethod")
_LOOK_ONLY = ("hasattr", "callable", "isinstance", "issubclass", "print", "repr", "str", "id")


def is_torchs(function: str) -> bool:
    """True for a function of Torch's that names an op, wherever Torch keeps it."""
    module, _, name = function.rpartition(".")
    is_torch = module in TORCH_MODULES or module.endswith(".torch.library")
    return is_torch and name in (*REGISTRARS, SOME)


def registers(function: str, call: ast.Call) -> bool:
    """True when a call of that function names an op, or opens a namespace."""
    if function in OPENERS or function == JAX_TARGET or is_torchs(function):
        return True
    if function.startswith("@"):
        return False
    return function.rpartition(".")[2] in DISTINCT and _is_qualified(call)


def named(function: str, call: ast.Call, *, after: int = 0) -> ast.expr | None:
    """The expression that says which op, or which namespace; None when the call shows none.

    Args:
        function: dotted name of what is called.
        call: the call.
        after: how many arguments come before the function's own.
    """
    position = OPENERS.get(function, 0) + after
    if len(call.args) > position:
        return call.args[position]
    found = next((k.value for k in call.keywords if k.arg in NAME_KEYWORDS), None)
    spread = next((k.value for k in call.keywords if k.arg is None), None)
    if found is None and spread is not None:
        return ast.Subscript(spread, ast.Constant("name"), ast.Load())
    return found


def only_looks(function: str) -> bool:
    """True for functions that do not call what they are given."""
    return function in _LOOK_ONLY or function.startswith(("inspect.", "typing."))


def _is_qualified(call: ast.Call) -> bool:
    """True when the call names an op as text with a namespace."""
    first = named("", call)
    return isinstance(first, ast.Constant | ast.JoinedStr) and "::" in ast.unparse(first)
