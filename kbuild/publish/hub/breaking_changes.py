"""Changes of a kernel's Python package that break callers of the published one; griffe finds them.

Both packages are read, never imported: the published variant may be for another machine.
"""

from __future__ import annotations

import importlib.util
import logging
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kbuild.publish.hub.huggingface import HubClient
from kbuild.publish.hub.layout import BUILD, variants_of
from kbuild.publish.hub.repository import RemoteFile, Repo, read_upload_file
from kbuild.system.temporary import temporary_folder
from kbuild.system.untrusted import reason_of

_GENERATED = "_ops.py"
_HARMLESS = frozenset(
    {
        "PARAMETER_CHANGED_DEFAULT", "RETURN_CHANGED_TYPE", "ATTRIBUTE_CHANGED_TYPE",
        "ATTRIBUTE_CHANGED_VALUE", "CLASS_REMOVED_BASE",
    }
)  # fmt: skip
"""Kinds of griffe's after which a call that worked still works."""
_NOT_INSTALLED = (
    "the Python package is not compared with the published one: griffe is missing; "
    "`pip install griffe` installs it"
)


def breaking_change_warnings(
    hub: HubClient, repo: Repo, commit: str, package: Path, name: str
) -> Iterator[str]:
    """Describe each change of the package in the folder `package` that breaks callers.

    Args:
        hub: where the published package is.
        repo: its repository.
        commit: the published state that the package replaces.
        package: a folder with `__init__.py`: of a project, or a built variant.
        name: the package's Python name.

    Raises:
        HubError: the Hub cannot be asked.
    """
    tree = hub.tree(repo, commit)
    # Any variant will do: all have the same Python files.
    top = f"{BUILD}/{min(variants_of(tree), default='')}/"
    published = {
        path.removeprefix(top): file
        for path, file in tree.items()
        if path.startswith(top) and path.endswith(".py")
    }
    if not published or _is_unchanged(package, published):
        return
    if importlib.util.find_spec("griffe") is None:
        yield _NOT_INSTALLED
        return
    with temporary_folder("published") as scratch:
        old, new = scratch / "old", scratch / "new"
        for path in published:
            file = old / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(hub.read(repo, commit, f"{top}{path}"))
        shutil.copytree(package, new / name, ignore=_ignore_other_files)
        if not (old / name / "__init__.py").is_file():
            old /= name  # in variants of older builders, the package is a folder inside
        if (old / name / "__init__.py").is_file():
            yield from _breaking_changes(old, new, name)


def _is_unchanged(package: Path, published: Mapping[str, RemoteFile]) -> bool:
    """True when the package has the published Python files, whose content need not be read then."""
    own = {
        path.relative_to(package).as_posix(): read_upload_file(path.name, path)
        for path in package.rglob("*.py")
        if path.is_file() and path.name != _GENERATED
    }
    others = {path: file for path, file in published.items() if path != _GENERATED}
    return own.keys() == others.keys() and all(own[p].is_in(others[p]) for p in own)


def _ignore_other_files(folder: str, names: list[str]) -> set[str]:
    """Everything but folders and Python files."""
    return {
        name
        for name in names
        if name == "__pycache__" or not (name.endswith(".py") or Path(folder, name).is_dir())
    }


def _breaking_changes(old: Path, new: Path, name: str) -> Iterator[str]:
    import griffe

    logging.getLogger("griffe").addHandler(logging.NullHandler())  # it prints tracebacks else
    try:
        packages: list[Any] = [
            griffe.load(name, search_paths=[folder], allow_inspection=False)
            for folder in (old, new)
        ]
        for breakage in griffe.find_breaking_changes(*packages):
            if breakage.kind.name not in _HARMLESS and breakage.obj.name != "__all__":
                path = str(breakage.obj.path).removeprefix(f"{name}.")
                values = (breakage.old_value, breakage.new_value)
                parameter = next((v for v in values if isinstance(v, griffe.Parameter)), None)
                shown = f"{path}({parameter.name})" if parameter is not None else path
                what = breakage.kind.value[0].lower() + breakage.kind.value[1:]
                yield f"`{shown}`: {what}, which breaks callers of the published package"
    except (griffe.GriffeError, ValueError, MemoryError, RecursionError) as error:
        yield f"the Python package cannot be compared with the published one ({reason_of(error)})"
