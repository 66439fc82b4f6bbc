"""Writes the project that takes over a package: `build.toml`, sources, and the Python package.

Licences, README, tests and data are taken over as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kbuild.cli.scaffold import Scaffold, scaffold_files
from kbuild.ops.language import LANGUAGES
from kbuild.plugins.migrate.cxx import rewrite_bindings, without_registration
from kbuild.plugins.migrate.package import LICENCE_FILES, Bindings, ForeignPackage, read_licence
from kbuild.plugins.migrate.python import ForeignNames, rewrite_module
from kbuild.plugins.migrate.sections import (
    HEADERS,
    KernelTable,
    flat,
    list_lines,
    merged_tables,
    read_table,
)
from kbuild.project.config.dependencies import python_packages
from kbuild.project.config.schema import SCHEMA_ID
from kbuild.system.files import FileSet
from kbuild.system.rendering import FILTERS, template_root

_DOCUMENTS = re.compile(
    r"(?:licen[cs]es?|copying|unlicense|notice|authors|contributors|readme|citation|patents"
    r"|third[-_]?party[-_]?(?:notices|licen[cs]es))(?:[-._].*)?",
    re.IGNORECASE,
)
_TESTS = ("tests", "test")
_BUILD_FILES = re.compile(
    r"setup\.(?:py|cfg)|pyproject\.toml|CMakeLists\.txt|MANIFEST\.in|PKG-INFO|.*\.egg-info|build"
    r"|dist|__pycache__|\..*|requirements.*\.txt",
    re.IGNORECASE,
)
"""Files that only the package's own build needs."""
_COMPILED_SUFFIXES = (".pyc", ".pyo", ".so", ".pyd", ".o", ".a", ".dll", ".dylib")
_CODE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".cuh", ".h", ".hh", ".hpp", ".inl", ".S")


def documents(package: ForeignPackage, sources: Collection[str]) -> dict[str, bytes]:
    """Licences, README and the like, also those beside the sources, which may be of others."""
    root = package.root
    folders = {root}
    for source in sources:
        folders |= {root / parent for parent in Path(source).parents}
    files: dict[str, bytes] = {}
    for folder in sorted(folders):
        pattern = _DOCUMENTS if folder == root else LICENCE_FILES
        for path in sorted(folder.iterdir()):
            if pattern.fullmatch(path.name) and not path.name.endswith((".py", *_CODE)):
                inner = [path] if path.is_file() else sorted(path.rglob("*"))
                files |= {
                    part.relative_to(root).as_posix(): part.read_bytes()
                    for part in inner
                    if part.is_file()
                }
    return files


def test_files(
    package: ForeignPackage, names: ForeignNames, python_name: str, left: list[str]
) -> dict[str, bytes]:
    """The tests, with the kernel's imports."""
    files: dict[str, bytes] = {}
    for folder in (package.root / name for name in _TESTS):
        for path in sorted(folder.rglob("*")):
            target = path.relative_to(package.root).as_posix()
            if (
                not path.is_file()
                or "__pycache__" in path.parts
                or path.name.endswith(_COMPILED_SUFFIXES)
            ):
                continue
            files[target] = path.read_bytes()
            if path.suffix == ".py":
                text = files[target].decode("utf-8", "replace")
                new, notes = rewrite_module(text, 0, names, python_name)
                files[target] = new.encode()
                left += [f"{target}:{note}" for note in notes]
    return files


def data_files(
    package: ForeignPackage, own: str, sources: Collection[str], left: list[str]
) -> dict[str, Path]:
    """Path in the kernel's Python package -> file, of what is neither Python nor compiled."""
    files: dict[str, Path] = {}
    for name, folder in package.folders.items():
        top, _, inside = name.partition(".")
        if top != own:
            continue
        others = [path for path in package.folders.values() if path != folder]
        for path in _inside(folder, others):
            shown = path.relative_to(package.root).as_posix()
            if shown in sources:
                continue
            target = Path(*inside.split("."), path.relative_to(folder)).as_posix()
            if path.suffix in _CODE or not path.suffix:
                left.append(
                    f"{shown}: is not taken over: packages have Python and data with endings"
                )
            else:
                files[target] = path
    return files


def _inside(folder: Path, others: Collection[Path]) -> Iterator[Path]:
    """Files below the folder that belong to no package further down."""
    for path in sorted(folder.rglob("*")):
        is_other = any(
            path.is_relative_to(other) for other in others if other.is_relative_to(folder)
        )
        is_made = "__pycache__" in path.parts or path.name.endswith((".py", *_COMPILED_SUFFIXES))
        if path.is_file() and not is_other and not is_made and not path.name.startswith("."):
            yield path


def left_over(package: ForeignPackage, taken: Mapping[str, object]) -> Iterator[str]:
    """The files and folders beside the build file that nothing was taken from."""
    tops = {Path(path).parts[0] for path in taken}
    tops |= {path.relative_to(package.root).parts[0] for path in package.folders.values()}
    tops |= {path.relative_to(package.root).parts[0] for path in package.modules.values()}
    names = [
        f"{path.name}/" if path.is_dir() else path.name
        for path in sorted(package.root.iterdir())
        if path.name not in tops and not _BUILD_FILES.fullmatch(path.name)
    ]
    if names:
        yield f"not copied: {', '.join(names)}"


_PLACEHOLDER = "torch-ext/kernel.h"
_REGISTRATION = "torch-ext/torch_binding.cpp"
_REGISTER = "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)"
_BUILD_ONLY = frozenset(("torch", "triton", "ninja", "setuptools", "wheel", "pybind11"))
"""Requirements that the build or Torch brings."""


@dataclass(frozen=True)
class MigratedProject:
    """The new project, and what is left to do."""

    scaffold: Scaffold
    files: FileSet
    left: tuple[str, ...]


def migrate_package(
    package: ForeignPackage, name: str, repo_id: str, licence: str
) -> MigratedProject:
    """The project of a kernel that does what the package does.

    `licence` is an SPDX expression that the user gives it; empty for the package's own.
    """
    left: list[str] = []
    licence = _licence(package, licence, left)
    left += package.notes
    tables = [read_table(package, extension, name, left) for extension in package.extensions]
    texts = {
        path: (package.root / path).read_text("utf-8", "replace")
        for table in tables
        for path in table.src
    }
    rewritten = rewrite_bindings(texts, [extension.name for extension in package.extensions])
    left += rewritten.notes
    tables = merged_tables(tables, rewritten, left)
    files = {path: text.encode() for path, text in rewritten.texts.items()}
    bindings = _place_bindings(tables, rewritten, files)
    depends = _dependencies(package, left)
    python_name = name.replace("-", "_")
    pyext = _add_python_files(package, python_name, rewritten, files, left)
    files |= documents(package, texts)
    backends = (
        tuple(sorted({table.backend for table in tables})) or LANGUAGES.get("triton").init_backends
    )
    owner = repo_id.partition("/")[0]
    scaffold = Scaffold(name, owner, repo_id, licence, backends, backends if tables else ())
    every = scaffold_files(scaffold, template_root() / "init", ("every",))
    # A file of the package, such as its README, wins over that of the template.
    files = dict(every.items()) | files
    files["build.toml"] = _build_file(scaffold, tables, bindings, depends, pyext).encode()
    left += left_over(package, files)
    if not tables:
        left.append(
            "the Triton kernels are compiled on the user's machine; `kbuild capture` and "
            "[kernel.*] sections compile them at build time"
        )
    return MigratedProject(scaffold, FileSet(files), tuple(dict.fromkeys(left)))


def _build_file(
    scaffold: Scaffold,
    tables: Sequence[KernelTable],
    bindings: Sequence[str],
    depends: Sequence[str],
    pyext: Sequence[str],
) -> str:
    """The text of `build.toml`; `bindings` are the sources of `[torch]`."""
    backends = ", ".join(f'"{backend}"' for backend in scaffold.backends)
    lines = [
        f"#:schema {SCHEMA_ID}",
        "[general]", f'name = "{scaffold.name}"', "version = 1", "edition = 5",
        f"license = {FILTERS['toml'](scaffold.license)}", f"backends = [{backends}]",
        *list_lines({"python-depends": depends}), "",
        "[general.hub]", f'repo-id = "{scaffold.repo_id}"', "",
        "[torch]" if tables else "[torch-noarch]",
    ]  # fmt: skip
    own = [table for table in tables if bindings != (_REGISTRATION,)]
    keys = {
        "include": dict.fromkeys(path for table in own for path in table.include),
        "src": bindings,
        "cxx-flags": flat(unit for table in own for unit in table.cxx_flags),
        "pyext": pyext,
    }
    lines += list_lines(keys)
    for table in tables:
        lines += ["", *table.lines()]
    return "\n".join(lines) + "\n"


def _licence(package: ForeignPackage, given: str, left: list[str]) -> str:
    """The licence that `build.toml` gets; empty when it is not known."""
    names = [path.name for path in sorted(package.root.iterdir()) if path.is_file()]
    files = [name for name in names if LICENCE_FILES.fullmatch(name)]
    own, why = read_licence(package.declared_licences, files)
    if given and own not in {"", given}:
        left.append(f"build.toml: `license` is `{given}`, as you gave it; the package has `{own}`")
    elif not given and not own:
        left.append(
            f"build.toml: `license` is empty, because {why}: write the SPDX name that the "
            "authors give it; nothing can be built or published before"
        )
    return given or own


def _place_bindings(
    tables: Sequence[KernelTable], rewritten: Bindings, files: dict[str, bytes]
) -> tuple[str, ...]:
    """The sources of `[torch]`: those that register ops, where every variant compiles them alike.

    Otherwise they stay in the kernels' sections, and one file registers the extension.
    """
    if not tables:
        return ()
    registering = {path for path in rewritten.registering if not path.endswith(HEADERS)}
    flags = {(tuple(table.include), tuple(table.cxx_flags)) for table in tables}
    by_backend: dict[str, set[str]] = {}
    for table in tables:
        by_backend.setdefault(table.backend, set()).update(registering.intersection(table.src))
    first = min(registering, default="", key=rewritten.registering.index)
    is_alike = len(flags) == 1 and all(paths == registering for paths in by_backend.values())
    if first and is_alike and not first.endswith(".cu"):
        bindings = tuple(path for path in rewritten.registering if path in registering)
        for table in tables:
            table.src = [path for path in table.src if path not in registering]
        if _REGISTER.encode() not in b"".join(files[path] for path in bindings):
            files[first] = files[first].rstrip() + f"\n\n{_REGISTER}\n".encode()
    else:
        bindings = (_REGISTRATION,)
        files[_REGISTRATION] = f'#include "registration.h"\n\n{_REGISTER}\n'.encode()
    for path in rewritten.registering:
        if path not in bindings:
            files[path] = without_registration(files[path].decode()).encode()
    for table in tables:
        if not table.src:
            table.src = [_PLACEHOLDER]
            files[_PLACEHOLDER] = b"// A kernel has sources; these are in [torch].\n#pragma once\n"
    return bindings


def _dependencies(package: ForeignPackage, left: list[str]) -> list[str]:
    """The dependencies that `python-depends` can name; the others are left."""
    known = {part.package: name for name, part in python_packages()["general"].items()}
    depends = []
    for requirement, place in package.dependencies:
        match = re.match(r"[A-Za-z0-9][\w.-]*", requirement)
        name = re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement
        if name in known:
            depends.append(known[name])
        elif name not in _BUILD_ONLY:
            left.append(f"{place}: the dependency `{requirement}`: `python-depends` has none such")
    return list(dict.fromkeys(depends))


def _add_python_files(
    package: ForeignPackage,
    python_name: str,
    bindings: Bindings,
    files: dict[str, bytes],
    left: list[str],
) -> tuple[str, ...]:
    """Add the kernel's Python package and the tests; returns the endings of data files."""
    roots = sorted({name.partition(".")[0] for name in package.modules if "." in name})
    own = python_name if python_name in roots or not roots else roots[0]
    left += [f"the package `{other}`: a kernel has one" for other in roots if other != own]
    modules = {extension.name for extension in package.extensions}
    names = ForeignNames(own, modules, bindings.namespaces)
    folder = f"torch-ext/{python_name}"
    for name, path in package.modules.items():
        top, _, inside = name.partition(".")
        if inside and top != own:
            continue
        parts = (inside or ("__init__" if name == python_name else name)).split(".")
        text, notes = rewrite_module(path.read_text("utf-8"), len(parts) - 1, names)
        target = f"{folder}/{'/'.join(parts)}.py"
        files[target] = text.encode()
        left += [f"{target}:{note}" for note in notes]
    init = f"{folder}/__init__.py"
    if init not in files:
        files[init] = "\n".join([*_init_lines(package.modules, bindings), ""]).encode()
    data = data_files(package, own, files.keys() & bindings.texts.keys(), left)
    files |= {f"{folder}/{target}": path.read_bytes() for target, path in data.items()}
    files |= test_files(package, names, python_name, left)
    endings = {PurePosixPath(target).suffix.lstrip(".") for target in data}
    return tuple(sorted(endings - {"py", "pyi"}))


def _init_lines(modules: Mapping[str, Path], bindings: Bindings) -> Iterator[str]:
    """A package that offers the single modules, or else the ops."""
    singles = [name for name in modules if "." not in name]
    if singles:
        yield from (f"from .{name} import *  # noqa: F403" for name in singles)
        return
    ops = list(
        dict.fromkeys(op.partition(".")[0] for names in bindings.ops.values() for op in names)
    )
    yield from ("from ._ops import ops", "", *(f"{op} = ops.{op}" for op in ops))
    yield from ("", f"__all__ = [{', '.join(map(repr, ops))}]")
