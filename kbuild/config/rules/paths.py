"""Every path of `build.toml`: it exists, it stays inside the project, it is listed once."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from kbuild.config.document import Context, Document
from kbuild.config.issue import Issue, KeyPath
from kbuild.config.rules.package import PACKAGE_FOLDERS
from kbuild.config.suggest import did_you_mean
from kbuild.pathnames import unbuildable
from kbuild.sourcetree import SourceTree

_BUILD_FOLDERS = ("build", "result", "node_modules")


def lists(document: Document, key: str) -> Iterator[KeyPath]:
    """Paths of every `src` or `include` list."""
    for framework in document.frameworks():
        yield (framework, key)
    for name, _ in document.kernels():
        yield ("kernel", name, key)


def sources_exist(document: Document, context: Context) -> Iterator[Issue]:
    """Every source is a file of the project."""
    for path in lists(document, "src"):
        for place, source in document.strings(*path):
            yield from _missing(place, source, context.tree, wants_file=True)


def includes_exist(document: Document, context: Context) -> Iterator[Issue]:
    """Every include folder is a folder of the project."""
    for path in lists(document, "include"):
        for place, folder in document.strings(*path):
            yield from _missing(place, folder, context.tree, wants_file=False)


def listed_once(document: Document, _: Context) -> Iterator[Issue]:
    """No source is listed twice in one list."""
    for path in lists(document, "src"):
        seen = set()
        for place, source in document.strings(*path):
            normal = posixpath.normpath(source)
            if normal in seen:
                yield Issue(place, f"`{source}` is listed twice", "keep one of them", "warning")
            seen.add(normal)


def taken_files(document: Document, context: Context) -> Iterator[Issue]:
    """What lies where whole folders are taken is plain files of the project."""
    packages = {PACKAGE_FOLDERS[framework] for framework in document.frameworks()}
    folders = {*packages}
    foreign = document.in_dsls()
    if foreign:
        from kbuild.languages.tablefile import FOLDER

        folders.add(FOLDER)
    for section in foreign.values():
        sources = section.get("src")
        first = sources[0] if isinstance(sources, list) and sources else None
        # What the kernels import lies beside them.
        folders |= {posixpath.dirname(first)} if isinstance(first, str) else set()
    for folder in sorted(folders - {""}):
        if _badly_written((), folder) is None and context.tree.is_inside(folder):
            for path, fault in context.tree.faults(folder, skip=_BUILD_FOLDERS):
                yield Issue((), *fault, file=path)
            for path in context.tree.linked_folders(folder, skip=_BUILD_FOLDERS):
                if folder in packages:
                    words = f"`{path}` is a link to a folder: nothing behind it is packaged"
                    yield Issue((), words, "put the folder in place of the link", "warning", path)


def _missing(place: KeyPath, path: str, tree: SourceTree, *, wants_file: bool) -> Iterator[Issue]:
    issue = _badly_written(place, path)
    if issue is not None:
        yield issue
        return
    try:
        if not (tree.is_file(path) if wants_file else tree.is_dir(path)):
            yield _absent(place, path, tree, wants_file=wants_file)
        elif not tree.is_inside(path):
            message = f"`{path}` leads out of the project"
            yield Issue(place, message, "copy it in, so that the project builds anywhere")
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, links in a circle
        yield Issue(place, f"`{path}` cannot be looked up: {error.__class__.__name__}")


def _badly_written(place: KeyPath, path: str) -> Issue | None:
    inside = "paths are relative to the folder of build.toml and stay inside it"
    if not path.strip() or not path.isprintable():
        return Issue(place, f"`{path}` is not a path", inside)
    if "\\" in path:
        return Issue(place, f"`{path}` has backslashes", f"write `{path.replace(chr(92), '/')}`")
    if path.startswith(("/", "~")) or path[1:2] == ":":
        return Issue(place, f"`{path}` is an absolute path", inside)
    if ".." in path.split("/"):
        return Issue(place, f"`{path}` goes up with `..`", inside)
    if strange := unbuildable(path, "source"):
        message = f"`{path}` has {strange}, which CMake or ninja cannot take"
        return Issue(place, message, "rename it")
    return None


def _absent(place: KeyPath, path: str, tree: SourceTree, *, wants_file: bool) -> Issue:
    fault = tree.fault(path)
    if fault is not None and not tree.is_dir(path):
        return Issue(place, *fault)
    if wants_file and tree.is_dir(path):
        return Issue(place, f"`{path}` is a folder", "list the files in it")
    if not wants_file and tree.is_file(path):
        return Issue(place, f"`{path}` is a file, not a folder", "list the folder that holds it")
    if set(path) & set("*?["):
        return Issue(place, f"`{path}` does not exist", "patterns are not expanded: list the files")
    return Issue(place, f"`{path}` does not exist", _similar(path, tree, wants_file=wants_file))


def _similar(path: str, tree: SourceTree, *, wants_file: bool) -> str:
    files = tree.walk(".", skip=_BUILD_FOLDERS)
    candidates = {*files} if wants_file else {posixpath.dirname(file) for file in files} - {""}
    base = posixpath.basename(path)
    same_name = [file for file in sorted(candidates) if posixpath.basename(file) == base]
    if len(same_name) == 1:
        return f"did you mean `{same_name[0]}`?"
    return did_you_mean(path, sorted(candidates))


RULES = (sources_exist, includes_exist, listed_once, taken_files)
