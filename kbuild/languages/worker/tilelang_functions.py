"""What a source in TileLang says of its functions.

Four forms are known. An *eager* function has `@tilelang.jit` and tensors as parameters. A *lazy*
one has it too, and returns a `T.prim_func`; so does a *factory*, without any decorator. A
`T.prim_func` may also stand by itself.
"""

from __future__ import annotations

import inspect
from ast import FunctionDef
from collections.abc import Callable, Container, Mapping
from types import FunctionType, ModuleType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError
from kbuild.languages.worker.tilelang_syntax import (
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
from kbuild.languages.worker.tilelang_tuner import candidates_of, key_of

_LISTS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Function:
    """A function that makes a kernel, or the kernel itself."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.tuner = value if hasattr(value, "jit_impl") else None
        self.jit = getattr(value, "jit_impl", value)
        self.plain = _plain(self.jit)
        self.is_program = _is_program(value)
        self.tree = tree_of(self.plain, name)
        self.inner = self.tree if self.is_program else inner_of(self.tree, self.plain)
        signature = inspect.signature(self.plain)
        self.parameters = {} if self.is_program else signature.parameters

    @property
    def is_eager(self) -> bool:
        """Whether its own parameters are the kernel's."""
        return self.inner is None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a call hands over, in order: tensors, numbers, results."""
        return (*self._given, *self.results)

    def taken(self, fixed: Container[str]) -> tuple[str, ...]:
        """What the kernel takes, in order: `arguments`, and dimensions that nothing fixes.

        Args:
            fixed: names of the constants that have a value.
        """
        if not self.is_eager:
            return self.arguments
        free = {name for name in self.open if name not in fixed}
        return (*(one for one in self.parameters if one in {*self._given, *free}), *self.results)

    @property
    def _given(self) -> tuple[str, ...]:
        if isinstance(self.inner, FunctionDef):
            return names(self.inner)
        known = self.jit.func.tensor_args
        return tuple(one for one in self.parameters if one in known)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the tensors of `T.empty` that are returned."""
        return returned(self.inner or self.tree)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Numbers that a call need not hand over."""
        if not self.is_eager:
            return {}
        return {
            name: value
            for name, value in self.jit.func.tensor_args_defaults.items()
            if isinstance(value, (bool, int, float))
        }

    @property
    def constants(self) -> Mapping[str, bool]:
        """Everything that is fixed when it is compiled -> whether it may be left out."""
        taken = set(self.arguments) if self.is_eager else set()
        found = {
            name: one.default is not one.empty or name in self.open
            for name, one in self.parameters.items()
            if name not in taken and one.kind not in _LISTS
        }
        return {**found, **consts(self.tree)} if self.is_eager else found

    @property
    def open(self) -> frozenset[str]:
        """Parameters that may stay dynamic: they are dimensions of its tensors."""
        if self.is_program:
            return frozenset()
        used = sizes(self.tree, self.plain)
        free = (one for one in self.parameters.values() if one.default is one.empty)
        return frozenset(one.name for one in free if one.name in used)

    def describe(self) -> dict[str, Any]:
        """The function as JSON."""
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
            "computed": [],
            "notes": notes,
            "facts": {
                "dimensions": {name: list(dims) for name, dims in tensors.items()},
                "consts": sorted(consts(self.tree)) if self.is_eager else [],
            },
        }

    def named(self, parameter: str, word: str) -> Any:
        """The macro or function of the source that a constant names; None where it is a text."""
        known = self.parameters.get(parameter)
        if known is None or isinstance(known.default, str) or known.annotation in (str, "str"):
            return None
        value = self.plain.__globals__.get(word)
        return value if callable(value) and not isinstance(value, type) else None

    def judge(self) -> None:
        """Raise a `RefusalError` for what cannot be asked for."""
        lists = [one for one in self.parameters.values() if one.kind in _LISTS]
        if lists:
            raise RefusalError(
                f"`{self.name}` takes `{lists[0]}`: what it may be given is not known",
                hint="name each parameter",
            )
        if self.is_eager and not self.arguments:
            raise RefusalError(
                f"`{self.name}` has no tensors as parameters, and no `T.prim_func` within",
                hint="write the `T.prim_func` in it, or `return` a call of what has one",
            )


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, Function]:
    """The functions that a module has a name for, by that name."""
    return {
        name: Function(name, value)
        for name, value in vars(module).items()
        if _makes_kernels(value) and owns(getattr(_plain(value), "__module__", ""))
    }


def _makes_kernels(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return has_program(tree_of(value, value.__name__, strict=False))
    is_jit = type(getattr(value, "jit_impl", value)).__name__ == "JITImpl"
    return is_jit or _is_program(value)


def _is_program(value: Any) -> bool:
    return type(value).__name__ == "PrimFunc" and hasattr(value, "orig_func")


def _plain(value: Any) -> Any:
    """The author's function inside decorators."""
    value = getattr(value, "jit_impl", value)
    if isinstance(value, FunctionType):
        return value
    inner = value if _is_program(value) else value.func
    return getattr(inner, "orig_func", inner)
