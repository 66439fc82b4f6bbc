"""The files of a package that are taken over as they are: licences, README, tests and data."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from kbuild.plugins.migrate.licence import LICENCE_FILES
from kbuild.plugins.migrate.package import ForeignPackage
from kbuild.plugins.migrate.python import ForeignNames, rewrite_module

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
_MADE = (".pyc", ".pyo", ".so", ".pyd", ".o", ".a", ".dll", ".dylib")
_CODE = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".cuh", ".h", ".hh", ".hpp", ".inl", ".S")


def documents(package: ForeignPackage, sources: Collection[str]) -> dict[str, bytes]:
    """Licences, README and the like, also those beside the sources, which may be of others.

    Args:
        package: what there is.
        sources: the paths of the sources and headers that are taken over.
    """
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
            if not path.is_file() or "__pycache__" in path.parts or path.name.endswith(_MADE):
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
    """Path in the kernel's Python package -> file, of what is neither Python nor compiled.

    Args:
        package: what there is.
        own: the import package that becomes the kernel's.
        sources: the sources and headers that are taken over.
        left: gets what is not.
    """
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
        is_made = "__pycache__" in path.parts or path.name.endswith((".py", *_MADE))
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
