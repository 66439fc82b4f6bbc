"""Rules for the files that `build.toml` names.

Paths, the Python package, C++ includes, names that CMake or ninja cannot take.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Literal

from kbuild.project.config.document import TABLES_FOLDER, Document
from kbuild.project.config.issue import Issue, KeyPath, did_you_mean
from kbuild.project.config.rules.context import RuleContext
from kbuild.sources.includes import scan_file
from kbuild.system.sourcetree import SourceTree

PACKAGE_FOLDERS: Mapping[str, str] = {
    "torch": "torch-ext",
    "torch-noarch": "torch-ext",
    "tvm-ffi": "tvm-ffi-ext",
}
"""Framework table -> the folder that holds the Python package."""


def python_package(document: Document, context: RuleContext) -> Iterator[Issue]:
    """The Python package is there, not nested in itself, and loads under any name."""
    name, frameworks = document.python_name(), document.frameworks()
    if name is None or len(frameworks) != 1:
        return  # nobody can say where it should be
    folder = f"{PACKAGE_FOLDERS[frameworks[0]]}/{name}"
    if not context.tree.is_file(f"{folder}/__init__.py"):
        message = f"the Python package needs `{folder}/__init__.py`"
        yield Issue(("general", "name"), message, "its name is `general.name` with `-` as `_`")
        return
    if context.tree.is_dir(f"{folder}/{name}"):
        message = f"`{folder}/{name}` is nested in itself"
        yield Issue(("general", "name"), message, f"move its files up to `{folder}`, or rename it")
    yield from _check_python_files(context.tree, folder, name)


def _check_python_files(tree: SourceTree, folder: str, name: str) -> Iterator[Issue]:
    for file in tree.walk(folder):
        if not file.endswith(".py") or not tree.is_file(file):
            continue  # data, a pipe, a link to nowhere
        try:
            module = _parse(tree.read_bytes(file), file)
        except SyntaxError as error:
            yield Issue((), f"not valid Python: {error.msg}", file=file, line=error.lineno or 1)
            continue
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "strerror", None) or error
            yield Issue((), f"cannot be read as Python: {why}", file=file)
            continue
        yield from _self_imports(module, file, name)
        if file == f"{folder}/__init__.py" and not _defines_all(module):
            message = "no `__all__`, so the public names of the kernel are unknown"
            hint = 'list the public names, e.g. `__all__ = ["relu"]`'
            yield Issue((), message, hint, "warning", file=file, line=1)


def _parse(source: bytes, file: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the author's warnings are not kbuild's business
        return ast.parse(source, file)


def _defines_all(module: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == "__all__" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(module)
    )


def _self_imports(module: ast.Module, file: str, name: str) -> Iterator[Issue]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            targets = [node.module or ""]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        if any(target.split(".")[0] == name for target in targets):
            message = f"`{name}` is imported by its name, but kernels are loaded under another one"
            hint = "write a relative import, e.g. `from . import ...`"
            yield Issue((), message, hint, "warning", file=file, line=node.lineno)


PACKAGE_RULES = (python_package,)


PathUse = Literal["source", "project", "package"]
"""The use of a path: a source or folder of sources, the project's folder, a file that is copied."""
_UNSUPPORTED: dict[PathUse, re.Pattern[str]] = {
    # Ends a line or a path of ninja's, an element of a list; begins an expression.
    "source": re.compile(r"[\n\r;|]|\$<"),
    # That, and what ends a word, cannot be in the path of a generated file, divides options of the
    # linker, begins a reference to a variable; white space goes from the end of a setting.
    "project": re.compile(r"[\n\r;|\"<>\\,]|\$<|\$(?:ENV|CACHE)?\{|[ \t]+\Z"),
    # An installation script quotes nothing.
    "package": re.compile(r"[;\"\\]|\$<|\$(?:ENV|CACHE)?\{"),
}


def unsupported_characters(path: str, use: PathUse) -> str:
    """The part of a path that no build tool accepts, as messages name it; empty without one."""
    if any("\ud800" <= char <= "\udfff" for char in path):
        return "bytes that are not UTF-8"
    match = _UNSUPPORTED[use].search(path)
    if match is not None:
        piece = match[0]
        space = "a line break" if piece in "\r\n" else "white space at the end"
        return space if piece.isspace() else f"`{piece}`"
    if use == "project" and path.count("[") != path.count("]"):
        return "an odd square bracket"  # CMake does not divide a list inside of them
    return ""


_BUILD_FOLDERS = ("build", "result", "node_modules")


def path_lists(document: Document, key: str) -> Iterator[KeyPath]:
    """Paths of every `src` or `include` list."""
    for framework in document.frameworks():
        yield (framework, key)
    for name, _ in document.kernels():
        yield ("kernel", name, key)


def sources_exist(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Every source is a file of the project."""
    for path in path_lists(document, "src"):
        for place, source in document.strings(*path):
            yield from _missing(place, source, context.tree, wants_file=True)


def includes_exist(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Every include folder is a folder of the project."""
    for path in path_lists(document, "include"):
        for place, folder in document.strings(*path):
            yield from _missing(place, folder, context.tree, wants_file=False)


def listed_once(document: Document, _: RuleContext) -> Iterator[Issue]:
    """No source is listed twice in one list."""
    for path in path_lists(document, "src"):
        seen = set()
        for place, source in document.strings(*path):
            normal = posixpath.normpath(source)
            if normal in seen:
                yield Issue(place, f"`{source}` is listed twice", "keep one of them", "warning")
            seen.add(normal)


def packaged_folders(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Folders that are packaged as a whole hold plain files of the project."""
    packages = {PACKAGE_FOLDERS[framework] for framework in document.frameworks()}
    folders = {*packages}
    dsl_sections = document.in_dsls()
    if dsl_sections:
        folders.add(TABLES_FOLDER)
    for section in dsl_sections.values():
        sources = section.get("src")
        first = sources[0] if isinstance(sources, list) and sources else None
        # What the kernels import lies beside them.
        folders |= {posixpath.dirname(first)} if isinstance(first, str) else set()
    for folder in sorted(folders - {""}):
        if _invalid_path((), folder) is None and context.tree.is_inside(folder):
            for path, fault in context.tree.faults(folder, skip=_BUILD_FOLDERS):
                yield Issue((), *fault, file=path)
            for path in context.tree.linked_folders(folder, skip=_BUILD_FOLDERS):
                if folder in packages:
                    message = f"`{path}` is a link to a folder: nothing behind it is packaged"
                    yield Issue((), message, "put the folder in place of the link", "warning", path)


def _missing(place: KeyPath, path: str, tree: SourceTree, *, wants_file: bool) -> Iterator[Issue]:
    issue = _invalid_path(place, path)
    if issue is not None:
        yield issue
        return
    try:
        if not (tree.is_file(path) if wants_file else tree.is_dir(path)):
            yield _absent_path(place, path, tree, wants_file=wants_file)
        elif not tree.is_inside(path):
            message = f"`{path}` leads out of the project"
            yield Issue(place, message, "copy it in, so that the project builds anywhere")
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, links in a circle
        yield Issue(place, f"`{path}` cannot be looked up: {error.__class__.__name__}")


def _invalid_path(place: KeyPath, path: str) -> Issue | None:
    inside = "paths are relative to the folder of build.toml and stay inside it"
    if not path.strip() or not path.isprintable():
        return Issue(place, f"`{path}` is not a path", inside)
    if "\\" in path:
        return Issue(place, f"`{path}` has backslashes", f"write `{path.replace(chr(92), '/')}`")
    if path.startswith(("/", "~")) or path[1:2] == ":":
        return Issue(place, f"`{path}` is an absolute path", inside)
    if ".." in path.split("/"):
        return Issue(place, f"`{path}` goes up with `..`", inside)
    if characters := unsupported_characters(path, "source"):
        message = f"`{path}` has {characters}, which CMake or ninja cannot take"
        return Issue(place, message, "rename it")
    return None


def _absent_path(place: KeyPath, path: str, tree: SourceTree, *, wants_file: bool) -> Issue:
    fault = tree.fault(path)
    if fault is not None and not tree.is_dir(path):
        return Issue(place, *fault)
    if wants_file and tree.is_dir(path):
        return Issue(place, f"`{path}` is a folder", "list the files in it")
    if not wants_file and tree.is_file(path):
        return Issue(place, f"`{path}` is a file, not a folder", "list the folder that holds it")
    if set(path) & set("*?["):
        hint = "patterns are not expanded here, or no file fits: list the files"
        return Issue(place, f"`{path}` does not exist", hint)
    return Issue(place, f"`{path}` does not exist", _similar(path, tree, wants_file=wants_file))


def _similar(path: str, tree: SourceTree, *, wants_file: bool) -> str:
    files = tree.walk(".", skip=_BUILD_FOLDERS)
    candidates = {*files} if wants_file else {posixpath.dirname(file) for file in files} - {""}
    base = posixpath.basename(path)
    same_name = [file for file in sorted(candidates) if posixpath.basename(file) == base]
    if len(same_name) == 1:
        return f"did you mean `{same_name[0]}`?"
    return did_you_mean(path, sorted(candidates))


PATH_RULES = (sources_exist, includes_exist, listed_once, packaged_folders)


_HEAVY_HEADER = "torch/extension.h"
_HEAVY_MESSAGE = (
    "`torch/extension.h` pulls in all of Torch and Python, and dominates the compile time"
)
_HEAVY_HINT = (
    "include what is used: `torch/library.h`, `ATen/core/Tensor.h`, `ATen/Functions.h`, ..."
)


def light_headers(document: Document, context: RuleContext) -> Iterator[Issue]:
    """Sources do not include `torch/extension.h`, which includes everything."""
    listed = {
        source: place
        for path in path_lists(document, "src")
        for place, source in document.strings(*path)
    }
    for source, place in sorted(listed.items()):
        try:
            inside = context.tree.is_file(source) and context.tree.is_inside(source)
            includes = scan_file(context.tree, source).includes if inside else ()
        except (OSError, RuntimeError, ValueError):
            continue  # the path rules speak about it
        heavy = next((include for include in includes if include.name == _HEAVY_HEADER), None)
        if heavy is not None:
            yield Issue(place, _HEAVY_MESSAGE, _HEAVY_HINT, "warning", file=source, line=heavy.line)


SOURCE_RULES = (light_headers,)
