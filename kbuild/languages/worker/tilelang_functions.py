"""What a source in TileLang says of its functions.

Three forms are known. An *eager* function has `@tilelang.jit` and tensors as parameters. A *lazy*
one has it too, and returns a `T.prim_func`; so does a *factory*, without any decorator.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from kbuild.languages.worker.protocol import RefusalError

_PRIM_FUNC = "prim_func"
_CONST, _EMPTY = "const", "empty"


class Function:
    """A function that makes a kernel."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.tuner = value if hasattr(value, "jit_impl") else None
        self.jit = getattr(value, "jit_impl", value)
        self.plain = _plain(self.jit)
        self.signature = inspect.signature(self.plain)
        self.tree = _tree(self.plain, name)
        self.inner = _inner(self.tree)

    @property
    def is_eager(self) -> bool:
        """Whether its own parameters are the kernel's."""
        return self.inner is None

    @property
    def arguments(self) -> tuple[str, ...]:
        """What a call hands over, in order: tensors, numbers, results."""
        if self.inner is not None:
            return (*_names(self.inner), *self.results)
        known = self.jit.func.tensor_args
        own = (one for one in self.signature.parameters if one in known)
        return (*own, *self.results)

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the tensors of `T.empty` that are returned."""
        return _returned(self.inner or self.tree)

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
            for name, one in self.signature.parameters.items()
            if name not in taken
        }
        return {**found, **dict.fromkeys(_consts(self.tree), False)} if self.is_eager else found

    @property
    def open(self) -> frozenset[str]:
        """Parameters of a factory that may stay dynamic: they are dimensions of its tensors."""
        if self.inner is None:
            return frozenset()
        used = {node.id for node in _annotations(self.inner) if isinstance(node, ast.Name)}
        return frozenset(
            name
            for name, one in self.signature.parameters.items()
            if name in used and one.default is one.empty
        )

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
        candidates, notes = self._candidates()
        return {
            "name": self.name,
            "parameters": [*plain, *fixed],
            "candidates": candidates,
            "key": [],
            "computed": [],
            "notes": notes,
        }

    def _candidates(self) -> tuple[list[dict[str, Any]], list[str]]:
        configs = getattr(self.tuner, "configs", None)
        if configs is None:
            return [], []
        if not isinstance(configs, (list, tuple)):
            return [], [f"the `configs` of `{self.name}` are made by a call: none is taken over"]
        return [{"constants": dict(one), "options": {}} for one in configs], []


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, Function]:
    """The functions that a module has a name for, by that name."""
    return {
        name: Function(name, value)
        for name, value in vars(module).items()
        if _makes_kernels(value) and owns(getattr(_plain(value), "__module__", ""))
    }


def _makes_kernels(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return _inner(_tree(value, value.__name__, strict=False)) is not None
    return type(getattr(value, "jit_impl", value)).__name__ == "JITImpl"


def _plain(value: Any) -> Any:
    """The author's function inside decorators."""
    value = getattr(value, "jit_impl", value)
    if isinstance(value, FunctionType):
        return value
    return getattr(value.func, "orig_func", value.func)


def _tree(function: Any, name: str, *, strict: bool = True) -> ast.AST:
    try:
        text = textwrap.dedent(inspect.getsource(function))
        return next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    except (OSError, TypeError, SyntaxError, StopIteration):
        if strict:
            raise RefusalError(f"the source of `{name}` cannot be read") from None
        return ast.Module([], [])


def _inner(tree: ast.AST) -> ast.FunctionDef | None:
    """The `T.prim_func` within."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node is tree:
            continue
        if any(_last(one) == _PRIM_FUNC for one in node.decorator_list):
            return node
    return None


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _last(node.func)
    return getattr(node, "attr", getattr(node, "id", ""))


def _names(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(one.arg for one in (*function.args.args, *function.args.kwonlyargs))


def _annotations(function: ast.FunctionDef) -> Iterator[ast.AST]:
    for one in function.args.args:
        if one.annotation is not None:
            yield from ast.walk(one.annotation)


def _consts(tree: ast.AST) -> Iterator[str]:
    """The names of `T.const("M, N")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node) == _CONST and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield from re.split(r"[\s,]+", first.value.strip())


def _returned(tree: ast.AST) -> tuple[str, ...]:
    """Names that the function itself returns and `T.empty` gave."""
    made = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _last(node.value) == _EMPTY
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None:
            items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            return tuple(one.id for one in items if isinstance(one, ast.Name) and one.id in made)
    return ()
