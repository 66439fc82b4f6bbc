"""Parameters through which a kernel stores, and those it computes addresses with."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from triton.runtime.jit import JITFunction

from kbuild.plugins.capture.programs import CaptureError

_STORES = {"store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or"} | {
    "atomic_xor", "atomic_xchg", "atomic_cas", "scatter", "async_store", "async_scatter",
    "async_copy_shared_to_global", "async_atomic_add", "async_atomic_max", "async_atomic_min",
    "async_atomic_and", "async_atomic_or", "async_atomic_xor", "buffer_store",
    "buffer_atomic_add",
    # Methods of cuTile's arrays, besides functions with names of Triton's.
    "store_advanced_indexing", "store_offset", "atomic_store_add", "atomic_store_max",
    "atomic_store_min", "atomic_store_and", "atomic_store_or", "atomic_store_xor",
    "atomic_add_offset", "atomic_max_offset", "atomic_min_offset", "atomic_and_offset",
    "atomic_or_offset", "atomic_xor_offset", "atomic_xchg_offset", "atomic_cas_offset",
}  # fmt: skip
_PLACES = {"buffer_store": 1}
"""Functions that store -> the place of the pointer among their arguments, where it is not first."""
_POINTER_NAMES = {"pointer", "ptr", "desc"}
"""Names of the parameter that functions which store have for their pointer."""
_VALUES = {"load", "sum", "max", "min", "dot", "allocate_shared_memory"} | _STORES
"""Functions whose results are no pointers, whatever their arguments are."""
_SPECIALIZE = "warp_specialize"
"""Gluon's call of several functions at once: `[(function, (argument, ...)), ...]`."""


@dataclass(frozen=True)
class PlainParameter:
    """A parameter of a `PlainFunction`."""

    name: str
    is_constexpr: bool = False
    default: Any = inspect.Parameter.empty
    do_not_specialize = True
    """No image depends on the values of numbers."""

    @property
    def has_default(self) -> bool:
        """True if a call need not pass it."""
        return self.default is not inspect.Parameter.empty


@dataclass(frozen=True)
class PlainFunction:
    """A kernel of cuTile, or a function of Python that it calls; Triton has objects for both."""

    fn: FunctionType
    params: tuple[PlainParameter, ...]
    name: str = ""
    """The kernel's name in its module."""

    @property
    def __name__(self) -> str:
        return self.fn.__name__


@cache
def written_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel through which it may store; those of functions that it calls as well.

    A name counts as derived from all names in the expression that was last assigned to it, but for
    what is loaded.
    """
    return _flow(kernel)[0]


@cache
def _flow(kernel: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Parameters through which a function may store, and those that its results derive from."""
    names = [parameter.name for parameter in kernel.params]
    flow = _Flow(kernel, {name: {name} for name in names})
    flow.follow(_statements(kernel))
    return frozenset(flow.written & {*names}), frozenset(flow.returned & {*names})


@dataclass
class _Flow(ast.NodeVisitor):
    """Follows the parameters through the statements of a kernel."""

    kernel: Any
    names: dict[str, set[str]]
    """Name -> the parameters that it derives from."""
    written: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)
    tuples: dict[str, ast.expr] = field(default_factory=dict)
    """Name -> what was last assigned to it."""

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        # After the value, whose calls see the names as they were before.
        for target in node.targets:
            self._assign(target, node.value)
            if isinstance(target, ast.Name):
                self.tuples[target.id] = node.value

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            before = self.names.get(node.target.id, set())
            self.names[node.target.id] = before | self._origins(node.value)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = dict(self.names)
        self.follow(node.body)
        after, self.names = self.names, before
        self.follow(node.orelse)
        self._join(after)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._assign(node.target, node.iter)
        self._repeat(node)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._repeat(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.returned |= self._origins(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        for place in self._places(node):
            self.written |= self._origins(place)

    def follow(self, statements: Sequence[ast.stmt]) -> None:
        """Follow statements, one after the other."""
        for statement in statements:
            self.visit(statement)

    def _join(self, names: Mapping[str, set[str]]) -> None:
        """Join the origins of names after either of two branches."""
        for name, origins in names.items():
            self.names[name] = self.names.get(name, set()) | origins

    def _repeat(self, node: ast.For | ast.While) -> None:
        """A loop's body, until it carries nothing more around."""
        before: dict[str, set[str]] = {}
        while before != self.names:
            before = dict(self.names)
            self.follow(node.body)
            self._join(before)
        self.follow(node.orelse)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = self._origins(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else ()
            has_parts = len(parts) == len(target.elts)
            values = parts if has_parts else [value] * len(target.elts)
            origins = [self._origins(part) for part in values]
            for item, known in zip(target.elts, origins, strict=True):
                for name in ast.walk(item):
                    if isinstance(name, ast.Name):
                        self.names[name.id] = known

    def _origins(self, node: ast.AST) -> set[str]:
        """The parameters that an expression derives from."""
        if isinstance(node, ast.Call):
            if _called(node) in _VALUES:
                return set()
            if inner := _function(self.kernel, node):
                arguments = _arguments(node, inner)
                results = _flow(inner)[1] & arguments.keys()
                return set().union(*(self._origins(arguments[name]) for name in results))
        if isinstance(node, ast.Name):
            return self.names.get(node.id, set())
        return set().union(*(self._origins(child) for child in ast.iter_child_nodes(node)))

    def _places(self, node: ast.Call) -> Iterator[ast.expr]:
        """Expressions of pointers through which a call may store."""
        if _called(node) in _STORES:
            if isinstance(node.func, ast.Attribute) and self._is_value(node.func.value):
                yield node.func.value
            else:
                yield _stored_pointer(node)
        elif _called(node) == _SPECIALIZE:
            for call in self._specialized(node):
                yield from self._places(call)
        elif inner := _function(self.kernel, node):
            arguments = _arguments(node, inner)
            for name in written_parameters(inner) & arguments.keys():
                yield arguments[name]

    def _is_value(self, owner: ast.expr) -> bool:
        """True if the owner is a descriptor, as in `descriptor.store(...)`; `tl` is a module."""
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        if not isinstance(owner, ast.Name) or owner.id in self.names:
            return True
        return not isinstance(self.kernel.fn.__globals__.get(owner.id), ModuleType)

    def _specialized(self, node: ast.Call) -> Iterator[ast.Call]:
        """The calls that `warp_specialize` makes.

        Raises:
            CaptureError: they are not written there.
        """
        calls = self._known(node.args[0]) if node.args else None
        for pair in calls.elts if isinstance(calls, (ast.List, ast.Tuple)) else (None,):
            if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2:  # noqa: PLR2004
                message = f"launches `{self.kernel.fn.__name__}`, whose `{_SPECIALIZE}` has no"
                raise CaptureError(f"{message} list of functions with their arguments")
            arguments = self._known(pair.elts[1])
            passed = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
            yield ast.Call(func=pair.elts[0], args=passed, keywords=[])

    def _known(self, node: ast.expr) -> ast.expr:
        """An expression, or what was last assigned to the name that it is."""
        return self.tuples.get(node.id, node) if isinstance(node, ast.Name) else node


@cache
def specialized_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel whose divisibility matters.

    Not those that it only divides by or counts to, nor those that its author does not specialize.
    """
    uses = _Uses(kernel)
    for statement in _statements(kernel):
        uses.visit(statement)
    return frozenset(
        parameter.name
        for parameter in kernel.params
        if parameter.name in uses.names
        and not parameter.do_not_specialize
        and not parameter.do_not_specialize_on_alignment
    )


_COUNTS = ("cdiv", "range", "static_range")


@dataclass
class _Uses(ast.NodeVisitor):
    """Names that are more than divisors and the ends of loops."""

    kernel: Any
    names: set[str] = field(default_factory=set)

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_division = isinstance(node.op, (ast.FloorDiv, ast.Mod))
        for side in (node.left, node.right):
            if not (is_division and isinstance(side, ast.Name)):
                self.visit(side)

    def visit_Call(self, node: ast.Call) -> None:
        passed: list[tuple[ast.AST, bool]]
        if inner := _function(self.kernel, node):
            names = specialized_parameters(inner)
            passed = [(a, name in names) for name, a in _arguments(node, inner).items()]
        else:
            passed = [(a, _called(node) not in _COUNTS) for a in ast.iter_child_nodes(node)]
        for argument, matters in passed:
            if matters or not isinstance(argument, ast.Name):
                self.visit(argument)


_SHAPES = {
    "arange": slice(None), "static_range": slice(None), "zeros": slice(1), "full": slice(1),
    "reshape": slice(1, None), "view": slice(1, None), "broadcast_to": slice(1, None),
}  # fmt: skip
"""Functions that take a shape -> its place among their arguments."""
_SHAPE_WORDS = ("shape", "block_shape")


@cache
def shape_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel that are part of a shape, which each image has one of.

    cuTile takes no number in the place of any constant.
    """
    if isinstance(kernel, PlainFunction):
        return frozenset(parameter.name for parameter in kernel.params if parameter.is_constexpr)
    names: set[str] = set()
    origins: dict[str, set[str]] = {}
    for statement in _statements(kernel):
        for node in ast.walk(statement):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        origins.setdefault(target.id, set()).update(_names(node.value))
            if isinstance(node, ast.Call):
                names.update(*map(_names, _shapes(kernel, node)))
    # What a part of a shape is computed from is a part of it as well, in any order of statements.
    before: set[str] = set()
    while before != names:
        before = set(names)
        names = names.union(*(origins.get(name, ()) for name in names))
    return frozenset(names & {parameter.name for parameter in kernel.params})


@cache
def unused_parameters(kernel: Any) -> frozenset[str]:
    """Parameters of a kernel that it does not name."""
    nodes = (node for statement in _statements(kernel) for node in ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset({parameter.name for parameter in kernel.params} - names)


def _shapes(kernel: Any, node: ast.Call) -> Iterator[ast.AST]:
    """Arguments of a call that are shapes."""
    if inner := _function(kernel, node):
        needed = shape_parameters(inner)
        yield from (a for name, a in _arguments(node, inner).items() if name in needed)
        return
    yield from node.args[_SHAPES.get(_called(node), slice(0))]
    yield from (word.value for word in node.keywords if word.arg in _SHAPE_WORDS)


def _names(node: ast.AST) -> set[str]:
    """Names in an expression but for what is loaded, which is no constant."""
    if isinstance(node, ast.Call) and _called(node) in _VALUES:
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    return set().union(*map(_names, ast.iter_child_nodes(node)))


def _statements(kernel: Any) -> list[ast.stmt]:
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn))).body
    return function.body if isinstance(function, ast.FunctionDef) else []


def _function(kernel: Any, node: ast.Call) -> Any:
    """The kernel function that a call calls, if it is one: by its name, or in a module."""
    known, function = kernel.fn.__globals__, node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        inner = getattr(known.get(function.value.id), function.attr, None)
    else:
        inner = known.get(_called(node))
    if isinstance(kernel, PlainFunction):
        inner = _plain_function(inner)
    is_function = isinstance(inner, (JITFunction, PlainFunction))
    # Not for recursion: its own parameters are being computed.
    return inner if is_function and inner != kernel else None


def _plain_function(value: Any) -> PlainFunction | None:
    """A function of the author's that kernels of cuTile call."""
    function = inspect.unwrap(value) if callable(value) else None
    if not isinstance(function, FunctionType) or function.__module__.startswith("cuda.tile"):
        return None
    parameters = inspect.signature(function).parameters
    return PlainFunction(function, tuple(map(PlainParameter, parameters)))


def _arguments(node: ast.Call, function: Any) -> dict[str, ast.expr]:
    """Parameters of a kernel function -> what a call passes."""
    positional = dict(zip([p.name for p in function.params], node.args, strict=False))
    return positional | {word.arg: word.value for word in node.keywords if word.arg}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _stored_pointer(call: ast.Call) -> ast.expr:
    """The pointer of a function that stores, by its name or its place."""
    for keyword in call.keywords:
        if keyword.arg in _POINTER_NAMES:
            return keyword.value
    at = min(_PLACES.get(_called(call), 0), len(call.args) - 1)
    return call.args[at] if call.args else call.keywords[0].value
