"""Sources and digests of the code that a kernel function uses, read from the text of the files."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import PurePosixPath
from typing import Any

from kbuild.system.errors import ConfigError, Problem

_DIGITS = 16


def source_digests(texts: Mapping[str, str]) -> SourceDigests:
    """The sources of one section by path in the project, which all its variants share."""
    return _source_digests(tuple(texts.items()))


@lru_cache(maxsize=8)
def _source_digests(texts: tuple[tuple[str, str], ...]) -> SourceDigests:
    return SourceDigests(dict(texts))


class SourceDigests:
    """The sources of one section."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """Take the text of each file, by its path in the project.

        Raises:
            ConfigError: later, when something of a file that is no Python is asked for.
        """
        self._modules = {path: _Module(path, text) for path, text in texts.items()}
        self._known_imports: dict[str, tuple[str, ...]] = {}
        self._known_reached: dict[tuple[str, str], set[tuple[str, str]]] = {}

    @property
    def paths(self) -> tuple[str, ...]:
        """The sources, in their order."""
        return tuple(self._modules)

    def of(self, path: str, function: str) -> str:
        """The digest of a function, decorators included; empty if the file has no such function.

        Comments, docstrings and the place in the file do not count.
        """
        if path not in self._modules or function not in self._modules[path].bindings:
            return ""
        # A set of strings has another order in each process.
        parts = sorted(
            f"{module}:{name}:{self._modules[module].bindings[name]}"
            for module, name in self._reached(path, function)
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_DIGITS]

    def imported(self, path: str) -> tuple[str, ...]:
        """A source and those that are imported with it, in the order of their paths behind it.

        An `__init__.py` is one of them if a name is imported from it that is no module.
        """
        if path not in self._known_imports:
            reached, waiting = set[str](), [path]
            while waiting:
                file = waiting.pop()
                if file not in reached:
                    reached.add(file)
                    waiting += self._direct_imports(file)
            self._known_imports[path] = (path, *sorted(reached - {path}))
        return self._known_imports[path]

    def _direct_imports(self, path: str) -> Iterator[str]:
        """Files that the source imports when it is imported; functions not called do not count."""
        module = self._modules[path]
        executed = [*_executed(module.tree.body)]
        used = {node.id for node in executed if isinstance(node, ast.Name)}
        called = {
            place for name in used & {*module.bindings} for place in self._reached(path, name)
        }
        yield from self._imports_of(path, executed)
        for file, name in sorted(called):
            for statement in self._modules[file].statements[name]:
                yield from self._imports_of(file, ast.walk(statement))

    def _imports_of(self, path: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.Import):
                places = [(0, alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                places = [(node.level, module, alias.name) for alias in node.names]
            else:
                continue
            for level, module, name in places:
                # In `from a import b`, `b` is a module of the package `a`, or a name in `a`.
                file = self._file(path, level, f"{module}.{name}".strip(".")) or (
                    self._file(path, level, module) if name else None
                )
                if file:
                    yield file

    def _reached(self, path: str, function: str) -> set[tuple[str, str]]:
        if (path, function) not in self._known_reached:
            self._known_reached[path, function] = self._reach(path, function)
        return self._known_reached[path, function]

    def _reach(self, path: str, function: str) -> set[tuple[str, str]]:
        reached: set[tuple[str, str]] = set()
        waiting = [(path, function)]
        while waiting:
            place = waiting.pop()
            if place in reached:
                continue
            reached.add(place)
            module = self._modules[place[0]]
            waiting += [(place[0], n) for n in module.used[place[1]] if n in module.bindings]
            target = module.imports.get(place[1])
            file = target and self._file(place[0], *target[:2])
            if file and target and target[2] in self._modules[file].bindings:
                waiting.append((file, target[2]))
        return reached

    def _file(self, path: str, level: int, module: str) -> str | None:
        """The source that a module is, imported in another."""
        folder = PurePosixPath(path)
        for _ in range(level):
            folder = folder.parent
        tail = module.replace(".", "/")
        wanted = str(folder / tail) if level else tail
        ends = [f"{wanted}.py", str(PurePosixPath(wanted) / "__init__.py")]
        if not module and not level:
            return None
        if level:
            return next((end for end in ends if end in self._modules), None)
        # A source's path may begin with folders that are no part of the module's name.
        files = (f for end in ends for f in self._modules if f"/{f}".endswith(f"/{end}"))
        return next((file for file in files if not self._is_inner(file, tail)), None)

    def _is_inner(self, path: str, tail: str) -> bool:
        """True if a source lies in a package around the module that its import names."""
        around = f"/{path}".partition(f"/{tail}")[0].strip("/")
        return bool(around) and f"{around}/__init__.py" in self._modules


class _Module:
    """One source: what its names are bound to, as text without positions."""

    def __init__(self, path: str, text: str) -> None:
        self._path, self._text = path, text

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        try:
            return ast.parse(self._text, self._path)
        except SyntaxError as error:
            problem = Problem(self._path, error.lineno or 0, "", f"is no Python: {error.msg}")
            raise ConfigError([problem]) from error

    @cached_property
    def statements(self) -> dict[str, list[ast.stmt]]:
        """Name -> the statements that bind it."""
        statements: dict[str, list[ast.stmt]] = {}
        for statement in _flat(self.tree.body):
            for name in _bound(statement):
                statements.setdefault(name, []).append(statement)
        return statements

    @cached_property
    def bindings(self) -> dict[str, str]:
        """Name -> the text of the statements that bind it."""
        return {
            name: "".join(_text(_without_docstring(statement)) for statement in statements)
            for name, statements in self.statements.items()
        }

    @cached_property
    def used(self) -> dict[str, set[str]]:
        """The names that each name's statements use."""
        return {
            name: {
                node.id
                for statement in statements
                for node in ast.walk(statement)
                if isinstance(node, ast.Name)
            }
            - {name}
            for name, statements in self.statements.items()
        }

    @cached_property
    def imports(self) -> dict[str, tuple[int, str, str]]:
        """Imported name -> level, module and its name there."""
        return {
            alias.asname or alias.name: (statement.level, statement.module or "", alias.name)
            for statements in self.statements.values()
            for statement in statements
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
        }


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those inside of `if` and `try` as well."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for name in ("body", "orelse", "handlers", "finalbody"):
                for inner in getattr(statement, name, ()):
                    yield from _flat(
                        inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
                    )
        else:
            yield statement


def _executed(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes that run when a module's statements do: no bodies of functions."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
            for expression in (*statement.decorator_list, *defaults):
                yield from ast.walk(expression)
        elif isinstance(statement, ast.ClassDef):
            for expression in (*statement.decorator_list, *statement.bases):
                yield from ast.walk(expression)
            yield from _executed(statement.body)
        elif isinstance(statement, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            inner = [*ast.iter_child_nodes(statement)]
            for node in inner:
                if isinstance(node, ast.ExceptHandler):
                    yield from _executed(node.body)
                elif not isinstance(node, ast.stmt):
                    yield from ast.walk(node)
            yield from _executed(node for node in inner if isinstance(node, ast.stmt))
        else:
            yield from ast.walk(statement)


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _without_docstring(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.FunctionDef) and ast.get_docstring(statement) is not None:
        statement.body = statement.body[1:] or [ast.Pass()]
    return statement


def _text(node: Any) -> str:
    """A syntax tree as text, the same for all releases of Python: `ast.dump` is not."""
    if isinstance(node, ast.AST):
        # Newer releases have more fields, such as `type_params`, which are empty in older code.
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return f"{type(node).__name__}({', '.join(f'{n}={_text(v)}' for n, v in fields)})"
    return f"[{', '.join(map(_text, node))}]" if isinstance(node, list) else repr(node)
