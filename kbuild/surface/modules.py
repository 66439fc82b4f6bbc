"""The modules of a package, read when they are asked for, and where their names lead."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from errno import ENAMETOOLONG
from pathlib import Path as FilePath

from kbuild.checks.readers.bindings import names_of
from kbuild.checks.readers.scopes import Binding, Defined, External, Internal, Path, Scope, Value
from kbuild.checks.readers.source import parse_source
from kbuild.surface.exports import ALL, is_public, listed_names
from kbuild.surface.model import SurfaceError
from kbuild.surface.signature import decorated


@dataclass(frozen=True)
class Module:
    """A module of the package."""

    path: Path
    tree: ast.Module
    scope: Scope


Target = Module | Defined | Value
"""What a name leads to: a module, a definition, or an expression that says no more."""


class Modules:
    """The modules below one folder."""

    def __init__(self, root: FilePath, own: str) -> None:
        self.root = root
        self.own = own
        self._read: dict[Path, Module | None] = {}
        self._open: set[Binding] = set()

    def module(self, path: Path) -> Module | None:
        """The module, None when the package has none of that name.

        Raises:
            SurfaceError: it does not parse.
        """
        if path not in self._read:
            self._read[path] = self._parsed(path)
        return self._read[path]

    def public_names(self, module: Module) -> tuple[str, ...]:
        """What the module makes public, see `exports`."""
        listed = listed_names(module.tree, lambda node: self._names_behind(node, module))
        return self._unlisted(module) if listed is None else listed

    def follow(self, name: str, scope: Scope) -> Target | None:
        """What a name stands for as seen from a scope; None when that is outside the package."""
        return self._last(self._lookup(name, scope))

    def member(self, module: Module, name: str) -> Target | None:
        """What an attribute of a module stands for."""
        return self._internal(Internal(module.path, name))

    def _parsed(self, path: Path) -> Module | None:
        folder = self.root.joinpath(*path)
        files = [(folder / "__init__.py", path)]
        if path:
            files.append((folder.with_name(f"{path[-1]}.py"), path[:-1]))
        for file, package in files:
            if _is_file(file):
                tree = self._tree(file)
                return Module(path, tree, names_of(tree, package, self.own).scope)
        return None

    def _tree(self, file: FilePath) -> ast.Module:
        name = file.relative_to(self.root).as_posix()
        try:
            return parse_source(file.read_bytes())
        except SyntaxError as error:
            place = f"{name}:{error.lineno}" if error.lineno else name
            message = f"{place}: does not parse: {error.msg}"
            raise SurfaceError(message, hint="correct it first") from error

    def _unlisted(self, module: Module) -> tuple[str, ...]:
        own = [name for name, found in module.scope.names.items() if is_public(name, found[-1])]
        return tuple(dict.fromkeys([*own, *self._starred(module)]))

    def _starred(self, module: Module) -> Iterator[str]:
        for star in module.scope.stars:
            source = self.module(star.module) if isinstance(star, Internal) else None
            if source is not None and source is not module:
                yield from self.public_names(source)

    def _names_behind(self, node: ast.expr, module: Module) -> Iterator[str]:
        """The names in `other.__all__`, or in what `from .other import __all__ as name` brought."""
        if isinstance(node, ast.Attribute) and node.attr == ALL:
            source = self._denoted(node.value, module.scope)
            if isinstance(source, Module) and source is not module:
                yield from self.public_names(source)
        elif isinstance(node, ast.Name):
            for binding in module.scope.names.get(node.id, ()):
                if isinstance(binding, Internal) and binding.name == ALL:
                    origin = self.module(binding.module)
                    yield from self.public_names(origin) if origin else ()

    def _denoted(self, node: ast.expr, scope: Scope) -> Target | None:
        if isinstance(node, ast.Name):
            return self.follow(node.id, scope)
        if isinstance(node, ast.Attribute):
            owner = self._denoted(node.value, scope)
            return self.member(owner, node.attr) if isinstance(owner, Module) else None
        return None

    def _lookup(self, name: str, scope: Scope) -> list[Binding]:
        for candidate in scope.outward():
            if found := candidate.names.get(name):
                return found
        return [
            Internal(star.module, name)
            for star in scope.module.stars
            if isinstance(star, Internal) and name != "*"
        ]

    def _last(self, bindings: Iterable[Binding]) -> Target | None:
        """The last of several bindings that leads to a definition, else to anything at all."""
        found = [target for b in bindings if (target := self._binding(b)) is not None]
        known = [target for target in found if not isinstance(target, Value)]
        return (known or found or [None])[-1]

    def _binding(self, binding: Binding) -> Target | None:
        """What one binding leads to; nothing when it leads back to itself."""
        if binding in self._open or binding is None or isinstance(binding, External):
            return None
        self._open.add(binding)
        try:
            if isinstance(binding, Internal):
                return self._internal(binding)
            if isinstance(binding, Value):
                return self._denoted(binding.node, binding.scope) or binding
            return None if _is_overload(binding) else binding
        finally:
            self._open.discard(binding)

    def _internal(self, origin: Internal) -> Target | None:
        module = self.module(origin.module)
        if module is None or not origin.name:
            return module
        found = self._last(self._lookup(origin.name, module.scope))
        return found or self.module((*origin.module, origin.name))


def _is_file(path: FilePath) -> bool:
    """Names come from the code, so that one may be too long for any file."""
    try:
        return path.is_file()
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            return False
        raise


def _is_overload(found: Defined) -> bool:
    """True for a `typing.overload`: the definition that counts follows."""
    return not isinstance(found.node, ast.Lambda) and decorated(found.node, "overload")
