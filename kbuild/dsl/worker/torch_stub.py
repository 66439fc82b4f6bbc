"""Stub modules for Torch and NumPy where these are not installed.

Sources of kernels import them for dtypes, annotations and wrappers. Every name of Torch
exists, and no other. Questions about the device are answered by `device`; other calls return
an `UnknownValue`, on which no decision can depend.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from kbuild.dsl.worker import device as devices
from kbuild.dsl.worker.device import UnknownValue
from kbuild.dsl.worker.torch_types import (
    ALIASES,
    DTYPES,
    TorchDevice,
    TorchSize,
    TorchVersion,
    dtype,
    limits,
)

NAMES = ("torch", "numpy")
_FILE = Path(__file__).with_name("torch_names.txt")
_VERSIONS = {"numpy": "2.0.0+none", "torch_c_dlpack_ext": "0"}
_KINDS = ("classes", "functions", "values")
# Functions that return their argument, or a decorator that does.
_DECORATORS = {
    "no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "compile", "script", "ignore",
    "unused", "export", "interface", "wrap", "custom_op", "triton_op", "register_fake", "impl",
    "register_autograd", "register_kernel", "register_vmap", "register_torch_dispatch",
    "impl_abstract", "wrap_triton", "capture_triton", "disable", "allow_in_graph",
    "disallow_in_graph", "forbid_in_graph", "assume_constant_result", "nonstrict_trace",
    "disable_dynamo", "graph_break", "custom_fwd", "custom_bwd", "once_differentiable", "jit",
    "njit", "record_function", "autocast", "has_side_effect",
}  # fmt: skip
_FIXED = {
    "xpu.is_available": False, "xpu.device_count": 0, "mps.is_available": False,
    "backends.mps.is_available": False, "mtia.is_available": False, "jit.is_scripting": False,
    "jit.is_tracing": False, "compiler.is_compiling": False, "compiler.is_dynamo_compiling": False,
    "_dynamo.is_compiling": False, "distributed.is_available": True,
    "distributed.is_initialized": False, "distributed.is_torchelastic_launched": False,
    "is_grad_enabled": True, "is_inference_mode_enabled": False, "is_autocast_enabled": False,
}  # fmt: skip
"""Functions with the same result wherever a kernel's module is imported -> the result."""
_SETTINGS = dict.fromkeys(("recompile_limit", "cache_size_limit"), 8)
"""Settings of `torch._dynamo.config`: sources raise them, and no kernel depends on them."""
_CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None}
_DEVICE: Mapping[str, Callable[[str], Any]] = {
    **devices.QUESTIONS,
    "accelerator.current_accelerator": TorchDevice.current,
}
"""Functions of `torch` that ask about the device -> answers."""


class StubAttribute:
    """Name of an absent module: it can be used as annotation, base class and decorator."""

    def __init__(self, path: str, *, callable_: bool = False) -> None:
        self._path, self._callable = path, callable_
        self.__name__ = self.__qualname__ = path.rpartition(".")[2]
        self.__module__ = path.rpartition(".")[0]

    def __repr__(self) -> str:
        return self._path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _name(f"{self._path}.{name}")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (_class(self._path),)

    def __or__(self, other: object) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, key: object) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return _call_stub(self._path, args, kwargs)

    def __bool__(self) -> bool:
        return True if self._callable else self._decide()

    def _decide(self, *_: Any) -> Any:
        return UnknownValue(self._path)._decide()  # noqa: SLF001 - says the same

    __len__ = __iter__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = _decide
    __int__ = __index__ = __float__ = __complex__ = __format__ = _decide

    def _computed(self, *_: Any) -> Any:
        return UnknownValue(self._path)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _computed
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __rpow__ = _computed

    def __instancecheck__(self, instance: Any) -> bool:
        # No existing object is an instance of an absent module's class.
        return bool(instance.__class__ is None)

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False


class _StubMeta(ABCMeta):
    """Metaclass of the absent module's classes, and of the author's classes derived from them."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith(("__", "_abc_")):
            raise AttributeError(name)
        return _name(f"{_path_of(cls)}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # `vars` does not inherit: classes that an author derives from Torch's are instantiated.
        if "_kbuild_path" in vars(cls):
            return _call_stub(_path_of(cls), args, kwargs)
        return super().__call__(*args, **kwargs)

    def __getitem__(cls, key: object) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return UnknownValue(_path_of(cls))._decide()  # type: ignore[no-any-return]  # noqa: SLF001

    def __repr__(cls) -> str:
        return f"<class '{_path_of(cls)}'>" if "_kbuild_path" in vars(cls) else super().__repr__()


class _StubInstance:
    """Base for instances of the author's classes that derive from the absent module's."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG004
        # `object` takes no arguments for a class that overrides `__new__`.
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return UnknownValue(f"{type(self).__name__}().{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        return UnknownValue(f"{type(self).__name__}()()")


class _StubDecorator:
    """Result of `torch.no_grad()` and the like: a context and a decorator."""

    def __call__(self, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        return _decorated(function) if function is not None else _call_stub("torch", args, kwargs)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _StubModule(ModuleType):
    """An absent module with the names of the real one."""

    def __getattr__(self, name: str) -> Any:
        if f"{self.__name__}.{name}" in {"torch.__version__", "torch.version.__version__"}:
            (line,) = (name for name in _torch_names() if name.startswith("version "))
            releases = devices.torch_releases(line.partition(" ")[2])
            version = TorchVersion(f"{releases[0]}+none")
            version.releases = releases
            return version
        if name.startswith("__"):
            raise AttributeError(name)
        return _attribute(self.__name__, name)


class StubFinder(Loader, MetaPathFinder):
    """Finds stubs for packages that are not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        top, rest = name.partition(".")[::2]
        if top not in self._names or (top == "torch" and not _is_module(rest)):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See `importlib.abc.Loader`."""
        return _StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        names = module.__dict__
        if module.__name__ == "torch":
            names["dtype"], names["device"], names["Size"] = dtype, TorchDevice, TorchSize
            known = {name: dtype(name) for name in DTYPES}
            full = {**{name: name for name in DTYPES}, **ALIASES}
            names.update({name: known[real] for name, real in full.items()}, **_CONSTANTS)
        elif module.__name__ in _VERSIONS:
            names["__version__"] = _VERSIONS[module.__name__]
            names.update(_CONSTANTS)


def install_stubs() -> None:
    """Make stubs importable for packages that are not installed."""
    absent = [name for name in NAMES if importlib.util.find_spec(name) is None]
    sys.meta_path.append(StubFinder(absent))


@cache
def _torch_names() -> Mapping[str, tuple[str, ...]]:
    """Sections of `torch_names.txt`, such as `torch.cuda classes` -> names."""
    names_by_section: dict[str, list[str]] = {}
    section = ""
    for line in _FILE.read_text("utf-8").splitlines():
        if not line.startswith((" ", "#")):
            section = line
            names_by_section[section] = []
        elif line.startswith(" "):
            names_by_section[section] += line.split()
    return {name: tuple(names) for name, names in names_by_section.items()}


@cache
def _modules() -> frozenset[str]:
    """Names of all modules below `torch`."""
    modules, path, name = set(), list[str](), ""
    for word in re.findall(r"[\w]+|[()]", " ".join(_torch_names()["modules"])):
        if word == "(":
            path.append(name)
        elif word == ")":
            path.pop()
        else:
            name = word
            modules.add(".".join((*path, name)))
    return frozenset(modules)


def _is_module(rest: str) -> bool:
    """True if `torch` has such a submodule."""
    return not rest or rest in _modules()


@cache
def _kinds(module: str) -> Mapping[str, str]:
    """Names of a module -> their kinds; empty for modules that are not listed."""
    groups = {kind: _torch_names().get(f"{module} {kind}", ()) for kind in _KINDS}
    return {name: kind for kind, names in groups.items() for name in names}


def _attribute(module: str, name: str) -> Any:
    path = f"{module}.{name}"
    if path in {"torch.version.cuda", "torch.version.hip"}:
        return devices.runtime_release(name)
    if path == "torch.version.xpu":
        return None
    if module == "torch._dynamo.config" and name in _SETTINGS:
        return _SETTINGS[name]
    top, _, rest = path.partition(".")
    if top == "torch" and _is_module(rest):
        return importlib.import_module(path)
    kinds = _kinds(module)
    if kinds and name not in kinds:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if kinds.get(name) == "classes":
        return _class(path)
    return _name(path, callable_=kinds.get(name) == "functions")


@cache
def _name(path: str, *, callable_: bool = False) -> StubAttribute:
    return StubAttribute(path, callable_=callable_)


@cache
def _class(path: str) -> type:
    module, _, name = path.rpartition(".")
    # `except torch.OutOfMemoryError` and `warn(..., category)` take only such classes.
    for suffix, base in (("Warning", Warning), ("Error", RuntimeError), ("Exception", Exception)):
        if name.endswith(suffix):
            return type(name, (base,), {"__module__": module})
    return _StubMeta(name, (_StubInstance,), {"__module__": module, "_kbuild_path": path})


def _path_of(cls: type) -> str:
    """Path of a class of the absent module, or of the one that a class derives from."""
    paths = (vars(base).get("_kbuild_path") for base in cls.__mro__)
    return next((path for path in paths if path), "")


def _call_stub(path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    inner, name = path.partition(".")[2], path.rpartition(".")[2]
    if path.startswith("torch."):
        if inner in _DEVICE:
            return _DEVICE[inner](path)
        if inner in _FIXED:
            return _FIXED[inner]
        if inner == "get_default_dtype":
            return importlib.import_module("torch").float32
    if name in {"finfo", "iinfo"}:
        return limits(args[0] if args else importlib.import_module("torch").float32)
    if name in _DECORATORS:
        function = next(
            (
                argument
                for argument in args
                if (type(argument) not in {str, StubAttribute, UnknownValue} and callable(argument))
            ),
            kwargs.get("fn"),
        )
        return _StubDecorator() if function is None else _decorated(function)
    return UnknownValue(f"{path}()")


def _decorated(function: Any) -> Any:
    """Return the function with stubs for registrations such as `register_fake`."""
    for name in ("register_fake", "register_autograd", "register_kernel", "register_vmap"):
        if not hasattr(function, name):
            try:
                setattr(function, name, StubAttribute(f"torch.library.{name}"))
            except AttributeError:  # a class with slots, a builtin
                break
    return function
