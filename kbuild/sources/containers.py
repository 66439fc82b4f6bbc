"""Evaluates containers and strings of Python sources statically.

Answers are the elements of a container, the entries of a table, and the texts that an expression
may be; None stands for what the source does not determine.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Protocol, TypeAlias, TypeVar

from kbuild.sources.scopes import (
    AnyOf,
    Binding,
    Comprehension,
    Element,
    ExpressionBinding,
    InternalImport,
    NameScope,
    RecursiveCache,
    expression_key,
    names_in,
)

ScopedExpressions = list[tuple[ast.expr, NameScope]]
_Answer = TypeVar("_Answer")
_Literal: TypeAlias = ast.List | ast.Tuple | ast.Set | ast.Dict | Comprehension
_Literals: TypeAlias = list[tuple[_Literal, NameScope]]
_Table: TypeAlias = tuple[dict[object, ScopedExpressions], ScopedExpressions]
_MAX_TEXTS = 64
_SAME_ORDER = ("list", "tuple", "iter")
_ANY_ORDER = ("sorted", "set", "frozenset", "reversed")


class NameLookup(Protocol):
    """Where names are found."""

    def lookup(self, name: str, scope: NameScope) -> list[Binding]:
        """The bindings of a name as seen from a scope."""

    def bindings_of(self, origin: InternalImport) -> list[Binding]:
        """What a name of a module of the package is bound to."""

    def body_of(self, node: Comprehension) -> NameScope:
        """The scope inside a comprehension."""


class ContainerContents:
    """Answers for one package."""

    def __init__(self, names: NameLookup) -> None:
        self.names = names
        self._answers = RecursiveCache()
        self._tables: dict[int, tuple[_Literals, _Table]] = {}
        """By the identity of the containers, which are kept alive."""

    def elements(self, node: ast.expr, scope: NameScope) -> ScopedExpressions | None:
        """What iterating yields, in no order that can be relied on."""
        containers = self._containers(node, scope)
        if containers is None:
            return None
        return [element for literal, home in containers for element in self._held(literal, home)]

    def chosen(self, node: ast.Subscript, scope: NameScope) -> ScopedExpressions | None:
        """What a subscript may be: those of the key where it is written out, else all."""
        containers = self._containers(node.value, scope)
        if containers is None:
            return None
        (table, every), key = self._table(containers), _constant(node.slice)
        exact = [*table.get(key, ()), *table[None]] if key is not None else []
        return exact or every

    def _table(self, containers: _Literals) -> _Table:
        """What containers hold by its key, under None what may have any; and all of it.

        The latter two are one expression each: many subscripts of a container without such a key
        are one question.
        """
        if id(containers) not in self._tables:
            table: dict[object, ScopedExpressions] = {}
            for literal, home in containers:
                for key, value, where in self._entries(literal, home):
                    table.setdefault(key, []).append((value, where))
            every = _as_one_expression(
                [expression for part in table.values() for expression in part]
            )
            table[None] = _as_one_expression(table.get(None, []))
            self._tables[id(containers)] = containers, (table, every)
        return self._tables[id(containers)][1]

    def texts(self, node: ast.expr, scope: NameScope) -> frozenset[str] | None:
        """Every text that an expression may be."""
        nothing: frozenset[str] = frozenset()
        if self._answers.is_idle:
            for name in names_in(node):
                self.texts(name, scope)
        return self._guarded(node, scope, nothing, lambda: self._texts(node, scope))

    def _texts(self, node: ast.expr, scope: NameScope) -> frozenset[str] | None:
        match node:
            case ast.Constant(value=str(text)):
                return frozenset((text,))
            case ast.Name():
                values = self._values(self.names.lookup(node.id, scope))
                return _united([self.texts(v.node, v.scope) for v in values or ()])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _joined([self.texts(left, scope), self.texts(right, scope)])
            case ast.JoinedStr(values=parts):
                return _joined([self.texts(part, scope) for part in parts])
        resolved = self._resolved(node, scope)
        return _united([self.texts(*expression) for expression in resolved]) if resolved else None

    def _resolved(self, node: ast.expr, scope: NameScope) -> ScopedExpressions | None:
        """The simpler expressions that one stands for; None when it is as simple as can be."""
        match node:
            case AnyOf(found=found):
                return found
            case Element(of=iterated):
                return self.elements(iterated, scope)
            case ast.Subscript():
                return self.chosen(node, scope)
            case ast.IfExp(body=body, orelse=other):
                return [(body, scope), (other, scope)]
            case ast.FormattedValue(value=part, format_spec=None) | ast.NamedExpr(value=part):
                return [(part, scope)]
        return None

    def _held(self, literal: _Literal, home: NameScope) -> ScopedExpressions:
        if isinstance(literal, ast.Dict):
            keys = zip(literal.keys, literal.values, strict=True)
            return [(Element(of=value) if key is None else key, home) for key, value in keys]
        if isinstance(literal, ast.DictComp):
            return [(literal.key, self.names.body_of(literal))]
        return [(value, where) for _, value, where in self._entries(literal, home)]

    def _entries(
        self, literal: _Literal, home: NameScope
    ) -> list[tuple[object, ast.expr, NameScope]]:
        """Key, value, and the value's scope; a key of None may be any."""
        if isinstance(literal, ast.Dict):
            pairs = zip(literal.keys, literal.values, strict=True)
            return [(_constant(key), value, home) for key, value in pairs]
        if isinstance(literal, ast.DictComp):
            return [(None, literal.value, self.names.body_of(literal))]
        if not isinstance(literal, ast.List | ast.Tuple | ast.Set):
            return [(None, literal.elt, self.names.body_of(literal))]
        ordered = not isinstance(literal, ast.Set) and not any(
            isinstance(element, ast.Starred) for element in literal.elts
        )
        return [
            (at if ordered else None, _spread(element), home)
            for at, element in enumerate(literal.elts)
        ]

    def _containers(self, node: ast.expr, scope: NameScope) -> _Literals | None:
        nothing: _Literals = []
        if self._answers.is_idle:
            for name in names_in(node):
                self._containers(name, scope)
        return self._guarded(node, scope, nothing, lambda: self._literals(node, scope))

    def _literals(self, node: ast.expr, scope: NameScope) -> _Literals | None:
        match node:
            case _ if isinstance(node, _Literal):
                return [(node, scope)]
            case ast.Name():
                values = self._values(self.names.lookup(node.id, scope))
                return _concatenated([self._containers(v.node, v.scope) for v in values or ()])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [(_any_of(left, right), scope)]
            case ast.Call():
                return self._made(node, scope)
        resolved = self._resolved(node, scope)
        return (
            _concatenated([self._containers(*expression) for expression in resolved])
            if resolved
            else None
        )

    def _values(self, bindings: Iterable[Binding]) -> list[ExpressionBinding] | None:
        """The expressions behind the bindings, None when one of them is something else."""
        values: list[ExpressionBinding] = []
        for binding in bindings:
            if isinstance(binding, ExpressionBinding) and not binding.instance:
                values.append(binding)
            elif isinstance(binding, InternalImport) and not self._answers.leads_back(binding):
                find = partial(self._values, self.names.bindings_of(binding))
                inner = self._answers.get(("bound", binding), binding, binding, find)
                if inner is None:
                    return None
                values += inner
            else:
                return None
        return values or None

    def _made(self, node: ast.Call, scope: NameScope) -> _Literals | None:
        match node.func:
            case ast.Attribute(value=table, attr="keys"):
                return [(_any_of(table), scope)] if self.elements(table, scope) else None
            case ast.Attribute(value=table, attr="values" | "items" as part):
                return self._rows(table, scope, pairs=part == "items")
            case ast.Name(id=name) if not self.names.lookup(name, scope):
                return self._of_builtin(name, node, scope)
        return None

    def _rows(self, table: ast.expr, scope: NameScope, *, pairs: bool) -> _Literals | None:
        containers = self._containers(table, scope)
        if containers is None:
            return None
        keys: Sequence[ast.expr | None]
        rows: _Literals = []
        for literal, home in containers:
            match literal:
                case ast.Dict(keys=keys, values=values):
                    where = home
                case ast.DictComp(key=key, value=value):
                    keys, values = [key], [value]
                    where = self.names.body_of(literal)
                case _:
                    return None
            for at, held in zip(keys, values, strict=True):
                row: ast.expr = (
                    (ast.Tuple([at, held], ast.Load())) if pairs and at is not None else held
                )
                rows.append((ast.Set([row]), where))
        return rows

    def _of_builtin(self, name: str, node: ast.Call, scope: NameScope) -> _Literals | None:
        arguments = node.args
        if name == "dict" and not arguments and all(k.arg for k in node.keywords):
            keys: list[ast.expr | None] = [ast.Constant(k.arg) for k in node.keywords]
            return [(ast.Dict(keys, [k.value for k in node.keywords]), scope)]
        if not arguments:
            return [] if name in (*_SAME_ORDER, *_ANY_ORDER) else None
        if name in _SAME_ORDER:
            return self._containers(arguments[0], scope)
        if name in _ANY_ORDER:
            return [(_any_of(arguments[0]), scope)]
        # What `map`, `zip` and `enumerate` yield.
        each: list[ast.expr] = [Element(of=argument) for argument in arguments]
        if name == "map":
            row: ast.expr = ast.Call(arguments[0], each[1:], [])
        elif name == "zip":
            row = ast.Tuple(each, ast.Load())
        elif name == "enumerate":
            row = ast.Tuple([ast.Name("int", ast.Load()), each[0]], ast.Load())
        else:
            return None
        return [(ast.Set([row]), scope)]

    def _guarded(
        self, node: ast.expr, scope: NameScope, cycle: _Answer, ask: Callable[[], _Answer | None]
    ) -> _Answer | None:
        key = expression_key(node, scope)
        if self._answers.leads_back(key):
            return cycle
        return self._answers.get((key, type(cycle)), key, node, ask)


def _as_one_expression(expressions: ScopedExpressions) -> ScopedExpressions:
    return [(AnyOf(expressions), expressions[0][1])] if len(expressions) > 1 else expressions


def _any_of(*iterables: ast.expr) -> ast.Set:
    """A container that holds what these yield, in no order."""
    return ast.Set([Element(of=iterable) for iterable in iterables])


def _constant(key: ast.expr | None) -> object:
    return key.value if isinstance(key, ast.Constant) else None


def _spread(element: ast.expr) -> ast.expr:
    return Element(of=element.value) if isinstance(element, ast.Starred) else element


def _concatenated(answers: Iterable[_Literals | None]) -> _Literals | None:
    """All of them; None when there are none, or when one is not known."""
    lists = list(answers)
    known = [literals for literals in lists if literals is not None]
    return (
        [item for literals in known for item in literals]
        if lists and len(known) == len(lists)
        else None
    )


def _united(answers: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    sets = list(answers)
    known = [texts for texts in sets if texts is not None]
    return frozenset().union(*known) if sets and len(known) == len(sets) else None


def _joined(parts: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    choices = list(parts)
    known = [choice for choice in choices if choice is not None]
    if len(known) < len(choices) or prod(map(len, known)) > _MAX_TEXTS:
        return None
    return frozenset("".join(pieces) for pieces in product(*known))
