"""Names of a DSL that exist in kernels alone: annotations, base classes and decorators."""

from __future__ import annotations

from types import FunctionType
from typing import Any

importing = 0
"""Number of the author's modules that are being imported."""


_OPERATORS = ("__getitem__", "__setitem__", "__add__", "__mul__", "__neg__", "__sub__")


class AbsentType(type):
    """Class of names that exist in kernels alone, and of classes that derive from these."""

    def __getattr__(cls, name: str) -> Any:
        # Authors replace operators of the DSL's tensors.
        if name.startswith("__") and name not in _OPERATORS:
            raise AttributeError(name)
        value = absent(f"{cls.__name__}.{name}")
        if "_kbuild_path" in vars(cls):
            setattr(cls, name, value)
        return value

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_kbuild_path" not in vars(cls):
            return super().__call__(*args, **kwargs)
        if len(args) == 1 and not kwargs and isinstance(args[0], (FunctionType, type)):
            return args[0]  # it is a decorator
        if importing:
            return cls
        raise RuntimeError(
            f"`{cls._kbuild_path}` was called outside of a kernel, and this package has no CuTe DSL"
        )

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        raise TypeError(f"`{cls.__name__}` exists in kernels alone")

    def __repr__(cls) -> str:
        return vars(cls).get("_kbuild_path") or super().__repr__()

    def _computed(cls, *_: Any) -> Any:
        return cls

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _computed
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __lshift__ = _computed


def absent(path: str) -> Any:
    """The stand-in for a name, such as `OperandMajorMode.K`.

    Its last two parts are its name to the author, and to descriptions of calls.
    """
    short = ".".join(path.split(".")[-2:])
    return AbsentType(path.rpartition(".")[2], (), {"_kbuild_path": short, "__module__": "cutlass"})
