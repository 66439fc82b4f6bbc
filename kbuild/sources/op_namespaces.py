"""Decides whether an expression names an op in the kernel's own namespace.

The answer is `own`, `other` or `unknown`. Helpers of the package are followed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from kbuild.sources.containers import ScopedExpressions
from kbuild.sources.resolution import (
    ANY_ATTRIBUTE,
    CUSTOM_OP,
    NAMESPACE,
    OPS,
    UNKNOWN,
    KernelPackage,
)
from kbuild.sources.scopes import (
    AnyOf,
    Binding,
    DefinitionBinding,
    Element,
    ExpressionBinding,
    InternalImport,
    NameScope,
    RecursiveCache,
    expression_key,
    names_in,
)

Namespace = Literal["own", "other", "unknown"]
PREFIX_FUNCTIONS = frozenset(
    f"{OPS}.{name}"
    for name in (
        "add_op_namespace_prefix",
        "torch_add_op_namespace_prefix",
        "jax_add_ffi_target_name_prefix",
    )
)
_FIRST_FIELD = re.compile(r"\{(?P<brace>\w*)\}|%(?:\((?P<percent>\w+)\))?s")
_KEEP_START = frozenset(
    ("strip", "rstrip", "split", "rsplit", "partition", "rpartition", "removesuffix", "__str__")
)
"""Methods of text after which it, or its first part, begins as before."""
_CONTAINERS = (Element, ast.List, ast.Tuple, ast.Set, ast.ListComp)
_MAX_CALL_DEPTH = 6
"""Calls of helpers inside each other that are followed."""
_MAX_STEPS = 5000
"""Expressions that one question may lead to."""


@dataclass(frozen=True, eq=False)
class _CallFrame:
    """A call that is being followed: its arguments are the values of the parameters."""

    function: DefinitionBinding
    call: ast.Call
    scope: NameScope
    """Where the call stands."""
    outer: _CallFrame | None
    depth: int


class OpNamespaceResolver:
    """Answers for one package."""

    def __init__(self, package: KernelPackage) -> None:
        self.package = package
        self._known = RecursiveCache()
        """None stands in for an expression that is made of itself: `name = name + "_out"`, where
        the other bindings decide."""
        self._are_bound: dict[int, bool] = {}
        """By the identity of a call of the package."""
        self._frames: dict[tuple[int, int, int], _CallFrame] = {}
        self._by_kind: Mapping[type, Callable[..., Namespace | None]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Starred: self._starred,
            ast.Subscript: self._subscript,
            AnyOf: lambda n, _, frame: _common_answer(self._answers(n.found, frame)),
            **dict.fromkeys((ast.IfExp, ast.BoolOp), self._branches),
            **dict.fromkeys(_CONTAINERS, self._elements),
        }

    def namespace_of(self, node: ast.expr, scope: NameScope) -> Namespace:
        """The namespace that every value carries which the source shows for `node`."""
        self._frames.clear()
        for name in names_in(node):
            self._answer(name, scope, None)
        return self._answer(node, scope, None) or "unknown"

    def _answer(
        self, node: ast.expr, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        key = (*expression_key(node, scope), id(frame))
        known = self._known
        if known.leads_back(key):
            return None
        if known.steps > _MAX_STEPS:
            known.give_up()
            return "unknown"

        def found() -> Namespace | None:
            return self._by_meaning(node, scope) or self._by_form(node, scope, frame)

        return known.get(key, key, node, found, lasts=frame is None)

    def _by_meaning(self, node: ast.expr, scope: NameScope) -> Namespace | None:
        meanings = self.package.denote(node, scope)
        if meanings and all(map(_is_own_meaning, meanings)):
            return "own"
        if meanings and all(map(_is_of_another, meanings)):
            return "other"
        return None

    def _by_form(
        self, node: ast.expr, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        ask = self._by_kind.get(type(node))
        return ask(node, scope, frame) if ask else self._start(_start_of(node), scope, frame)

    def _constant(
        self, node: ast.Constant, _: NameScope, __: _CallFrame | None
    ) -> Namespace | None:
        if not isinstance(node.value, str):
            return "unknown"
        return "other" if node.value else None

    def _starred(
        self, node: ast.Starred, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        first = ast.Subscript(node.value, ast.Constant(0), ast.Load())
        return self._answer(first, scope, frame)

    def _branches(
        self, node: ast.IfExp | ast.BoolOp, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
        return _common_answer(self._answer(part, scope, frame) for part in parts)

    def _elements(
        self, node: ast.expr, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        held = node.of if isinstance(node, Element) else node
        return _answer_for_all(self._answers(self.package.contents.elements(held, scope), frame))

    def _subscript(
        self, node: ast.Subscript, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        expressions = self.package.contents.chosen(node, scope)
        if expressions is None:
            return self._start(_start_of(node), scope, frame)
        return _common_answer(self._answers(expressions, frame))

    def _answers(
        self, expressions: ScopedExpressions | None, frame: _CallFrame | None
    ) -> Iterator[Namespace | None]:
        yield from (self._answer(node, scope, frame) for node, scope in expressions or ())

    def _start(
        self, part: ast.expr | None, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        """Of text that begins with that part, and goes on."""
        match part:
            case None:
                return "unknown"
            case ast.Constant(value=str(text)) if "::" not in text:
                own = f"_{self.package.own}_"
                return "unknown" if own.startswith(text) or text.startswith(own) else "other"
        return self._answer(part, scope, frame)

    def _name(self, node: ast.Name, scope: NameScope, frame: _CallFrame | None) -> Namespace | None:
        home = next((outer for outer in scope.outward() if node.id in outer.names), None)
        bindings = self.package.lookup(node.id, scope)
        parameter = _parameter(home, node.id)
        if parameter is None:
            return _common_answer(self._bound(binding, frame) for binding in bindings)
        again = [
            binding
            for binding in bindings
            if isinstance(binding, ExpressionBinding)
            and not binding.instance
            and binding.node is not parameter.default
        ]
        passed = self._given(parameter, frame)
        return _common_answer([passed, *(self._bound(binding, frame) for binding in again)])

    def _given(self, parameter: _Parameter, frame: _CallFrame | None) -> Namespace | None:
        """What a parameter is: that of the call that is being followed, else those of all calls."""
        followed = frame
        while followed is not None and followed.function.node is not parameter.function.node:
            followed = followed.outer
        if followed is not None:
            return self._argument(parameter, followed.call, followed.scope, followed.outer)
        calls = self.package.callers(parameter.function)
        return _answer_for_all(
            self._argument(parameter, call, scope, None) for call, scope in calls
        )

    def _argument(
        self, parameter: _Parameter, call: ast.Call, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        for keyword in call.keywords:
            if keyword.arg == parameter.name:
                return self._answer(keyword.value, scope, frame)
        # True when the first parameter of a method is not among the arguments.
        if id(call) not in self._are_bound:
            meanings = self.package.denote(call.func, scope)
            is_method = isinstance(call.func, ast.Attribute)
            self._are_bound[id(call)] = is_method or any(map(self.package.is_class, meanings))
        at = parameter.position(is_bound=self._are_bound[id(call)])
        if at is not None and at < 0:
            return "unknown"  # the object whose method is called
        before = call.args[: at + 1] if at is not None else []
        if any(isinstance(argument, ast.Starred) for argument in before):
            return "unknown"
        if at is not None and at < len(call.args):
            return self._answer(call.args[at], scope, frame)
        if parameter.default is None or any(keyword.arg is None for keyword in call.keywords):
            return "unknown"
        return self._answer(parameter.default, parameter.function.scope, frame)

    def _attribute(
        self, node: ast.Attribute, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        """Of a class of the package: what it is bound to there; else as the object."""
        for base in self.package.denote(node.value, scope):
            if self.package.is_class(base):
                bindings = self.package.class_scope(base).names.get(node.attr, [])
                return _common_answer(self._bound(binding, frame) for binding in bindings)
        return "own" if self._answer(node.value, scope, frame) == "own" else "unknown"

    def _bound(self, binding: Binding, frame: _CallFrame | None) -> Namespace | None:
        if isinstance(binding, ExpressionBinding) and not binding.instance:
            return self._answer(binding.node, binding.scope, frame)
        if isinstance(binding, InternalImport):
            return self._of_module(binding, frame)
        return "unknown"

    def _of_module(self, origin: InternalImport, frame: _CallFrame | None) -> Namespace | None:
        """What a module of the package binds a name to; modules may take it from each other."""
        key = (origin, id(frame))
        if self._known.leads_back(key):
            return None

        def found() -> Namespace | None:
            return _common_answer(
                self._bound(other, frame) for other in self.package.bindings_of(origin)
            )

        return self._known.get(key, key, frame, found, lasts=frame is None)

    def _call(self, node: ast.Call, scope: NameScope, frame: _CallFrame | None) -> Namespace | None:
        match node.func:
            case ast.Attribute(value=ast.Constant(value=str(text)), attr="format"):
                return self._start(_formatted(text, node), scope, frame)
            case ast.Attribute(value=ast.Constant(value=str()), attr="join"):
                first = _first_element(node.args[0]) if node.args else None
                return self._start(first, scope, frame)
        meanings = self.package.denote(node.func, scope)
        return _common_answer(self._called(meaning, node, scope, frame) for meaning in meanings)

    def _called(
        self, meaning: str, node: ast.Call, scope: NameScope, frame: _CallFrame | None
    ) -> Namespace | None:
        if meaning in PREFIX_FUNCTIONS:
            return "own"
        if (function := self.package.function(meaning)) is not None:
            return self._returned(function, node, scope, frame)
        if meaning in ("str", "getattr") and node.args:
            kept = self._answer(node.args[0], scope, frame)
            return kept if meaning == "str" or kept == "own" else "unknown"
        if isinstance(node.func, ast.Attribute) and node.func.attr in _KEEP_START:
            return self._answer(node.func.value, scope, frame)
        return "unknown"

    def _returned(
        self,
        function: DefinitionBinding,
        call: ast.Call,
        scope: NameScope,
        outer: _CallFrame | None,
    ) -> Namespace | None:
        depth = outer.depth + 1 if outer else 1
        if depth > _MAX_CALL_DEPTH or not function.returns:
            return "unknown"
        new_frame = _CallFrame(function, call, scope, outer, depth)
        frame = self._frames.setdefault((id(function.node), id(call), id(outer)), new_frame)
        return _common_answer(
            self._answer(value, function.body, frame) for value in function.returns
        )


@dataclass(frozen=True)
class _Parameter:
    """One parameter of a function of the package."""

    function: DefinitionBinding
    name: str
    place: int | None
    """Among those that take positional arguments."""
    default: ast.expr | None

    def position(self, *, is_bound: bool) -> int | None:
        """Which positional argument it takes, in a call of a method or of a plain function."""
        decorators = getattr(self.function.node, "decorator_list", ())
        is_static = any(getattr(node, "id", "") == "staticmethod" for node in decorators)
        is_method = self.function.scope.is_class and not is_static
        if self.place is None or not (is_method and is_bound):
            return self.place
        return self.place - 1


def _parameter(home: NameScope | None, name: str) -> _Parameter | None:
    """The parameter of that name, where it is one of the function whose body the scope is."""
    function = home.function if home else None
    if function is None or isinstance(function.node, ast.ClassDef):
        return None
    args = function.node.args
    positional = [*args.posonlyargs, *args.args]
    defaults: dict[ast.arg, ast.expr] = dict(
        zip(reversed(positional), reversed(args.defaults), strict=False)
    )
    defaults |= {a: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d}
    for place, arg in enumerate(positional):
        if arg.arg == name:
            return _Parameter(function, name, place, defaults.get(arg))
    for arg in args.kwonlyargs:
        if arg.arg == name:
            return _Parameter(function, name, None, defaults.get(arg))
    return None


def _common_answer(answers: Iterable[Namespace | None]) -> Namespace | None:
    """Of values of which one is there, and nobody can tell which: what is true of all of them."""
    common: Namespace | None = None
    has_answers = False
    for answer in answers:
        has_answers = True
        if answer == "unknown" or (answer and common not in (None, answer)):
            return "unknown"  # whatever the others are
        common = answer or common
    return common if has_answers else "unknown"


def _answer_for_all(answers: Iterable[Namespace | None]) -> Namespace | None:
    """Of values that are all there: another namespace is one too many."""
    answer_list = list(answers)
    return "other" if "other" in answer_list else _common_answer(answer_list)


def _start_of(node: ast.expr) -> ast.expr | None:
    """The part that a text begins with; None where the source does not show one."""
    match node:
        case ast.NamedExpr(value=part) | ast.FormattedValue(value=part):
            return part
        case ast.JoinedStr(values=parts):
            return next((part for part in parts if not _is_empty(part)), None)
        case ast.Subscript(value=part) if _starts_at_0(node):
            return part
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return right if _is_empty(left) else left
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            return _interpolated(text, right)
    return None


def _formatted(text: str, call: ast.Call) -> ast.expr | None:
    """What `text.format(...)` begins with."""
    field = _FIRST_FIELD.match(text)
    if field is None or field["brace"] is None:
        return _literal_start(text, "{")
    name = field["brace"] or "0"
    if name.isdigit():
        return call.args[int(name)] if int(name) < len(call.args) else None
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _interpolated(text: str, values: ast.expr) -> ast.expr | None:
    """What `text % given` begins with."""
    field = _FIRST_FIELD.match(text)
    if field is None or field["brace"] is not None:
        return _literal_start(text, "%")
    if field["percent"] is None:
        return _first_element(values) or values
    return ast.Subscript(values, ast.Constant(field["percent"]), ast.Load())


def _literal_start(text: str, mark: str) -> ast.expr | None:
    """What stands before the first field; None where nothing does."""
    before = text.partition(mark)[0]
    return ast.Constant(before) if before else None


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def _starts_at_0(node: ast.Subscript) -> bool:
    match node.slice:
        case ast.Constant(value=0) | ast.Slice(lower=None | ast.Constant(value=0), step=None):
            return True
    return False


def _first_element(node: ast.expr) -> ast.expr | None:
    return node.elts[0] if isinstance(node, ast.Tuple | ast.List) and node.elts else None


def _is_own_meaning(meaning: str) -> bool:
    return meaning in (CUSTOM_OP, NAMESPACE) or meaning.startswith(f"{NAMESPACE}.")


def _is_of_another(meaning: str) -> bool:
    """True for an op of Torch's namespaces, as `torch.ops.aten.relu`."""
    namespace = meaning.removeprefix("torch.ops.").partition(".")[0]
    is_op = meaning.startswith("torch.ops.") and not namespace.startswith("_")
    return is_op and namespace not in (ANY_ATTRIBUTE, "load_library") and UNKNOWN not in meaning
