"""The names of a Python file by scope, and what each is bound to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

_Answer = TypeVar("_Answer")
ModulePath = tuple[str, ...]
"""A module of the package as its parts: `()` is the package, `("layers", "act")` a module."""

OPS_MODULE: ModulePath = ("_ops",)
"""What kbuild writes into each kernel."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Element(ast.expr):
    """Any element of what `of` yields; stands for a loop variable, and in no source."""

    _fields = ("of",)

    def __init__(self, of: ast.expr) -> None:
        super().__init__()
        self.of = of


class AnyOf(ast.expr):
    """One of several expressions; stands for many that may be the same ones, and in no source."""

    _fields = ()

    def __init__(self, expressions: list[tuple[ast.expr, NameScope]]) -> None:
        super().__init__()
        self.found = expressions


def expression_key(node: ast.AST, scope: NameScope) -> tuple[object, int]:
    """The same for expressions that are the same: a name of one scope, the elements of a container.

    It holds while the node that it is about is alive.
    """
    if isinstance(node, ast.Name):
        return node.id, id(scope.home(node.id))
    if isinstance(node, Element):
        key, home = expression_key(node.of, scope)
        return ("each", key), home
    return id(node), id(scope)


def names_in(node: ast.AST) -> Iterator[ast.Name]:
    """The names that an expression is made of, but for itself."""
    parts = ast.walk(node)
    next(parts)
    return (part for part in parts if isinstance(part, ast.Name))


class RecursiveCache:
    """Answers to questions that lead to each other, and back to themselves.

    Where a question leads back to itself, something stands in for its answer. An answer that was
    found with such a stand-in of an outer question is good for as long as that is looked for. All
    others are kept, so that many questions about one name take as long as one. All circles go
    through names: whoever asks about an expression first asks about the names in it.
    """

    def __init__(self) -> None:
        self._kept: dict[object, tuple[object, Any]] = {}
        self._passing: dict[object, tuple[object, Any, object]] = {}
        """With the outermost question that something stood in for."""
        self._open: dict[object, int] = {}
        """Questions that are being looked at, and how deep."""
        self._outermost = _NO_DEPTH
        """Depth of the outermost question that something stood in for, of late."""
        self.steps = 0
        """How often something was asked since the first of the questions that are open."""

    @property
    def is_idle(self) -> bool:
        """True while no question is being looked at."""
        return not self._open

    def leads_back(self, question: object) -> bool:
        """True for a question that is being looked at: something has to stand in for its answer."""
        self.steps = self.steps + 1 if self._open else 1
        depth = self._open.get(question)
        if depth is not None:
            self._outermost = min(self._outermost, depth)
        return depth is not None

    def give_up(self) -> None:
        """What is answered now is no answer, but the end of patience: it is not kept."""
        self._outermost = _ABANDONED

    def get(
        self,
        key: object,
        question: object,
        about: object,
        find: Callable[[], _Answer],
        *,
        lasts: bool = True,
    ) -> _Answer:
        """The answer, which `find` gives when it is not known.

        Args:
            key: what it is kept under.
            question: what `leads_back` is asked with.
            about: kept alive with the answer.
            find: looks for it.
            lasts: whether the key still means the same when all questions are answered.
        """
        if key in self._kept:
            return cast("_Answer", self._kept[key][1])
        if key in self._passing:
            _, known, needed = self._passing[key]
            depth = _NO_DEPTH if needed is None else self._open.get(needed, _ABANDONED)
            self._outermost = min(self._outermost, depth)
            return cast("_Answer", known)
        depth, outer = len(self._open), self._outermost
        self._open[question], self._outermost = depth, _NO_DEPTH
        try:
            answer = find()
        finally:
            del self._open[question]
            if self._outermost >= depth:
                self._outermost = _NO_DEPTH
            needed = self._at(self._outermost)
            outermost, self._outermost = self._outermost, min(self._outermost, outer)
            if not self._open:
                self._passing.clear()
                self._outermost = _NO_DEPTH
        if outermost == _NO_DEPTH and lasts:
            self._kept[key] = about, answer
        elif self._open:
            self._passing[key] = about, answer, None if outermost == _NO_DEPTH else needed
        return answer

    def _at(self, depth: int) -> object:
        """The question of that depth; one that nobody asks where patience has ended."""
        return next((q for q, at in self._open.items() if at == depth), self)


_NO_DEPTH, _ABANDONED = 1 << 30, -1


@dataclass(frozen=True)
class ExternalImport:
    """An absolute import: `import torch.library as tl` binds `tl` to `torch.library`."""

    dotted: str


@dataclass(frozen=True)
class InternalImport:
    """A relative import of `name` from a module of the same package.

    `*` stands for all of it, an empty name for the module itself.
    """

    module: ModulePath
    name: str


@dataclass(frozen=True, eq=False)
class ExpressionBinding:
    """An expression, to be read in the scope where it stands."""

    node: ast.expr
    scope: NameScope
    instance: bool = False
    """True when the expression is an annotation: the name is an instance of it."""


@dataclass(frozen=True, eq=False)
class DefinitionBinding:
    """A function, a lambda or a class of this file, and the scope of its body.

    A class stands for its instances as well: what `self` is given belongs to its body.
    """

    node: FunctionNode | ast.Lambda | ast.ClassDef
    scope: NameScope
    body: NameScope
    returns: list[ast.expr] = field(default_factory=list)
    """What a function may return."""


Binding = ExternalImport | InternalImport | ExpressionBinding | DefinitionBinding | None


@dataclass(eq=False)
class NameScope:
    """One block of names."""

    parent: NameScope | None = None
    owner: DefinitionBinding | None = None
    """The class whose body this is."""
    function: DefinitionBinding | None = None
    """The function whose body this is."""
    package: ModulePath = ()
    """Where relative imports start from; of the outermost scope."""
    names: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[ExternalImport | InternalImport] = field(default_factory=list)
    elsewhere: dict[str, NameScope] = field(default_factory=dict)
    """Names declared `global` or `nonlocal`."""

    @property
    def is_class(self) -> bool:
        """True for the body of a class."""
        return self.owner is not None

    def bind(self, name: str, binding: Binding) -> None:
        """Add one binding of a name."""
        self.elsewhere.get(name, self).names.setdefault(name, []).append(binding)

    def outward(self) -> Iterable[NameScope]:
        """The scopes that a name is looked up in; a class hides its names from its functions."""
        scope: NameScope | None = self
        while scope is not None:
            if scope is self or not scope.is_class:
                yield scope
            scope = scope.parent

    def home(self, name: str) -> NameScope:
        """The scope that binds a name as seen from here; the outermost where none does."""
        return next((scope for scope in self.outward() if name in scope.names), self.module)

    @property
    def module(self) -> NameScope:
        """The outermost scope."""
        return self if self.parent is None else self.parent.module


@dataclass(frozen=True, eq=False)
class ModuleNames:
    """One file's names, and every call and attribute in it with the scope where it stands."""

    scope: NameScope
    calls: list[tuple[ast.Call, NameScope]]
    bodies: dict[int, NameScope]
    """The scopes of comprehensions, by the id of their nodes."""
    lambdas: dict[int, DefinitionBinding]
    """By the id of their nodes."""
    attributes: list[tuple[ast.Attribute, NameScope]]
    decorators: frozenset[int]
    """The ids of the calls that decorate functions and classes of the file's top level."""
