"""A kernel's Python files find each other by relative imports, on every supported Python.

The client imports a kernel under its id and puts nothing on `sys.path`: an absolute import of the
kernel's own package fails, or finds somebody else's. An import that fails whenever the kernel is
loaded is an error. One in a function, in a branch, or in a file that loading the kernel does not
import is a warning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.libraries import metadata_of
from kbuild.sources.python_syntax import (
    MIN_PYTHON_TEXT,
    NewerSyntax,
    When,
    imported_modules,
    newer_syntax,
    parse_source,
    timed_statements,
    without_garbage_collection,
)
from kbuild.system.progress import report_current_work
from kbuild.system.untrusted import reason_of

_SYNTAX_HINT = "correct it; a kernel is written for the Python that kbuild runs on, or older"
GENERATED = "_ops"


@CHECKS.add
class ImportsCheck(Check):
    """Syntax, absolute self-imports, and relative imports that lead nowhere."""

    name = "imports"
    summary = f"Python files parse on Python {MIN_PYTHON_TEXT} and import each other relatively."
    group = "code"

    def run(self, output: Output) -> Iterator[Finding]:
        """Findings of every Python file, in path order."""
        metadata = metadata_of(output)
        own = metadata.python_name if metadata else None
        yield from _findings(output.root, output.python_files(), own)


def check_imports_source(path: Path, name: str, generated: Iterable[str] = ()) -> list[Finding]:
    """Check the Python package in the folder `path`; `name` is the kernel's Python name.

    The same as on a built variant: `_ops.py` at the top, which kbuild writes, counts as there, and
    so do the files in `generated`, relative to the package.
    """
    own = name.replace("-", "_")
    return _findings(path, filter(Path.is_file, sorted(path.rglob("*.py"))), own, generated)


@dataclass(frozen=True)
class _RegisteredName:
    """A name that a file puts into `sys.modules`."""

    line: int
    name: str | None
    """None where the source does not show it."""

    def serves(self, module: str, own: str) -> bool:
        """True when an import of `module` may find what was registered."""
        return self.name in (None, own, module)


@dataclass(frozen=True)
class _ImportsOfFile:
    """The imports of one file; its tree is not kept, as a large package would not fit."""

    imports: tuple[tuple[ast.AST, When], ...] = ()
    newer: tuple[NewerSyntax, ...] = ()
    registered: tuple[_RegisteredName, ...] = ()
    """Names that it puts into `sys.modules`."""
    error: Exception | None = None


def _findings(
    root: Path, files: Iterable[Path], own: str | None, generated: Iterable[str] = ()
) -> list[Finding]:
    read = {}
    with without_garbage_collection():
        for path in files:
            report_current_work(f"imports: {path.relative_to(root)}")
            read[path] = _read(path)
    loaded, there = _loaded(root, read), _Modules(root, generated)
    registered = [name for path in loaded for name in read[path].registered]
    return [
        finding
        for path, file in read.items()
        for finding in (
            *_file_findings(path, there, file, is_loaded=path in loaded),
            *_absolute(path, there, own, file, registered, is_loaded=path in loaded),
        )
    ]


def _read(path: Path) -> _ImportsOfFile:
    source = path.read_bytes()
    try:
        tree = parse_source(source)
        imports = tuple(
            (node, when)
            for node, when in timed_statements(tree, source)
            if isinstance(node, ast.Import | ast.ImportFrom) or any(imported_modules(node))
        )
        # Nothing is registered without this word, so most trees are not walked a second time.
        registered = tuple(_registered_names(tree)) if b"modules" in source else ()
        return _ImportsOfFile(imports, tuple(newer_syntax(source, tree)), registered)
    except (SyntaxError, RecursionError) as error:
        return _ImportsOfFile(error=error)


def _registered_names(tree: ast.AST) -> Iterator[_RegisteredName]:
    """`sys.modules["relu"] = ...`, `sys.modules.setdefault("relu", ...)` and the like."""
    keys: list[ast.expr | None]
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                stores = [t for t in targets if isinstance(t, ast.Subscript)]
                keys = [store.slice for store in stores if _is_sys_modules(store.value)]
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=[first, *_]) if (
                method in ("setdefault", "update", "__setitem__") and _is_sys_modules(value)
            ):
                keys = [*(first.keys if isinstance(first, ast.Dict) else [first])]
            case ast.AugAssign(target=target) if _is_sys_modules(target):
                keys = [None]
            case _:
                continue
        for key in keys:
            # Under `__name__`, the kernel's id, it is there anyway.
            if not (isinstance(key, ast.Name) and key.id == "__name__"):
                text = key.value if isinstance(key, ast.Constant) else None
                yield _RegisteredName(node.lineno, text if isinstance(text, str) else None)


def _is_sys_modules(node: ast.expr) -> bool:
    return getattr(node, "attr", "") == "modules" or getattr(node, "id", "") == "modules"


class _Modules:
    """The modules of a package; each folder is listed once."""

    def __init__(self, root: Path, generated: Iterable[str] = ()) -> None:
        self.root = root
        self._generated = {root / GENERATED}
        for file in generated:
            path = root / file
            self._generated |= {path.with_suffix(""), *path.parents}
        self._names: dict[Path, set[str]] = {}

    def has(self, module: Path) -> bool:
        """A package, a Python file, an extension of that name, or the generated `_ops`."""
        if module in self._generated:
            return True
        if module.parent not in self._names:
            self._names[module.parent] = {*_modules_in(module.parent)}
        return module.name in self._names[module.parent]


def _modules_in(folder: Path) -> Iterator[str]:
    """Names of folders, and those of files up to any of their dots."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            yield entry.name
        parts = entry.name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts)))


def _loaded(root: Path, read: Mapping[Path, _ImportsOfFile]) -> set[Path]:
    """The files that are imported whenever the package is, as far as relative imports say."""
    paths: set[Path] = set()
    waiting = [root / "__init__.py"]
    while waiting:
        path = waiting.pop()
        if path in paths or path not in read:
            continue
        paths.add(path)
        for node, when in read[path].imports:
            if when == "load" and isinstance(node, ast.ImportFrom) and node.level:
                waiting.extend(_imported_files(node, path, root))
    return paths


def _imported_files(node: ast.ImportFrom, path: Path, root: Path) -> Iterator[Path]:
    """The files that a relative import may lead to, the packages on the way included."""
    folder = _folder_of(node, path)
    if folder != root and root not in folder.parents:
        return
    parts = node.module.split(".") if node.module else []
    for count in range(len(parts) + 1):
        yield folder.joinpath(*parts[:count], "__init__.py")
    target = folder.joinpath(*parts)
    if parts:
        yield target.with_name(f"{target.name}.py")
    # What is imported by name may be a module of its own.
    for alias in node.names:
        yield from (target / f"{alias.name}.py", target / alias.name / "__init__.py")


def _folder_of(node: ast.ImportFrom, path: Path) -> Path:
    """The folder that the dots of a relative import lead to."""
    folder = path.parent
    for _ in range(node.level - 1):
        folder = folder.parent
    return folder


def _file_findings(
    path: Path, there: _Modules, file: _ImportsOfFile, *, is_loaded: bool
) -> Iterator[Finding]:
    where = path.relative_to(there.root).as_posix()
    if file.error is not None:
        yield _unparsed(where, file.error, "error" if is_loaded else "warning")
    for line, used, remedy in file.newer:
        what = f"needs a newer Python than {MIN_PYTHON_TEXT}: {used}"
        yield Finding("imports", "warning", f"{where}:{line}", what, remedy)
    for node, when in file.imports:
        if when in ("load", "later"):
            severity = _severity(when, is_loaded=is_loaded)
            yield from _relative(node, where, path, there, severity)


def _severity(when: When, *, is_loaded: bool) -> Severity:
    return "error" if is_loaded and when == "load" else "warning"


def _unparsed(where: str, error: Exception, severity: Severity) -> Finding:
    line = getattr(error, "lineno", None)
    reason = getattr(error, "msg", None) or reason_of(error)
    place = f"{where}:{line}" if line else where
    return Finding("imports", severity, place, f"does not parse: {reason}", _SYNTAX_HINT)


def _absolute(
    path: Path,
    there: _Modules,
    own: str | None,
    file: _ImportsOfFile,
    registered: Iterable[_RegisteredName],
    *,
    is_loaded: bool,
) -> Iterator[Finding]:
    """Imports of the own package by its name, which `registered` does not make importable."""
    where = path.relative_to(there.root).as_posix()
    for node, when in file.imports:
        line = getattr(node, "lineno", 0)
        for module in imported_modules(node) if own is not None and when != "never" else ():
            if own is None or module.partition(".")[0] != own:
                continue
            # A file's own statements run in their order; other files may run at any time.
            before = (n for n in registered if n not in file.registered or n.line < line)
            usable = before if when == "load" else registered
            if any(name.serves(module, own) for name in usable):
                continue
            hint = f"import relatively: `from .{module[len(own) + 1 :]} import ...`"
            what = f"imports its own package by name (`{module}`), which users do not have"
            severity = _severity(when, is_loaded=is_loaded)
            yield Finding("imports", severity, f"{where}:{line}", what, hint)


def _relative(
    node: ast.AST, where: str, path: Path, there: _Modules, severity: Severity
) -> Iterator[Finding]:
    if not isinstance(node, ast.ImportFrom) or not node.level:
        return
    written = "." * node.level + (node.module or "")
    folder = _folder_of(node, path)
    if folder != there.root and there.root not in folder.parents:
        what = f"`{written}` leads out of the kernel's package"
        yield Finding("imports", severity, f"{where}:{node.lineno}", what, "use fewer dots")
    elif node.module and not there.has(folder.joinpath(*node.module.split("."))):
        what = f"`{written}` is not in this variant"
        hint = "ship the file, or catch ImportError if it is optional"
        yield Finding("imports", severity, f"{where}:{node.lineno}", what, hint)
