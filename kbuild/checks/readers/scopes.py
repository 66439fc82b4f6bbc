"""The names of a Python file, scope by scope, and what each is bound to.

A name may be bound several times (`try: ... except ImportError: ...`); every binding is kept. Names
whose value cannot be read off the source (parameters, caught exceptions) are bound to None.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

_Answer = TypeVar("_Answer")
Path = tuple[str, ...]
"""A module of the package as its parts: `()` is the package, `("layers", "act")` a module."""

OPS_MODULE: Path = ("_ops",)
"""What kbuild writes into each kernel."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
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

    def __init__(self, found: list[tuple[ast.expr, Scope]]) -> None:
        super().__init__()
        self.found = found


def expression_key(node: ast.AST, scope: Scope) -> tuple[object, int]:
    """The same for expressions that are the same: a name of one scope, the elements of a container.

    It holds while the node that it is about is alive.
    """
    if isinstance(node, ast.Name):
        return node.id, id(scope.home(node.id))
    if isinstance(node, Element):
        one, home = expression_key(node.of, scope)
        return ("each", one), home
    return id(node), id(scope)


def names_in(node: ast.AST) -> Iterator[ast.Name]:
    """The names that an expression is made of, but for itself."""
    parts = ast.walk(node)
    next(parts)
    return (part for part in parts if isinstance(part, ast.Name))


class Answers:
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
        self._outermost = _NONE
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
        self._outermost = _LOST

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
            depth = _NONE if needed is None else self._open.get(needed, _LOST)
            self._outermost = min(self._outermost, depth)
            return cast("_Answer", known)
        depth, outer = len(self._open), self._outermost
        self._open[question], self._outermost = depth, _NONE
        try:
            answer = find()
        finally:
            del self._open[question]
            if self._outermost >= depth:
                self._outermost = _NONE
            needed = self._at(self._outermost)
            found, self._outermost = self._outermost, min(self._outermost, outer)
            if not self._open:
                self._passing.clear()
                self._outermost = _NONE
        if found == _NONE and lasts:
            self._kept[key] = about, answer
        elif self._open:
            self._passing[key] = about, answer, None if found == _NONE else needed
        return answer

    def _at(self, depth: int) -> object:
        """The question of that depth; one that nobody asks where patience has ended."""
        return next((q for q, at in self._open.items() if at == depth), self)


_NONE, _LOST = 1 << 30, -1


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
    """A function, a lambda or a class of this file, and the scope of its body.

    A class stands for its instances as well: what `self` is given belongs to its body.
    """

    node: Function | ast.Lambda | ast.ClassDef
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
    function: Defined | None = None
    """The function whose body this is."""
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

    def home(self, name: str) -> Scope:
        """The scope that binds a name as seen from here; the outermost where none does."""
        return next((scope for scope in self.outward() if name in scope.names), self.module)

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
    lambdas: dict[int, Defined]
    """By the id of their nodes."""
    attributes: list[tuple[ast.Attribute, Scope]]
    decorators: frozenset[int]
    """The ids of the calls that decorate functions and classes of the file's top level."""
