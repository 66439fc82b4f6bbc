"""Public functions and classes of a package as values, and how a definition becomes one."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import chain, repeat
from typing import Any

from kbuild.errors import KbuildError

LAYERS = "layers"


class PublicApiError(KbuildError):
    """The package cannot be read: it is not there, or does not parse."""

    kind = "surface"


class ParameterKind(str, Enum):
    """How a call passes a parameter, in the terms of Python's `inspect`."""

    POSITIONAL_ONLY = "positional-only"
    NORMAL = "positional or keyword"
    VAR_POSITIONAL = "variadic positional"
    KEYWORD_ONLY = "keyword-only"
    VAR_KEYWORD = "variadic keyword"


_POSITIONAL = (ParameterKind.POSITIONAL_ONLY, ParameterKind.NORMAL)


@dataclass(frozen=True)
class FunctionParameter:
    """A parameter of a function."""

    name: str
    kind: ParameterKind = ParameterKind.NORMAL
    annotation: str = ""
    """As written, on one line; empty without one."""
    default: str | None = None
    """As written; None when the parameter must be given."""

    @property
    def required(self) -> bool:
        """True when a call must give it."""
        return self.default is None and not self.variadic

    @property
    def variadic(self) -> bool:
        """True for `*args` and `**kwargs`."""
        return self.kind in {ParameterKind.VAR_POSITIONAL, ParameterKind.VAR_KEYWORD}

    def __str__(self) -> str:
        stars = {ParameterKind.VAR_POSITIONAL: "*", ParameterKind.VAR_KEYWORD: "**"}.get(
            self.kind, ""
        )
        name = f"{stars}{self.name}"
        if self.annotation:
            name += f": {self.annotation}"
        if self.default is None:
            return name
        return f"{name} = {self.default}" if self.annotation else f"{name}={self.default}"


@dataclass(frozen=True)
class PublicFunction:
    """A function, a method, or a name whose definition was not found."""

    name: str
    parameters: tuple[FunctionParameter, ...] | None
    """Without `self`; None when the definition was not found."""
    returns: str = ""
    """The annotation as written; empty without one."""
    doc: str = ""
    """The docstring without its indentation."""

    @property
    def signature(self) -> str:
        """`relu(x: Tensor, *, inplace: bool = False) -> Tensor`; `relu(...)` when unknown."""
        if self.parameters is None:
            return f"{self.name}(...)"
        arrow = f" -> {self.returns}" if self.returns else ""
        return f"{self.name}({', '.join(_with_separators(self.parameters))}){arrow}"

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return _summary(self.doc)


@dataclass(frozen=True)
class PublicClass:
    """A class: its constructor and its public members."""

    name: str
    constructor: PublicFunction | None = None
    """None when a base outside the package decides."""
    methods: tuple[PublicFunction, ...] = ()
    """Public ones and `__call__`, those of bases inside the package included, in source order."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Public names of the class's body with their values as written; properties without."""
    doc: str = ""

    @property
    def signature(self) -> str:
        """The constructor's, under the class's name; the bare name when it is not known."""
        return self.name if self.constructor is None else self.constructor.signature

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return _summary(self.doc)


@dataclass(frozen=True)
class PublicApi:
    """Everything that a package makes public, in the order in which it lists it."""

    names: tuple[str, ...] = ()
    """All public names of the package itself."""
    functions: tuple[PublicFunction, ...] = ()
    classes: tuple[PublicClass, ...] = ()
    """Public classes of the package itself."""
    layers: tuple[PublicClass, ...] = ()
    """Classes of the module `layers`, when that is public."""
    others: tuple[str, ...] = ()
    """Public names that are modules, `ops` or plain values."""
    doc: str = ""
    """The package's docstring."""

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return _summary(self.doc)

    def to_json(self) -> dict[str, Any]:
        """The API as a JSON object."""
        return {
            "names": list(self.names),
            "functions": [_function_json(function) for function in self.functions],
            "classes": [_class_json(cls) for cls in self.classes],
            "layers": [_class_json(layer) for layer in self.layers],
            "others": list(self.others),
            "doc": self.doc,
        }


def _with_separators(parameters: tuple[FunctionParameter, ...]) -> list[str]:
    """The parameters with `/` and `*` between them where a signature has these."""
    written = [str(parameter) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    if ParameterKind.KEYWORD_ONLY in kinds and ParameterKind.VAR_POSITIONAL not in kinds:
        written.insert(kinds.index(ParameterKind.KEYWORD_ONLY), "*")
    if ParameterKind.POSITIONAL_ONLY in kinds:
        written.insert(kinds.count(ParameterKind.POSITIONAL_ONLY), "/")
    return written


def _summary(doc: str) -> str:
    return " ".join(doc.strip().partition("\n\n")[0].split())


def _function_json(function: PublicFunction) -> dict[str, Any]:
    entries = asdict(function) | {"signature": function.signature}
    if function.parameters is not None:
        entries["parameters"] = [asdict(p) | {"kind": p.kind.value} for p in function.parameters]
    return entries


def _class_json(cls: PublicClass) -> dict[str, Any]:
    return {
        "name": cls.name,
        "constructor": cls.constructor and _function_json(cls.constructor),
        "methods": [_function_json(method) for method in cls.methods],
        "attributes": dict(cls.attributes),
        "doc": cls.doc,
    }


Definition = ast.FunctionDef | ast.AsyncFunctionDef


def function_of(node: Definition, name: str, *, skip: int = 0) -> PublicFunction:
    """The function under a name that may be another than its own.

    Args:
        node: its definition.
        name: what it is called by.
        skip: leading parameters that no caller gives: `self`, `ctx`.
    """
    parameters = parameters_of(node.args)
    # What `*args` takes in cannot be left out.
    while skip and parameters and parameters[0].kind in _POSITIONAL:
        parameters, skip = parameters[1:], skip - 1
    doc = ast.get_docstring(node) or ""
    return PublicFunction(name, parameters, source_text(node.returns), doc)


def lambda_of(node: ast.Lambda, name: str) -> PublicFunction:
    """The function of a lambda expression."""
    return PublicFunction(name, parameters_of(node.args))


def parameters_of(args: ast.arguments) -> tuple[FunctionParameter, ...]:
    """All parameters, in the order in which they are written."""
    nodes = [*args.posonlyargs, *args.args]
    defaults = chain(repeat(None, len(nodes) - len(args.defaults)), args.defaults)
    kinds = chain(
        repeat(ParameterKind.POSITIONAL_ONLY, len(args.posonlyargs)),
        repeat(ParameterKind.NORMAL, len(args.args)),
    )
    rows: list[tuple[ast.arg | None, ParameterKind, ast.expr | None]] = [
        *zip(nodes, kinds, defaults, strict=True),
        (args.vararg, ParameterKind.VAR_POSITIONAL, None),
        *zip(args.kwonlyargs, repeat(ParameterKind.KEYWORD_ONLY), args.kw_defaults),
        (args.kwarg, ParameterKind.VAR_KEYWORD, None),
    ]
    return tuple(
        FunctionParameter(
            node.arg,
            kind,
            source_text(node.annotation),
            None if default is None else ast.unparse(default),
        )
        for node, kind, default in rows
        if node is not None
    )


def source_text(node: ast.expr | None) -> str:
    """The source of an expression on one line; a quoted annotation without its quotes."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " ".join(node.value.split())
    return ast.unparse(node)


def decorated(node: Definition | ast.ClassDef, *names: str) -> bool:
    """True when one of the decorators has one of these names, whatever module it comes from."""
    functions = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(ast.unparse(function).rpartition(".")[2] in names for function in functions)
