"""Calls the functions of one loaded TVM-FFI kernel on small arrays of the CPU.

Used by `load_probe.py`, in the same process. A library that describes its functions says which
parameters they have; arrays of float32 and small numbers are made up for them. A function owes
nothing to made-up arguments but to survive them, and tensors of Torch that have no data.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

tvm_ffi: Any = importlib.import_module("tvm_ffi")

SHAPES = ((4, 4), (8,), (2, 2, 4, 4))
FUNCTION = re.compile(rb"\0__tvm_ffi_([A-Za-z]\w*)(?=\0)")
ARRAYS = ("DLTensor*", "Tensor", "ffi.Tensor")
SIMPLE = {"int": 1, "float": 1.0, "bool": False, "Optional": None, "None": None}
Tell = Callable[[str], None]


# No `Exception`: those count as answers of the function that is called.
class UnsupportedFunctionArgumentError(BaseException):
    """A parameter asks for something that cannot be made up."""


def report(folder: Path, identifier: str, limit_s: float, tell: Tell) -> dict[str, Any]:
    """Describe each function of a kernel for the CPU, and call it.

    Args:
        folder: the variant, which is loaded.
        identifier: its id, the name of its library.
        limit_s: seconds after which a call hangs; the process ends then.
        tell: gets a few words about each call before it is made.
    """
    library = next(iter(sorted(folder.glob(f"{identifier}.*"))), None)
    if library is None:
        return {}
    module = tvm_ffi.load_module(str(library))
    names = sorted({name.decode() for name in FUNCTION.findall(library.read_bytes())})
    return {f"ops.{name}": _about(module, folder, name, limit_s, tell) for name in names}


def _about(module: Any, folder: Path, name: str, limit_s: float, tell: Tell) -> dict[str, Any]:
    kinds = _parameters(module, name)
    if kinds is None:
        skipped = "its parameters are unknown"
        return {"schema": name, "kernel": True, "call": {"skipped": skipped}}
    tell(f"`ops.{name}`")
    about = {"schema": name, "kernel": True, "call": _tried(module[name], kinds, limit_s)}
    guarded = getattr(_ops_of(folder), name, None)
    if guarded is not None and set(ARRAYS) & set(kinds) and _has("torch"):
        tell(f"`ops.{name}` on a tensor without data")
        _given_fake(guarded, kinds)
    return about


def _parameters(module: Any, name: str) -> list[str] | None:
    """The kinds of a function's parameters; None when the library or the runtime tells none."""
    try:
        schema = json.loads(module.get_function_metadata(name)["type_schema"])
        return [str(kind["type"]) for kind in schema["named_args"]["params"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _tried(function: Any, kinds: list[str], limit_s: float) -> dict[str, Any]:
    """The first answer that is no exception, else the last exception."""
    faulthandler.dump_traceback_later(limit_s, exit=True)
    reason = ""
    try:
        for shape in SHAPES:
            try:
                function(*(_value(kind, shape) for kind in kinds))
            except Exception as error:  # noqa: BLE001 - a kernel may refuse as it likes
                reason = _first_line(error)
            else:
                return {"given": list(shape)}
    except UnsupportedFunctionArgumentError as error:
        return {"skipped": f"no test value can be made for {error}"}
    finally:
        faulthandler.cancel_dump_traceback_later()
    return {"refused": reason}


def _given_fake(function: Any, kinds: list[str]) -> None:
    """An exception is what a caller should get."""
    mode = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode
    try:
        with mode():
            arguments = [_value(kind, SHAPES[0]) for kind in kinds]
        function(*arguments)
    except (Exception, UnsupportedFunctionArgumentError):  # noqa: BLE001 - whatever it is, the process goes on
        return


def _value(kind: str, shape: tuple[int, ...]) -> Any:
    if kind in ARRAYS:
        # Numbers of float32 from -1 to 1, in an array of Torch or of NumPy.
        if _has("torch"):
            torch = importlib.import_module("torch")
            return torch.linspace(-1, 1, prod(shape)).reshape(shape)
        if _has("numpy"):
            numpy = importlib.import_module("numpy")
            return numpy.linspace(-1, 1, prod(shape), dtype=numpy.float32).reshape(shape)
        raise UnsupportedFunctionArgumentError("an array without Torch and NumPy")
    if kind in SIMPLE:
        return SIMPLE[kind]
    raise UnsupportedFunctionArgumentError(f"`{kind}`")


def _ops_of(folder: Path) -> Any:
    """`ops` of the variant's `_ops.py`, under whatever name it was imported; None without."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and Path(file).name == "_ops.py" and Path(file).parent.samefile(folder):
            return getattr(module, "ops", None)
    return None


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
