"""The functions of a TileLang source, with the candidates and key of `@tilelang.autotune`.

Four forms are supported. An *eager* function has `@tilelang.jit` and tensors as parameters. A
*lazy* one has it too, and returns a `T.prim_func`; so does a *factory*, without any decorator.
A `T.prim_func` may also stand by itself.
"""

from __future__ import annotations

import inspect
from ast import FunctionDef
from collections.abc import Callable, Container, Mapping, Sequence
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.tilelang_syntax import (
    consts,
    dimensions,
    fractions,
    has_program,
    inner_of,
    names,
    returned,
    sizes,
    tree_of,
)
from kbuild.dsl.worker.triton_functions import UnknownArgument, UnknownArgumentError

_PASSES = "pass_configs"
_DTYPE = "dtype"


def candidates_of(
    name: str, tuner: Any, parameters: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """JSON objects of the candidates, and a sentence for each omission.

    `tuner` is the decorated function; None without `@tilelang.autotune`.
    """
    configs = getattr(tuner, "configs", None)
    if configs is None:
        return [], []
    notes: list[str] = []
    if callable(configs):
        configs, why = _call_with_unknowns(configs, parameters)
        if why:
            return [], [f"the `configs` of `{name}` {why}: none is used"]
    if isinstance(configs, (Mapping, str)) or not hasattr(configs, "__iter__"):
        message = f"the `configs` of `{name}` are not a list of dictionaries: none is used"
        return [], [message]
    candidates: list[dict[str, Any]] = []
    for config in configs:
        constants, own_notes = _constants(name, config)
        notes += [note for note in own_notes if note not in notes]
        candidate = {"constants": constants, "options": {}}
        if constants is not None and candidate not in candidates:
            candidates.append(candidate)
    return candidates, notes


def key_of(tuner: Any, arguments: Sequence[str], tensors: Mapping[str, Sequence[str]]) -> list[str]:
    """Key of the tuner: numbers by name, dimensions as `x.shape.0`.

    `arguments` exclude results and floats; `tensors` has the names of dimensions.
    """
    left_out = set(getattr(tuner, "do_not_specialize", None) or ())
    key: list[str] = []
    for name in (name for name in arguments if tuner is not None and name not in left_out):
        if name not in tensors:
            key.append(name)
        for axis, dimension in enumerate(tensors.get(name, ())):
            if dimension not in left_out:
                # Dimensions without a name all have the empty text, and each of them counts.
                left_out |= {dimension} - {""}
                key.append(f"{name}.shape.{axis}")
    return key


def _call_with_unknowns(make: Callable[..., Any], parameters: Sequence[str]) -> tuple[Any, str]:
    """Call a function with placeholders; return its result, or None and the reason."""
    positional, named = [], {}
    free = iter(parameters)
    for parameter in inspect.signature(make).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in {
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        }:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = UnknownArgument(parameter.name)
        else:
            positional.append(UnknownArgument(next(free, parameter.name)))
    try:
        result = make(*positional, **named)
        # A generator can be read only once.
        return (list(result) if hasattr(result, "__next__") else result), ""
    except UnknownArgumentError as unknown:
        return None, f"depend on `{unknown}`, which is known only at run time"
    except Exception as error:  # noqa: BLE001 - the author's code
        return None, f"raise {type(error).__name__}: {error}"


def _constants(name: str, config: Any) -> tuple[dict[str, Any] | None, list[str]]:
    if not isinstance(config, Mapping):
        return None, [f"`{name}` has a candidate that is not a dictionary: left out"]
    if config.get(_PASSES):
        message = f"`{name}` has candidates with `{_PASSES}` of their own: left out"
        return None, [f"{message}; a function with `@tilelang.jit({_PASSES}=...)` can set them"]
    constants = {}
    for key, value in config.items():
        if key == _PASSES:
            continue
        plain = _json_value(value)
        if plain is None and value is not None:
            return None, [f"`{name}` has a candidate with {key} = {value!r}: left out"]
        constants[key] = plain
    return constants, []


def _json_value(value: Any) -> Any:
    """JSON value; a dtype by name; None for unsupported values."""
    if type(value) in {bool, int, float, str}:
        return value
    is_type = type(value).__name__.lower() == _DTYPE or type(value).__name__ == "DataType"
    return str(value) if is_type else None


_LISTS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class TileLangFunction:
    """A function that returns a kernel, or the kernel itself."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.tuner = value if hasattr(value, "jit_impl") else None
        self.jit = getattr(value, "jit_impl", value)
        self.plain = _undecorated(self.jit)
        self.is_program = _is_program(value)
        self.tree = tree_of(self.plain, name)
        self.inner = self.tree if self.is_program else inner_of(self.tree, self.plain)
        self.file: str = self.plain.__code__.co_filename
        self.line: int = self.plain.__code__.co_firstlineno
        signature = inspect.signature(self.plain)
        self.parameters = {} if self.is_program else signature.parameters

    @property
    def is_eager(self) -> bool:
        """True if its own parameters are the kernel's."""
        return self.inner is None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments of a call, in order: tensors, numbers, results."""
        return (*self._given, *self.results)

    def taken(self, fixed: Container[str]) -> tuple[str, ...]:
        """Names of the kernel's parameters: `arguments`, and dimensions that are not `fixed`."""
        if not self.is_eager:
            return self.arguments
        wanted = {*self._given, *(name for name in self.open if name not in fixed)}
        return (*(name for name in self.parameters if name in wanted), *self.results)

    @property
    def _given(self) -> tuple[str, ...]:
        if isinstance(self.inner, FunctionDef):
            return names(self.inner)
        known = self.jit.func.tensor_args
        return tuple(parameter for parameter in self.parameters if parameter in known)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the tensors of `T.empty` that are returned."""
        return returned(self.inner or self.tree)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Numbers that a call need not pass, by name."""
        if not self.is_eager:
            return {}
        return {
            name: value
            for name, value in self.jit.func.tensor_args_defaults.items()
            if isinstance(value, (bool, int, float))
        }

    @property
    def constants(self) -> Mapping[str, bool]:
        """Parameters that are fixed at compile time -> True if they may be omitted."""
        taken = set(self.arguments) if self.is_eager else set()
        constants = {
            name: parameter.default is not parameter.empty or name in self.open
            for name, parameter in self.parameters.items()
            if name not in taken and parameter.kind not in _LISTS
        }
        return {**constants, **consts(self.tree)} if self.is_eager else constants

    @property
    def open(self) -> frozenset[str]:
        """Parameters that may stay dynamic, because they are dimensions of tensors."""
        if self.is_program:
            return frozenset()
        free = {p.name for p in self.parameters.values() if p.default is p.empty}
        return frozenset(free & sizes(self.tree, self.plain))

    def describe(self) -> dict[str, Any]:
        """JSON object of the function."""
        plain = [
            {"name": name, "constant": False, "default": False, "optional": name in self.defaults}
            for name in self.arguments
        ]
        fixed = [
            {"name": name, "constant": True, "default": default}
            for name, default in self.constants.items()
        ]
        candidates, notes = candidates_of(self.name, self.tuner, tuple(self.parameters))
        text = self.inner or self.tree
        tensors = dimensions(text)
        whole = [name for name in self._given if name not in fractions(text)]
        return {
            "name": self.name,
            "parameters": [*plain, *fixed],
            "candidates": candidates,
            "key": key_of(self.tuner, whole, tensors),
            "notes": notes,
            "facts": {
                "dimensions": {name: list(dims) for name, dims in tensors.items()},
                "consts": sorted(consts(self.tree)) if self.is_eager else [],
            },
        }

    def named(self, parameter: str, word: str) -> Any:
        """The macro or function of the source that a constant names; None if it is a text."""
        known = self.parameters.get(parameter)
        if known is None or isinstance(known.default, str) or known.annotation in (str, "str"):
            return None
        value = self.plain.__globals__.get(word)
        return value if callable(value) and not isinstance(value, type) else None

    def validate(self) -> None:
        """Raise RefusalError for parameters that are not supported."""
        lists = [parameter for parameter in self.parameters.values() if parameter.kind in _LISTS]
        if lists:
            raise RefusalError(
                f"`{self.name}` takes `{lists[0]}`: its parameters are unknown",
                hint="name each parameter",
            )
        if self.is_eager and not self.arguments:
            raise RefusalError(
                f"`{self.name}` has neither tensor parameters nor a `T.prim_func`",
                hint="define the `T.prim_func` in it, or return a call of a function that has one",
            )


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, TileLangFunction]:
    """The functions of a module by name."""
    return {
        name: TileLangFunction(name, value)
        for name, value in vars(module).items()
        if _makes_kernels(value) and owns(getattr(_undecorated(value), "__module__", ""))
    }


def _makes_kernels(value: Any) -> bool:
    if type(value) is FunctionType:
        return has_program(tree_of(value, value.__name__, strict=False))
    is_jit = type(getattr_static(value, "jit_impl", value)).__name__ == "JITImpl"
    return is_jit or _is_program(value)


def _is_program(value: Any) -> bool:
    return type(value).__name__ == "PrimFunc" and hasattr(value, "orig_func")


def _undecorated(value: Any) -> Any:
    """The author's function inside of decorators."""
    value = getattr(value, "jit_impl", value)
    if isinstance(value, FunctionType):
        return value
    inner = value if _is_program(value) else value.func
    return getattr(inner, "orig_func", inner)
