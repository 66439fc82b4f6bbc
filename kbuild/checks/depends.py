"""A kernel's Python files need nothing that its users may not have.

Users have the standard library, the framework with its dependencies, and the packages of
`python-depends` with theirs. An import in a function or a branch is a note, and one whose failure
is caught is no finding.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from kbuild.checks.base import CHECKS, Check, Finding, Output, Severity
from kbuild.checks.libraries import metadata_of
from kbuild.checks.policies import load_data
from kbuild.plan.metadata import METADATA_FILE, Metadata
from kbuild.project.config.dependencies import EVERY_BACKEND, PythonPackage, python_packages
from kbuild.sources.python_syntax import When, imported_modules, parse_source, timed_statements


@CHECKS.add
class DependsCheck(Check):
    """Checks imports outside of `try` and of type checking: these must not fail."""

    name = "depends"
    summary = f"Python files import only what Torch provides and what `{METADATA_FILE}` declares."
    group = "code"

    def applies(self, output: Output) -> bool:
        """True where it is known what the kernel declares to need."""
        return output.variant is not None and metadata_of(output) is not None

    def run(self, output: Output) -> Iterator[Finding]:
        """One finding per file and module."""
        metadata = metadata_of(output)
        if metadata is None:
            return
        allowed = _allowed(output, metadata)
        for path in output.python_files():
            where = output.name_of(path)
            for module, (line, when) in sorted(_needed(path.read_bytes()).items()):
                if module not in allowed:
                    what = f"imports `{module}`, which {metadata.name} does not declare"
                    severity: Severity = "warning" if when == "load" else "info"
                    place, hint = f"{where}:{line}", hint_on(module, metadata)
                    yield Finding(self.name, severity, place, what, hint)


def _needed(source: bytes) -> dict[str, tuple[int, When]]:
    """Top-level module -> the line that needs it first, and when; nothing for what does not parse.

    A line that is carried out whenever the file is loaded comes before the others.
    """
    modules: dict[str, tuple[int, When]] = {}
    try:
        tree = parse_source(source)
    except SyntaxError:  # reported by `imports`
        return modules
    for node, when in timed_statements(tree, source):
        for name in () if when in ("optional", "never") else imported_modules(node):
            top = "" if name.startswith(".") else name.partition(".")[0]
            if top and (top not in modules or (modules[top][1], when) == ("later", "load")):
                modules[top] = getattr(node, "lineno", 0), when
    return modules


def _allowed(output: Output, metadata: Metadata) -> set[str]:
    """Names of modules; the kernel's own is allowed here, as `imports` reports it."""
    brought = load_data("modules")
    framework = output.variant.framework if output.variant else ""
    return {
        *sys.stdlib_module_names,
        metadata.python_name,
        *brought["everywhere"],
        *brought["frameworks"].get(framework, ()),
        *brought["backends"].get(metadata.backend, ()),
        *(module for module, _ in declared(metadata)),
        *(module for known in _declared_packages(metadata) for module in known.brings),
        *_kept_sources(output),
        *_replaced_modules(output),
    }


def _replaced_modules(output: Output) -> Iterator[str]:
    """Modules in whose place a package with captured launches gives its files others."""
    table = output.root / "_launch_table.py"
    if not table.is_file():
        return
    for node in parse_source(table.read_bytes()).body:
        if isinstance(node, ast.Assign):
            yield from ast.literal_eval(node.value)["replaced"]


def _kept_sources(output: Output) -> Iterator[str]:
    """Modules of an author's files that a package keeps apart: they find each other by name."""
    for path in sorted(output.root.glob("_*_sources/*")):
        yield path.stem


def declared(metadata: Metadata) -> tuple[tuple[str, str], ...]:
    """The modules that `python-depends` stands for, each with its distribution on PyPI."""
    return tuple(
        (known.module, known.package) for known in _declared_packages(metadata) if known.module
    )


def _declared_packages(metadata: Metadata) -> Iterator[PythonPackage]:
    return (known for known in _packages(metadata) if known.name in metadata.python_depends)


def _packages(metadata: Metadata) -> Iterator[PythonPackage]:
    """The packages that a kernel of that backend may depend on."""
    for scope in (EVERY_BACKEND, metadata.backend):
        yield from python_packages().get(scope, {}).values()


def hint_on(module: str, metadata: Metadata) -> str:
    """The remedy for a module that a kernel imports without declaring it."""
    known = next((p.name for p in _packages(metadata) if p.module == module), None)
    if known:
        return f"name `{known}` in `python-depends` of build.toml"
    return "remove the import, or catch ImportError if it is optional: kernels cannot depend on it"
