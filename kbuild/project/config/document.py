"""A parsed `build.toml` as the rules look at it.

A rule runs whether or not the file fits the models, so that all problems come at once. What has the
wrong type is the models' business and reads here as if it were absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from kbuild.project.config.issue import KeyPath
from kbuild.project.config.model import CXX, BuildFile
from kbuild.system.sourcetree import SourceTree

NAME = re.compile(r"[a-z][-a-z0-9]{0,94}[a-z0-9]")
"""`general.name`; the Hub takes 96 characters."""
TABLES_FOLDER = "tuned"
"""Folder of a project's tuned tables."""


def is_in_dsl(section: Mapping[str, Any]) -> bool:
    """True for the table of a kernel that is written in a Python DSL."""
    language = section.get("language", CXX)
    return isinstance(language, str) and language != CXX


def with_source_files(data: Mapping[str, Any], tree: SourceTree) -> Mapping[str, Any]:
    """A file's content with the files that patterns in `src` of Python DSLs mean.

    A pattern without files stays, for the rules to report.
    """
    kernels = data.get("kernel")
    if not isinstance(kernels, dict):
        return data
    changed: dict[str, Any] = {}
    for name, section in kernels.items():
        sources = section.get("src") if isinstance(section, dict) and is_in_dsl(section) else None
        if isinstance(sources, list) and any(map(_is_pattern, sources)):
            files = [file for source in sources for file in _files_of(source, tree)]
            changed[name] = {**section, "src": list(dict.fromkeys(files))}
    return {**data, "kernel": {**kernels, **changed}} if changed else data


def _is_pattern(source: Any) -> bool:
    return isinstance(source, str) and "*" in source


def _files_of(source: Any, tree: SourceTree) -> list[Any]:
    if not _is_pattern(source) or source.startswith("/") or ".." in source.split("/"):
        return [source]
    pieces = (re.escape(piece) for piece in re.split(r"\*\*/|\*", source))
    marks = (".*" if mark == "**/" else "[^/]*" for mark in re.findall(r"\*\*/|\*", source))
    text = "".join(part for pair in zip_longest(pieces, marks, fillvalue="") for part in pair)
    folder = source.partition("*")[0].rpartition("/")[0] or "."
    files = tree.walk(folder, skip=("build",)) if tree.is_dir(folder) else ()
    return [path for path in files if re.fullmatch(text, path)] or [source]


@dataclass(frozen=True)
class Document:
    """The dictionary with accessors that never raise."""

    data: Mapping[str, Any]

    def get(self, *path: str | int) -> Any:
        """The value at a path, or None."""
        value: Any = self.data
        try:
            for part in path:
                value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
        return value

    def table(self, *path: str | int) -> Mapping[str, Any]:
        """The table at a path, or an empty one."""
        value = self.get(*path)
        return value if isinstance(value, dict) else {}

    def text(self, *path: str | int) -> str | None:
        """The string at a path, or None."""
        value = self.get(*path)
        return value if isinstance(value, str) else None

    def items(self, *path: str | int) -> list[Any]:
        """The list at a path, or an empty one."""
        value = self.get(*path)
        return value if isinstance(value, list) else []

    def strings(self, *path: str | int) -> Iterator[tuple[KeyPath, str]]:
        """The strings of a list, each with its own path."""
        for index, item in enumerate(self.items(*path)):
            if isinstance(item, str):
                yield (*path, index), item

    def kernels(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The `[kernel.*]` tables in the file's order."""
        for name, section in self.table("kernel").items():
            if isinstance(section, dict):
                yield name, section

    def in_dsls(self) -> dict[str, Mapping[str, Any]]:
        """The kernels that are written in a Python DSL."""
        return {name: section for name, section in self.kernels() if is_in_dsl(section)}

    def backends_of(self, kernel: str) -> list[tuple[KeyPath, str]]:
        """The backends of a kernel, each with its path; those in DSLs may list several."""
        path: KeyPath = ("kernel", kernel, "backend")
        backend = self.text(*path)
        return [(path, backend)] if backend is not None else list(self.strings(*path))

    def backends(self) -> list[str]:
        """`general.backends`."""
        return [name for _, name in self.strings("general", "backends")]

    def frameworks(self) -> list[str]:
        """The framework tables that are present."""
        return [key for key in BuildFile.frameworks if key in self.data]

    def python_name(self) -> str | None:
        """The Python package's name, when `general.name` gives one."""
        name = self.text("general", "name")
        return name.replace("-", "_") if name and NAME.fullmatch(name) else None
