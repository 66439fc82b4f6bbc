"""What stands for Torch and NumPy where they are not installed.

Sources of kernels import them for what is around the kernels: dtypes, annotations, wrappers.
Names can be looked up and imported, dtypes compared, classes derived from; whatever needs the
real thing is refused in words.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError

NAMES = ("torch", "numpy")
_VERSIONS = {"torch": "2.9.0+none", "numpy": "2.0.0+none", "torch_c_dlpack_ext": "0"}
DTYPES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "bool": 1, "int8": 1, "int16": 2, "int32": 4,
    "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "short": "int16"}
_ALIASES |= {"int": "int32", "long": "int64"}
_FLOATS = {  # largest, smallest step from 1, smallest normal
    "float16": (65504.0, 2.0**-10, 2.0**-14),
    "bfloat16": ((2 - 2.0**-7) * 2.0**127, 2.0**-7, 2.0**-126),
    "float32": ((2 - 2.0**-23) * 2.0**127, 2.0**-23, 2.0**-126),
    "float64": (sys.float_info.max, sys.float_info.epsilon, sys.float_info.min),
    "float8_e4m3fn": (448.0, 2.0**-3, 2.0**-6),
    "float8_e5m2": (57344.0, 2.0**-2, 2.0**-14),
}
# They return what they are given, or a decorator that does.
_DECORATORS = {
    "no_grad", "inference_mode", "enable_grad", "compile", "script", "ignore", "unused", "wrap",
    "custom_op", "triton_op", "register_fake", "register_autograd", "impl", "impl_abstract",
    "disable", "allow_in_graph", "custom_fwd", "custom_bwd", "once_differentiable", "jit", "njit",
}  # fmt: skip
_ABSENT = {
    "cuda.is_available": False, "cuda.device_count": 0, "npu.is_available": False,
    "backends.mps.is_available": False,
}  # fmt: skip
_NONE = {"version.cuda", "version.hip"}


class dtype:  # noqa: N801 - its name in Torch, which Triton looks at
    """A dtype."""

    __module__ = "torch"

    def __init__(self, name: str) -> None:
        self.name, self.itemsize = name, DTYPES[name]
        self.is_floating_point = "float" in name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Name:
    """Something of the absent module: it can be named, derived from, and used as a decorator."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.__name__ = path.rpartition(".")[2]

    def __repr__(self) -> str:
        return self._path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _attribute(f"{self._path}.{name}")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: object) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, key: object) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002, D102
        inner = self._path.partition(".")[2]
        if inner in _ABSENT:
            return _ABSENT[inner]
        if self.__name__ in _DECORATORS:
            return _decorated(args)
        if self.__name__ in {"finfo", "iinfo"} and args:
            return _limits(args[0])
        raise RefusalError(
            f"`{self._path}()` needs the real {self._path.partition('.')[0]}, "
            "which is not there when a kernel is compiled",
            hint="put it into a function that the kernels' module does not call when imported",
        )


class _Limits:
    """`torch.finfo` and `torch.iinfo`."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class _Module(ModuleType):
    """An absent module: it has every name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _attribute(f"{self.__name__}.{name}")


class Standins(Loader, MetaPathFinder):
    """Finds modules of what is not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        if name.partition(".")[0] not in self._names:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `importlib.abc.Loader`."""
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        if "." not in module.__name__:
            module.__dict__["__version__"] = _VERSIONS[module.__name__]
            module.__dict__["dtype"] = dtype
            known = {name: dtype(name) for name in DTYPES}
            names = {**{name: name for name in DTYPES}, **_ALIASES}
            module.__dict__.update({name: known[full] for name, full in names.items()})


def stand_in() -> None:
    """Put stand-ins where nothing is installed."""
    absent = [name for name in NAMES if importlib.util.find_spec(name) is None]
    sys.meta_path.append(Standins(absent))


def _attribute(path: str) -> Any:
    return None if path.partition(".")[2] in _NONE else Name(path)


def _decorated(args: tuple[Any, ...]) -> Any:
    """The function itself, or what returns it; it takes registrations as well."""
    if args and callable(args[0]) and not isinstance(args[0], (str, Name)):
        function: Callable[..., Any] = args[0]
        for name in ("register_fake", "register_autograd", "register_kernel"):
            if not hasattr(function, name):
                try:
                    setattr(function, name, Name(f"torch.library.{name}"))
                except AttributeError:  # a class with slots, a builtin
                    break
        return function
    return lambda function: _decorated((function,))


def _limits(kind: Any) -> _Limits:
    name = getattr(kind, "name", str(kind))
    if name in _FLOATS:
        largest, eps, tiny = _FLOATS[name]
        bits = DTYPES[name] * 8
        return _Limits(max=largest, min=-largest, eps=eps, tiny=tiny, bits=bits)
    bits = DTYPES.get(name, 0) * 8
    if not bits or "int" not in name:
        raise RefusalError(f"the limits of `{kind}` are not known without the real module")
    if name.startswith("u"):
        return _Limits(max=2**bits - 1, min=0, bits=bits)
    return _Limits(max=2 ** (bits - 1) - 1, min=-(2 ** (bits - 1)), bits=bits)
