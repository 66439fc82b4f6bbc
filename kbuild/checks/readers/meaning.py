"""What an expression of a kernel's Python files denotes, as far as the source alone says.

A meaning is a dotted name (`torch.library.custom_op`), or one of the marks below. An expression
may have several: a name bound twice keeps both. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path as FilePath

from kbuild.checks.readers.bindings import names_of
from kbuild.checks.readers.contents import Contents, Found
from kbuild.checks.readers.scopes import (
    Binding,
    Comprehension,
    Defined,
    Element,
    External,
    Internal,
    Names,
    Path,
    Scope,
    Value,
)
from kbuild.checks.readers.source import parse_source

OPS_MODULE: Path = ("_ops",)
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
SOME = "*"
"""Stands for an attribute whose name the source does not say."""

LIBRARY_MAKERS = ("torch.library.Library", "torch.library._scoped_library")
OP_MAKERS = ("custom_op", "triton_op")
TORCH_MODULES = (
    "torch.library",
    "torch._library",
    "torch._library.custom_ops",
    "torch._library.triton",
    "torch._custom_ops",
    "torch._custom_op.impl",
    "torch._higher_order_ops.effects",
)
Meanings = frozenset[str]
NOTHING: Meanings = frozenset()


class Package:
    """The Python files of one kernel."""

    def __init__(self, root: FilePath, own: str) -> None:
        self.root = root
        self.own = own
        self.modules: dict[Path, Names] = {}
        self.files: dict[Path, str] = {}
        self.unread: dict[str, str] = {}
        """Files that could not be understood, and why."""
        for file in sorted(root.rglob("*.py")):
            self._read(file)
        self._defined: dict[str, Defined] = {}
        self.contents = Contents(self)

    def _read(self, file: FilePath) -> None:
        relative = file.relative_to(self.root)
        parts = relative.with_suffix("").parts
        module = parts[:-1] if parts[-1] == "__init__" else parts
        try:
            self.modules[module] = names_of(parse_source(file.read_bytes()), parts[:-1], self.own)
        except (SyntaxError, ValueError):
            self.unread[relative.as_posix()] = "does not parse"
        except RecursionError:
            self.unread[relative.as_posix()] = "is nested too deeply to be read"
        self.files[module] = relative.as_posix()

    def denote(self, node: ast.AST, scope: Scope) -> Meanings:
        """Everything that the expression may be."""
        return _Reading(self).denote(node, scope)

    def bindings_of(self, origin: Internal) -> list[Binding]:
        """What a name of a module of the package is bound to; stars are followed."""
        module = self.modules.get(origin.module)
        if module is None:
            return []
        found = module.scope.names.get(origin.name)
        return found or [_through(star, origin.name) for star in module.scope.stars]

    def lookup(self, name: str, scope: Scope) -> list[Binding]:
        """The bindings of a name as seen from a scope; empty for builtins and unknown names."""
        for candidate in scope.outward():
            if found := candidate.names.get(name):
                return found
        return [_through(star, name) for star in scope.module.stars]

    def body_of(self, node: Comprehension) -> Scope:
        """The scope inside a comprehension of the package."""
        return next(m.bodies[id(node)] for m in self.modules.values() if id(node) in m.bodies)

    def class_scope(self, mark: str) -> Scope:
        """The body behind a class's mark."""
        return self._defined[mark].body

    def is_class(self, mark: str) -> bool:
        """True for a mark of a class."""
        return mark.startswith(_CLASS)

    def function(self, mark: str) -> Defined | None:
        """The function behind a mark; None when it is a mark of something else."""
        return self._defined.get(mark) if mark.startswith(_FUNCTION) else None

    def mark_class(self, defined: Defined) -> str:
        """A mark by which a class's attributes can be found again."""
        return self._mark(_CLASS, defined)

    def mark_function(self, defined: Defined) -> str:
        """A mark by which what a function returns can be found again."""
        return self._mark(_FUNCTION, defined)

    def _mark(self, kind: str, defined: Defined) -> str:
        mark = f"{kind}{id(defined.node)}"
        self._defined[mark] = defined
        return mark


def _through(star: External | Internal, name: str) -> External | Internal:
    if isinstance(star, External):
        return External(star.dotted.removesuffix("*") + name)
    return Internal(star.module, name)


class _Reading:
    """One question; remembers what it is about to answer, so that cycles end."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.open: set[tuple[int, int] | Internal] = set()
        self._by_kind: Mapping[type, Callable[..., Iterable[str]]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.IfExp: lambda n, s: self.denote(n.body, s) | self.denote(n.orelse, s),
            ast.BoolOp: lambda n, s: (m for v in n.values for m in self.denote(v, s)),
            ast.NamedExpr: lambda n, s: self.denote(n.value, s),
            ast.Subscript: self._subscript,
            Element: lambda n, s: self._any(package.contents.elements(n.of, s)),
        }

    def denote(self, node: ast.AST, scope: Scope) -> Meanings:
        key = (id(node), id(scope))
        if key in self.open:
            return NOTHING
        self.open.add(key)
        found = frozenset(self._by_kind.get(type(node), _nothing)(node, scope))
        self.open.discard(key)
        return found or frozenset((UNKNOWN,))

    def _name(self, node: ast.Name, scope: Scope) -> Iterator[str]:
        bindings = self.package.lookup(node.id, scope)
        if not bindings:
            yield node.id
        for binding in bindings:
            yield from self._binding(binding)

    def _binding(self, binding: Binding) -> Iterable[str]:
        if isinstance(binding, External):
            return (binding.dotted,)
        if isinstance(binding, Internal):
            return self._internal(binding)
        if isinstance(binding, Value):
            found = self.denote(binding.node, binding.scope)
            if not binding.instance:
                return found
            return (LIBRARY if found & set(LIBRARY_MAKERS) else UNKNOWN,)
        return self._defined(binding) if isinstance(binding, Defined) else (UNKNOWN,)

    def _defined(self, binding: Defined) -> Iterator[str]:
        if isinstance(binding.node, ast.ClassDef):
            yield self.package.mark_class(binding)
            for base in binding.node.bases:
                yield from self.denote(base, binding.scope) & set(LIBRARY_MAKERS)
        decorators = binding.node.decorator_list
        made = any(CUSTOM_OP in self.denote(node, binding.scope) for node in decorators)
        if made:
            yield CUSTOM_OP
        elif not isinstance(binding.node, ast.ClassDef):
            yield self.package.mark_function(binding)

    def _internal(self, origin: Internal) -> Iterator[str]:
        module = (*origin.module, origin.name) if origin.name else origin.module
        if module == OPS_MODULE:
            yield OPS
        elif origin.module == OPS_MODULE:
            yield f"{OPS}.{origin.name}"
        elif origin not in self.open:
            self.open.add(origin)
            for binding in self.package.bindings_of(origin):
                yield from self._binding(binding)
            self.open.discard(origin)
            if module in self.package.modules or not module:
                yield _MODULE + ".".join(module)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Iterator[str]:
        for base in self.denote(node.value, scope):
            yield from self._member(base, node.attr)

    def _member(self, base: str, name: str) -> Iterator[str]:
        if base.startswith(_MODULE):
            dotted = base.removeprefix(_MODULE)
            yield from self._internal(Internal(tuple(dotted.split(".")) if dotted else (), name))
        elif base.startswith(_CLASS):
            for binding in self.package.class_scope(base).names.get(name, ()):
                yield from self._binding(binding)
        else:
            yield f"{base}.{name}"

    def _any(self, found: Found | None) -> Iterator[str]:
        for node, scope in found or ():
            yield from self.denote(node, scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Iterator[str]:
        yield from self._any(self.package.contents.chosen(node, scope))
        for base in self.denote(node.value, scope):
            for key in self.package.contents.texts(node.slice, scope) or ():
                if base == "sys.modules":
                    yield key
                elif base.endswith(".__dict__"):
                    yield from self._member(base.removesuffix(".__dict__"), key)

    def _call(self, node: ast.Call, scope: Scope) -> Iterator[str]:
        for function in self.denote(node.func, scope):
            if function in LIBRARY_MAKERS:
                yield LIBRARY
            elif function == CUSTOM_OP or is_registrar(function, OP_MAKERS):
                yield CUSTOM_OP
            elif function in ("functools.partial", "importlib.import_module", "__import__"):
                yield from self._passed_on(function, node, scope)
            elif function == "getattr" and len(node.args) > 1:
                yield from self._getattr(node, scope)
            elif function == "vars" and node.args:
                yield from (f"{base}.__dict__" for base in self.denote(node.args[0], scope))
            elif defined := self.package.function(function):
                for value in defined.returns:
                    yield from self.denote(value, defined.body)

    def _passed_on(self, function: str, node: ast.Call, scope: Scope) -> Iterator[str]:
        first = node.args[0] if node.args else None
        if function == "functools.partial" and first is not None and len(node.args) == 1:
            yield from self.denote(first, scope)
        elif isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield from self._module_named(first.value, scope.module.package)

    def _module_named(self, text: str, package: Path) -> Iterator[str]:
        """What `import_module(text, __package__)` is."""
        bare = text.lstrip(".")
        if bare == text:
            yield text
        else:
            *between, last = bare.split(".")
            kept = len(package) - (len(text) - len(bare)) + 1
            yield from self._internal(Internal((*package[: max(kept, 0)], *between), last))

    def _getattr(self, node: ast.Call, scope: Scope) -> Iterator[str]:
        names = self.package.contents.texts(node.args[1], scope)
        for base in self.denote(node.args[0], scope):
            if names is not None:
                yield from (meaning for name in names for meaning in self._member(base, name))
            elif base.startswith(NAMESPACE):
                yield base
            else:
                yield f"{base}.{SOME}"


def _nothing(_node: ast.AST, _scope: Scope) -> Meanings:
    return NOTHING


def is_registrar(meaning: str, names: Iterable[str]) -> bool:
    """True for one of Torch's functions of these names, wherever Torch keeps it."""
    module, _, name = meaning.rpartition(".")
    return name in names and module in TORCH_MODULES
