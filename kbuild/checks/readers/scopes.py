"""The names of a Python file, scope by scope, and what each is bound to.

A name may be bound several times (`try: ... except ImportError: ...`); every binding is kept. Names
whose value cannot be read off the source (parameters, caught exceptions) are bound to None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

Path = tuple[str, ...]
"""A module of the package as its parts: `()` is the package, `("layers", "act")` a module."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Element(ast.expr):
    """Any element of what `of` yields; stands for a loop variable, and in no source."""

    _fields = ("of",)

    def __init__(self, of: ast.expr) -> None:
        super().__init__()
        self.of = of


@dataclass(frozen=True)
class External:
    """An absolute import: `import torch.library as tl` binds `tl` to `torch.library`."""

    dotted: str


@dataclass(frozen=True)
class Internal:
    """A relative import of `name` from a module of the same package.

    `*` stands for all of it, an empty name for the module itself.
    """

    module: Path
    name: str


@dataclass(frozen=True, eq=False)
class Value:
    """An expression, to be read in the scope where it stands."""

    node: ast.expr
    scope: Scope
    instance: bool = False
    """True when the expression is an annotation: the name is an instance of it."""


@dataclass(frozen=True, eq=False)
class Defined:
    """A function or a class of this file, and the scope of its body.

    A class stands for its instances as well: what `self` is given belongs to its body.
    """

    node: Function | ast.ClassDef
    scope: Scope
    body: Scope
    returns: list[ast.expr] = field(default_factory=list)
    """What a function may return."""


Binding = External | Internal | Value | Defined | None


@dataclass(eq=False)
class Scope:
    """One block of names."""

    parent: Scope | None = None
    owner: Defined | None = None
    """The class whose body this is."""
    package: Path = ()
    """Where relative imports start from; of the outermost scope."""
    names: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[External | Internal] = field(default_factory=list)
    elsewhere: dict[str, Scope] = field(default_factory=dict)
    """Names declared `global` or `nonlocal`."""

    @property
    def is_class(self) -> bool:
        """True for the body of a class."""
        return self.owner is not None

    def bind(self, name: str, binding: Binding) -> None:
        """Add one binding of a name."""
        home = self.elsewhere.get(name, self)
        home.names.setdefault(name, []).append(binding)

    def outward(self) -> Iterable[Scope]:
        """The scopes that a name is looked up in; a class hides its names from its functions."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or not scope.is_class:
                yield scope
            scope = scope.parent

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        return self if self.parent is None else self.parent.module


@dataclass(frozen=True, eq=False)
class Names:
    """One file's names, and every call and attribute in it with the scope where it stands."""

    scope: Scope
    calls: list[tuple[ast.Call, Scope]]
    bodies: dict[int, Scope]
    """The scopes of comprehensions, by the id of their nodes."""
    attributes: list[tuple[ast.Attribute, Scope]]
