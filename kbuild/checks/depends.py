"""A kernel's Python files need nothing that its users may not have.

That is the standard library, the framework with what it brings along, and the packages of
`python-depends` in `metadata.json`, which the client looks for before it loads the kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.readers.libraries import metadata_of
from kbuild.checks.readers.policies import load
from kbuild.checks.readers.source import parse_source
from kbuild.checks.readers.statements import imported, statements
from kbuild.config.curated import EVERY_BACKEND, PythonPackage, python_packages
from kbuild.metadata import METADATA_FILE, Metadata


@CHECKS.add
class Depends(Check):
    """Imports in a `try`, or for type checkers only, may fail; the others must not."""

    name = "depends"
    summary = f"Python files import what Torch has, and what `{METADATA_FILE}` says they need."
    group = "code"

    def applies(self, output: Output) -> bool:
        """Where it is known what the kernel says it needs."""
        return output.variant is not None and metadata_of(output) is not None

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file and module."""
        metadata = metadata_of(output)
        if metadata is None:
            return
        allowed = _allowed(output, metadata)
        for path in output.python_files():
            where = output.name_of(path)
            for module, line in sorted(_needed(path.read_bytes()).items()):
                if module not in allowed:
                    what = f"imports `{module}`, which {metadata.name} does not say it needs"
                    place = f"{where}:{line}"
                    yield Finding(self.name, "warning", place, what, _hint(module, metadata))


def _needed(source: bytes) -> dict[str, int]:
    """Top-level module -> the line that needs it first; nothing for what does not parse."""
    found: dict[str, int] = {}
    try:
        tree = parse_source(source)
    except (SyntaxError, ValueError):  # reported by `imports`
        return found
    for node, guarded in statements(tree):
        for name in () if guarded else imported(node):
            if not name.startswith("."):
                found.setdefault(name.partition(".")[0], getattr(node, "lineno", 0))
    return {name: line for name, line in found.items() if name}


def _allowed(output: Output, metadata: Metadata) -> set[str]:
    """Names of modules; the kernel's own is allowed here, as `imports` reports it."""
    brought = load("modules")
    framework = output.variant.framework if output.variant else ""
    return {
        *sys.stdlib_module_names,
        metadata.python_name,
        *brought["everywhere"],
        *brought["frameworks"].get(framework, ()),
        *brought["backends"].get(metadata.backend, ()),
        *(
            known.module
            for known in _packages(metadata)
            if known.module and known.name in metadata.python_depends
        ),
    }


def _packages(metadata: Metadata) -> Iterator[PythonPackage]:
    """Those that a kernel of that backend may depend on."""
    for scope in (EVERY_BACKEND, metadata.backend):
        yield from python_packages().get(scope, {}).values()


def _hint(module: str, metadata: Metadata) -> str:
    known = next((p.name for p in _packages(metadata) if p.module == module), None)
    if known:
        return f"name `{known}` in `python-depends` of build.toml"
    return "do without, or catch ImportError where it is optional: no kernel can depend on it"
