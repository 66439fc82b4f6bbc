"""Python sources as syntax trees: parsing, imports and when they run, and newer syntax.

Newer syntax is what the oldest supported Python does not have.
"""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from kbuild.system.untrusted import reason_of

T = TypeVar("T")
_MAX_CACHED = 32
"""Answers of one function that are kept."""


def parse_source(
    source: bytes | str, *, feature_version: tuple[int, int] | None = None
) -> ast.Module:
    """The tree; warnings about the source (bad escapes) are its author's business, not ours.

    Raises:
        SyntaxError: not Python, newer than `feature_version`, or nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, feature_version=feature_version)
    except (ValueError, RecursionError, MemoryError) as error:  # NULs, and what the parser gives up
        raise SyntaxError(reason_of(error)) from error


def cached_by_content(ask: Callable[[Path, str], list[T]]) -> Callable[[Path, str], list[T]]:
    """Ask about a package once for each content of its Python files in this process.

    A package is looked at in the project and again in each variant that is built from it. The
    answer must depend on the Python files below the folder alone, on their paths relative to it,
    on the name, and not on `_ops.py` at the top, which is generated.
    """
    known: dict[tuple[str, bytes], list[T]] = {}
    lock = threading.Lock()

    @functools.wraps(ask)
    def asked(path: Path, name: str) -> list[T]:
        try:
            key = (name, _package_digest(path))
        except OSError:
            return ask(path, name)  # it says which file cannot be read
        with lock:
            answer = known.get(key)
        if answer is None:
            # Not under the lock, so that packages are read side by side; one may be read twice.
            answer = ask(path, name)
            with lock:
                while len(known) >= _MAX_CACHED:
                    del known[next(iter(known))]
                known[key] = answer
        return [*answer]

    return asked


def _package_digest(package: Path) -> bytes:
    hasher = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        if file.is_file() and file != package / "_ops.py":
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            hasher.update(f"{file.relative_to(package).as_posix()}\0{digest}\0".encode())
    return hasher.digest()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """While trees of many files are made, nobody looks for garbage among them.

    They have no cycles, and looking through all of them again and again takes longer than parsing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


When = Literal["load", "later", "optional", "never"]
"""`load`: whenever the file is imported; `later`: in a function, a branch or a loop, so perhaps
never; `optional`: its failure is caught; `never`: only type checkers see it."""
_IMPORTERS = ("import_module", "__import__")
_IMPORTING = tuple(name.encode() for name in _IMPORTERS)
_PARTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_BLOCKS = (
    *(ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor),
    *(ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.Match, ast.match_case),
    *(ast.ExceptHandler, getattr(ast, "TryStar", ast.Try)),
)
"""Nodes that statements are parts of."""


def timed_statements(tree: ast.AST, source: bytes | None = None) -> Iterator[tuple[ast.AST, When]]:
    """Every statement, and when it is carried out; also every expression, as a rule.

    Args:
        tree: a file, or a part of it.
        source: the file. Expressions are left out where it shows that none of them imports: they
            are nine nodes in ten.
    """
    is_shallow = source is not None and not any(word in source for word in _IMPORTING)
    waiting: list[tuple[ast.AST, When]] = [(tree, "load")]
    while waiting:
        node, when = waiting.pop()
        yield node, when
        if not is_shallow:
            # Reversed, because the stack gives the last one first.
            waiting.extend(reversed(list(_children(node, when))))
        elif isinstance(node, _BLOCKS):
            children = [child for child in _children(node, when) if isinstance(child[0], _PARTS)]
            waiting.extend(reversed(children))


def imported_modules(node: ast.AST) -> Iterator[str]:
    """The modules that a node imports by their full names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        yield node.module
    elif isinstance(node, ast.Call) and _called_name(node) in _IMPORTERS:
        for first in node.args[:1]:
            yield (
                first.value
                if isinstance(first, ast.Constant) and isinstance(first.value, str)
                else ""
            )


def is_type_checking(node: ast.If) -> bool:
    """True for `if TYPE_CHECKING:`."""
    test = node.test
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _children(node: ast.AST, when: When) -> Iterator[tuple[ast.AST, When]]:
    later: When = "later" if when == "load" else when
    match node:
        case _ if when == "never":
            yield from _with_time(ast.iter_child_nodes(node), when)
        case ast.Try(handlers=[_, *_]):
            yield from _with_time(ast.iter_child_nodes(node), "optional")
        case ast.With(items=items) | ast.AsyncWith(items=items) if any(map(_suppresses, items)):
            yield from _with_time(ast.iter_child_nodes(node), "optional")
        case ast.If() if is_type_checking(node):
            yield from _with_time(node.body, "never")
            yield from _with_time(node.orelse, when)
        case (
            ast.If(test=first)
            | ast.While(test=first)
            | ast.IfExp(test=first)
            | ast.For(iter=first)
            | ast.AsyncFor(iter=first)
            | ast.Match(subject=first)
            | ast.BoolOp(values=[first, *_])
        ):
            yield from _with_time(ast.iter_child_nodes(node), when, later, first=first)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _with_time([*node.decorator_list, node.args], when)
            yield from _with_time(node.body, later)
        case ast.Lambda():
            yield from _with_time([node.args], when)
            yield from _with_time([node.body], later)
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            yield from _with_time(ast.iter_child_nodes(node), later)
        case _:
            yield from _with_time(ast.iter_child_nodes(node), when)


def _with_time(
    nodes: Iterable[ast.AST], when: When, later: When | None = None, first: ast.AST | None = None
) -> Iterator[tuple[ast.AST, When]]:
    """The nodes with the same time; with `later`, that of all but `first`."""
    for node in nodes:
        yield node, when if later is None or node is first else later


def _suppresses(item: ast.withitem) -> bool:
    """True for `contextlib.suppress(...)`."""
    return isinstance(item.context_expr, ast.Call) and _called_name(item.context_expr) == "suppress"


def _called_name(node: ast.Call) -> str:
    function = node.func
    return str(getattr(function, "attr", None) or getattr(function, "id", ""))


MIN_PYTHON = (3, 10)
"""The oldest that the client and every Torch of the matrix run on."""
MIN_PYTHON_TEXT = ".".join(str(part) for part in MIN_PYTHON)
_REMEDY = f"kernels promise Python {MIN_PYTHON_TEXT}: write it with older syntax"
# By name: this Python need not have them.
_NEW_NODES = {
    "TryStar": ("`except*`", "3.11"),
    "TypeAlias": ("`type`", "3.12"),
    "TemplateStr": ("`t` strings", "3.14"),
}
NewerSyntax = tuple[int, str, str]
"""Line, what is used, and the remedy."""
_NEWEST_KNOWN = (3, 13)
"""The newest Python all of whose syntax is looked for here."""
_STAR = re.compile(rb"[\[,:](?:\s|#[^\n]*\n|\\\r?\n)*\*")
"""A star where an element or an annotation begins."""


def newer_syntax(source: bytes, tree: ast.Module) -> list[NewerSyntax]:
    """Everything newer than `MIN_PYTHON`, in line order."""
    starred = _starred_subscripts(source, tree) if _STAR.search(source) else ()
    uses = {*_newer_nodes(tree), *starred}
    if not uses and sys.version_info[:2] > _NEWEST_KNOWN:
        # A newer Python's parser knows syntax that came after this module.
        try:
            parse_source(source, feature_version=MIN_PYTHON)
        except SyntaxError as error:
            return [(error.lineno or 0, error.msg, _REMEDY)]
    return sorted(uses)


def _newer_nodes(tree: ast.Module) -> Iterator[NewerSyntax]:
    # All syntax of known releases is a part of statements but for PEP 646.
    statements = (node for node, _ in timed_statements(tree, b""))
    for node in ast.walk(tree) if sys.version_info[:2] > _NEWEST_KNOWN else statements:
        feature = _NEW_NODES.get(type(node).__name__)
        if feature is None and getattr(node, "type_params", None):
            feature = "type parameters", "3.12"
        if feature is not None:
            what, release = feature
            yield getattr(node, "lineno", 0), f"{what} came with Python {release}", _REMEDY


def _starred_subscripts(source: bytes, tree: ast.Module) -> Iterator[NewerSyntax]:
    """PEP 646."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Starred):
            yield node.lineno, "`*args: *Ts` came with Python 3.11", _REMEDY
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            starred = any(isinstance(part, ast.Starred) for part in node.slice.elts)
            begin = node.slice.col_offset
            # The parentheses of a tuple are its own.
            is_in_parentheses = lines[node.slice.lineno - 1][begin : begin + 1] == b"("
            if starred and not is_in_parentheses:
                yield node.lineno, "`x[*y]` came with Python 3.11", _REMEDY
