"""Resolves expressions of a kernel's Python files to dotted names, without running anything."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath

from kbuild.errors import Severity
from kbuild.progress import report_current_work
from kbuild.sources.binder import bind_names
from kbuild.sources.containers import ContainerContents, ScopedExpressions
from kbuild.sources.python_syntax import parse_source
from kbuild.sources.scopes import (
    OPS_MODULE,
    AnyOf,
    Binding,
    Comprehension,
    DefinitionBinding,
    Element,
    ExpressionBinding,
    ExternalImport,
    InternalImport,
    ModuleNames,
    ModulePath,
    NameScope,
    expression_key,
)

OPS = "@_ops"
NAMESPACE = f"{OPS}.ops"
LIBRARY = "@library"
"""An instance of `torch.library.Library`."""
CUSTOM_OP = "@op"
"""What `custom_op` and `triton_op` return, called or not yet called."""
UNKNOWN = "@unknown"
"""Something that the source does not say: a parameter, a literal, a call's result."""
_MODULE = "@module:"
_CLASS = "@class:"
_FUNCTION = f"{UNKNOWN}:"
ANY_ATTRIBUTE = "*"
"""Stands for an attribute whose name the source does not say."""

LIBRARY_MAKERS = ("torch.library.Library", "torch.library._scoped_library")
OP_MAKERS = ("custom_op", "triton_op")
TORCH_MODULES = (
    "torch.library", "torch._library", "torch._library.custom_ops", "torch._library.triton",
    "torch._custom_ops", "torch._custom_op.impl", "torch._higher_order_ops.effects",
)  # fmt: skip
_SAME_FUNCTION = ("functools.partial", "functools.cache", "functools.lru_cache")
"""Called with a function alone, they give one that does the same."""
_MOST_ROUNDS = 20
_MOST_PARTS, _MOST_MEANINGS = 12, 64
"""Of a dotted name, and of one expression: what has more is not told apart any further."""
Meanings = frozenset[str]
_Key = tuple[object, int] | InternalImport
NOTHING: Meanings = frozenset()


class KernelPackage:
    """The Python files of one kernel."""

    def __init__(self, root: FilePath, own: str) -> None:
        self.root = root
        self.own = own
        self.modules: dict[ModulePath, ModuleNames] = {}
        self.files: dict[ModulePath, str] = {}
        self.unread: dict[str, tuple[str, Severity]] = {}
        """Files that could not be understood: why, and how bad that is."""
        for file in filter(FilePath.is_file, sorted(root.rglob("*.py"))):
            self._read(file)
        self._defined: dict[str, DefinitionBinding] = {}
        self._callers: dict[int, list[tuple[ast.Call, NameScope]]] | None = None
        self.contents = ContainerContents(self)
        self._reading = _MeaningResolver(self)

    def _read(self, file: FilePath) -> None:
        relative = file.relative_to(self.root)
        report_current_work(f"reading {relative}")
        parts = relative.with_suffix("").parts
        module = parts[:-1] if parts[-1] == "__init__" else parts
        try:
            self.modules[module] = bind_names(parse_source(file.read_bytes()), parts[:-1], self.own)
        except SyntaxError:
            self.unread[relative.as_posix()] = "does not parse", "error"
        except RecursionError:
            self.unread[relative.as_posix()] = "is nested too deeply to be read", "warning"
        self.files[module] = relative.as_posix()

    def denote(self, node: ast.AST, scope: NameScope) -> Meanings:
        """Everything that the expression may be."""
        return self._reading.answer(node, scope)

    def bindings_of(self, origin: InternalImport) -> list[Binding]:
        """What a name of a module of the package is bound to; stars are followed."""
        module = self.modules.get(origin.module)
        if module is None:
            return []
        bindings = module.scope.names.get(origin.name)
        return bindings or [_through_star(star, origin.name) for star in module.scope.stars]

    def lookup(self, name: str, scope: NameScope) -> list[Binding]:
        """The bindings of a name as seen from a scope; empty for builtins and unknown names."""
        for candidate in scope.outward():
            if bindings := candidate.names.get(name):
                return bindings
        return [_through_star(star, name) for star in scope.module.stars]

    def body_of(self, node: Comprehension) -> NameScope:
        """The scope inside a comprehension of the package."""
        return next(m.bodies[id(node)] for m in self.modules.values() if id(node) in m.bodies)

    def lambda_of(self, node: ast.Lambda) -> DefinitionBinding | None:
        """A lambda of the package; None for one that stands in no source."""
        lambdas = (module.lambdas.get(id(node)) for module in self.modules.values())
        return next(filter(None, lambdas), None)

    def callers(self, function: DefinitionBinding) -> list[tuple[ast.Call, NameScope]]:
        """The calls of a function of the package that the source shows.

        A call of a class is one of its `__init__`.
        """
        if self._callers is None:
            self._callers = {}
            for module in self.modules.values():
                for call, scope in module.calls:
                    for defined in self.called(call, scope):
                        self._callers.setdefault(id(defined.node), []).append((call, scope))
        return self._callers.get(id(function.node), [])

    def called(self, call: ast.Call, scope: NameScope) -> Iterator[DefinitionBinding]:
        """The functions of the package that a call may call."""
        for mark in self.denote(call.func, scope):
            if self.is_class(mark):
                bindings = self.class_scope(mark).names.get("__init__", ())
                yield from (
                    defined for defined in bindings if isinstance(defined, DefinitionBinding)
                )
            elif (function := self.function(mark)) is not None:
                yield function

    def class_scope(self, mark: str) -> NameScope:
        """The body behind a class's mark."""
        return self._defined[mark].body

    def is_class(self, mark: str) -> bool:
        """True for a mark of a class, not for what hangs on one: its `__dict__`."""
        return mark.startswith(_CLASS) and mark in self._defined

    def function(self, mark: str) -> DefinitionBinding | None:
        """The function behind a mark; None when it is a mark of something else."""
        return self._defined.get(mark) if mark.startswith(_FUNCTION) else None

    def mark_class(self, defined: DefinitionBinding) -> str:
        """A mark by which a class's attributes can be found again."""
        return self._mark(_CLASS, defined)

    def mark_function(self, defined: DefinitionBinding) -> str:
        """A mark by which what a function returns can be found again."""
        return self._mark(_FUNCTION, defined)

    def _mark(self, kind: str, defined: DefinitionBinding) -> str:
        mark = f"{kind}{id(defined.node)}"
        self._defined[mark] = defined
        return mark


def _through_star(
    star: ExternalImport | InternalImport, name: str
) -> ExternalImport | InternalImport:
    if isinstance(star, ExternalImport):
        return ExternalImport(star.dotted.removesuffix("*") + name)
    return InternalImport(star.module, name)


class _MeaningResolver:
    """The answers for one package.

    Names that are bound in terms of each other are read in rounds: each round asks about every
    expression once and takes what the round before it found for those that are being asked about,
    until none finds more. What was found then stays.
    """

    def __init__(self, package: KernelPackage) -> None:
        self.package = package
        self._known: dict[_Key, Meanings] = {}
        self._found: dict[_Key, Meanings] = {}
        """By this question, in this round or an earlier one."""
        self._asked: set[_Key] = set()
        """In this round."""
        self._is_open = False
        """Whether another round may find more."""
        self._alive: list[ast.AST] = []
        """What keys are made of the identities of."""
        self._by_kind: Mapping[type, Callable[..., Iterable[str]]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.IfExp: lambda n, s: self.denote(n.body, s) | self.denote(n.orelse, s),
            ast.BoolOp: lambda n, s: (m for v in n.values for m in self.denote(v, s)),
            ast.NamedExpr: lambda n, s: self.denote(n.value, s),
            ast.Subscript: self._subscript,
            ast.Lambda: self._lambda,
            Element: lambda n, s: self._any(package.contents.elements(n.of, s)),
            AnyOf: lambda n, _: self._any(n.found),
        }

    def answer(self, node: ast.AST, scope: NameScope) -> Meanings:
        if self._asked:  # a part of another question
            return self.denote(node, scope)
        try:
            meanings = NOTHING
            for _ in range(_MOST_ROUNDS):
                self._is_open = False
                self._asked.clear()
                meanings = self.denote(node, scope)
                if not self._is_open:
                    break
            self._known |= self._found
        finally:
            self._asked.clear()
            self._found.clear()
        return meanings

    def denote(self, node: ast.AST, scope: NameScope) -> Meanings:
        ask = self._by_kind.get(type(node))
        if ask is None:
            return frozenset((UNKNOWN,))

        def anything() -> Iterable[str]:
            self._alive.append(node)
            return frozenset(ask(node, scope)) or (UNKNOWN,)

        return self._once(expression_key(node, scope), anything)

    def _once(self, key: _Key, ask: Callable[[], Iterable[str]]) -> Meanings:
        if (known := self._known.get(key)) is not None:
            return known
        before = self._found.get(key)
        if key in self._asked:
            self._is_open = self._is_open or before is None
            return before or NOTHING
        self._asked.add(key)
        meanings = _limited(frozenset(ask()) | (before or NOTHING))
        self._is_open = self._is_open or before not in (None, meanings)
        self._found[key] = meanings
        return meanings

    def _name(self, node: ast.Name, scope: NameScope) -> Iterator[str]:
        bindings = self.package.lookup(node.id, scope)
        if not bindings:
            yield node.id
        for binding in bindings:
            yield from self._binding(binding)

    def _binding(self, binding: Binding) -> Iterable[str]:
        if isinstance(binding, ExternalImport):
            return (binding.dotted,)
        if isinstance(binding, InternalImport):
            return self._internal(binding)
        if isinstance(binding, ExpressionBinding):
            meanings = self.denote(binding.node, binding.scope)
            if not binding.instance:
                return meanings
            return (LIBRARY if meanings & set(LIBRARY_MAKERS) else UNKNOWN,)
        return self._defined(binding) if isinstance(binding, DefinitionBinding) else (UNKNOWN,)

    def _defined(self, binding: DefinitionBinding) -> Iterator[str]:
        if isinstance(binding.node, ast.ClassDef):
            yield self.package.mark_class(binding)
            for base in binding.node.bases:
                yield from self.denote(base, binding.scope) & set(LIBRARY_MAKERS)
        decorators = getattr(binding.node, "decorator_list", ())
        is_custom_op = any(CUSTOM_OP in self.denote(node, binding.scope) for node in decorators)
        if is_custom_op:
            yield CUSTOM_OP
        elif not isinstance(binding.node, ast.ClassDef):
            yield self.package.mark_function(binding)

    def _lambda(self, node: ast.Lambda, _: NameScope) -> Iterator[str]:
        if (defined := self.package.lambda_of(node)) is not None:
            yield self.package.mark_function(defined)

    def _internal(self, origin: InternalImport) -> Iterator[str]:
        module = (*origin.module, origin.name) if origin.name else origin.module
        if module == OPS_MODULE:
            yield OPS
        elif origin.module == OPS_MODULE:
            yield f"{OPS}.{origin.name}"
        else:
            yield from self._once(origin, lambda: self._bound(origin, module))

    def _bound(self, origin: InternalImport, module: ModulePath) -> Iterator[str]:
        for binding in self.package.bindings_of(origin):
            yield from self._binding(binding)
        if module in self.package.modules or not module:
            yield _MODULE + ".".join(module)

    def _attribute(self, node: ast.Attribute, scope: NameScope) -> Iterator[str]:
        for base in self.denote(node.value, scope):
            yield from self._member(base, node.attr)

    def _member(self, base: str, name: str) -> Iterator[str]:
        if base.startswith(_MODULE):
            dotted = base.removeprefix(_MODULE)
            yield from self._internal(
                InternalImport(tuple(dotted.split(".")) if dotted else (), name)
            )
        elif self.package.is_class(base):
            for binding in self.package.class_scope(base).names.get(name, ()):
                yield from self._binding(binding)
        else:
            yield UNKNOWN if base.startswith((f"{UNKNOWN}.", _CLASS)) else f"{base}.{name}"

    def _any(self, expressions: ScopedExpressions | None) -> Iterator[str]:
        for node, scope in expressions or ():
            yield from self.denote(node, scope)

    def _subscript(self, node: ast.Subscript, scope: NameScope) -> Iterator[str]:
        yield from self._any(self.package.contents.chosen(node, scope))
        for base in self.denote(node.value, scope):
            for key in self.package.contents.texts(node.slice, scope) or ():
                if base == "sys.modules":
                    yield key
                elif base.endswith(".__dict__"):
                    yield from self._member(base.removesuffix(".__dict__"), key)

    def _call(self, node: ast.Call, scope: NameScope) -> Iterator[str]:
        for function in self.denote(node.func, scope):
            if function in LIBRARY_MAKERS:
                yield LIBRARY
            elif function == CUSTOM_OP or is_torch_function(function, OP_MAKERS):
                yield CUSTOM_OP
            elif function in (*_SAME_FUNCTION, "importlib.import_module", "__import__"):
                yield from self._passed_on(function, node, scope)
            elif function == "getattr" and len(node.args) > 1:
                yield from self._getattr(node, scope)
            elif function == "vars" and node.args:
                yield from (f"{base}.__dict__" for base in self.denote(node.args[0], scope))
            elif self.package.is_class(function):
                yield function  # which stands for its instances as well
            elif defined := self.package.function(function):
                for value in defined.returns:
                    yield from self.denote(value, defined.body)

    def _passed_on(self, function: str, node: ast.Call, scope: NameScope) -> Iterator[str]:
        first = node.args[0] if node.args else None
        if function in _SAME_FUNCTION and first is not None and len(node.args) == 1:
            yield from self.denote(first, scope)
        elif isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield from self._module_named(first.value, scope.module.package)

    def _module_named(self, text: str, package: ModulePath) -> Iterator[str]:
        """What `import_module(text, __package__)` is."""
        bare = text.lstrip(".")
        if bare == text:
            yield text
        else:
            *between, last = bare.split(".")
            kept = len(package) - (len(text) - len(bare)) + 1
            yield from self._internal(InternalImport((*package[: max(kept, 0)], *between), last))

    def _getattr(self, node: ast.Call, scope: NameScope) -> Iterator[str]:
        names = self.package.contents.texts(node.args[1], scope)
        for base in self.denote(node.args[0], scope):
            if names is not None:
                yield from (meaning for name in names for meaning in self._member(base, name))
            elif base.startswith(NAMESPACE):
                yield base
            elif base.startswith((_CLASS, _MODULE)):
                yield UNKNOWN
            else:
                yield f"{base}.{ANY_ATTRIBUTE}"


def _limited(meanings: Meanings) -> Meanings:
    """Without the names that grow with each round, as `node = node.next` has them."""
    short = frozenset(meaning for meaning in meanings if meaning.count(".") < _MOST_PARTS)
    most = frozenset(sorted(short)[:_MOST_MEANINGS])
    return most if most == meanings else most | {UNKNOWN}


def is_torch_function(meaning: str, names: Iterable[str]) -> bool:
    """True for one of Torch's functions of these names, wherever Torch keeps it."""
    module, _, name = meaning.rpartition(".")
    return name in names and module in TORCH_MODULES
