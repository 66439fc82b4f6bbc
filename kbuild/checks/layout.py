"""The folder has the shape that the `kernels` client loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.libraries import base_name, metadata_of
from kbuild.plan.digest import unaccounted
from kbuild.plan.metadata import METADATA_FILE
from kbuild.project.variant import Variant

TUNABLE = "aot.json"
"""A file that only variants for tuning have."""
REQUIRED = ("__init__.py", "_ops.py", METADATA_FILE)


@CHECKS.add
class LayoutCheck(Check):
    """Flat: `__init__.py`, `_ops.py`, `metadata.json` and the extension, side by side."""

    name = "layout"
    summary = "The variant folder has the files, and only the files, that the client expects."
    group = "files"
    protects = True

    def run(self, output: Output) -> Iterator[Finding]:
        """Findings on the folder's name, then on its files."""
        yield from self._folder(output)
        yield from self._required(output)
        yield from self._nested_package(output)
        yield from self._extension(output)
        for stray in unaccounted(output.root):
            yield self._error(*stray)
        for path in sorted(output.root.rglob("*.pyo")):
            if "__pycache__" not in path.parts:
                yield self._error(output.name_of(path), "is bytecode", "delete it")
        if (output.root / TUNABLE).is_file():
            what = "was built for `kbuild tune` and contains every candidate"
            hint = "build it without --keep-all"
            yield Finding(self.name, "warning", TUNABLE, what, hint)

    def _error(self, where: str, what: str, hint: str) -> Finding:
        return Finding(self.name, "error", where, what, hint)

    def _folder(self, output: Output) -> Iterator[Finding]:
        if output.variant is None:
            hint = "name it like `torch213-cxx11-cpu-x86_64-linux` or `torch-cpu`"
            yield self._error(".", f"`{output.root.name}` is not a variant name", hint)
            return
        with suppress(ValueError):
            if (named := Variant.parse(output.root.name)) != output.variant:
                what = f"the folder is named `{named}`, but holds `{output.variant}`"
                yield self._error(".", what, f"rename it to `{output.variant}`")

    def _required(self, output: Output) -> Iterator[Finding]:
        for name in REQUIRED:
            if not (output.root / name).is_file():
                yield self._error(name, "is missing", "package the variant with `kbuild build`")

    def _nested_package(self, output: Output) -> Iterator[Finding]:
        """Warn about a package in the package: the client loads it only if none is above it."""
        metadata = metadata_of(output)
        if metadata and (output.root / metadata.python_name / "__init__.py").is_file():
            where = f"{metadata.python_name}/__init__.py"
            hint = "move the package's files to the top of the variant folder"
            what = "the kernel's package is nested in itself"
            yield Finding(self.name, "warning", where, what, hint)

    def _extension(self, output: Output) -> Iterator[Finding]:
        if output.variant is None:
            return
        libraries = [output.name_of(path) for path in output.libraries()]
        if output.variant.is_noarch:
            for name in libraries:
                hint = "compiled code belongs to a variant that names its CPU and system"
                yield self._error(name, "a Python-only variant has no shared library", hint)
        else:
            yield from self._compiled(output, libraries)

    def _compiled(self, output: Output, libraries: list[str]) -> Iterator[Finding]:
        metadata = metadata_of(output)
        if not libraries:
            yield self._error(".", "the extension is missing", "build the variant again")
        elif metadata and metadata.id not in {base_name(n) for n in libraries if "/" not in n}:
            what = f"no extension is named `{metadata.id}.*`, the `id` of {METADATA_FILE}"
            yield self._error(libraries[0], what, "build again: name and id come from one plan")
