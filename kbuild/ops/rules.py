"""Rules for `[kernel.*]` sections in Python DSLs and for their tuned tables.

The readers of sections are imported on demand: most projects have no such section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbuild.project.config.document import TABLES_FOLDER, Document
from kbuild.project.config.issue import Issue, KeyPath, listed, one_of
from kbuild.project.config.model import CXX
from kbuild.project.config.rules.context import RuleContext
from kbuild.system.errors import ConfigError, Problem
from kbuild.system.version import Version

if TYPE_CHECKING:
    import ast

    from kbuild.ops.dialects import Dialect
    from kbuild.ops.model import Launch, OpSpec
    from kbuild.ops.schema.model import Schema
    from kbuild.ops.section import DslSection
    from kbuild.system.sourcetree import SourceTree


_FIRST_STABLE_LISTS = Version.parse("2.10")
"""First release of Torch whose stable ABI passes strings, lists and devices."""


class DslRules:
    """The rules of a project. They read each section once, into `sections`, which planning uses."""

    def __init__(self) -> None:
        self.sections: dict[str, tuple[DslSection, ...]] = {}
        """Kernel -> its section, and the sections that plug-ins derive from its keys."""

    def __call__(self, document: Document, context: RuleContext) -> Iterator[Issue]:
        """Yield all issues of the document's sections and tables."""
        tables = document.in_dsls()
        if not tables:
            return
        from kbuild.ops.section import read_section

        for name, table in tables.items():
            needs_ops = name not in context.plugins.kernels
            section = read_section(name, table, needs_ops=needs_ops)
            yield from _check_section(section, document, context)
            # Planning reports errors in these: the plug-in's command may correct them before.
            read = (
                read_section(own.name, {**table, **own.table}, origin=own.origin)
                for own in context.plugins.sections_of(name)
            )
            self.sections[name] = (section, *read)
        yield from _check_fallbacks(document)
        yield from _check_types(document)
        every = [section for sections in self.sections.values() for section in sections]
        for section in every:
            if not section.origin:
                yield from _check_functions(section, context.tree)
        yield from _check_tables(every, context.tree)


def _check_section(
    section: DslSection, document: Document, context: RuleContext
) -> Iterator[Issue]:
    """Yield issues of a section: an unknown language, keys, ops, toolchain."""
    from kbuild.ops.dialects import DIALECTS

    name, language = section.name, section.table["language"]
    dialect = DIALECTS.find(language)
    if dialect is None:
        hint = one_of(language, (CXX, *DIALECTS.names()))
        yield Issue(("kernel", name, "language"), f"`{language}` is not a language", hint)
        return
    yield from _check_dsl_backends(name, dialect, document, context)
    yield from _unknown_keys(name, section.table, document, context)
    yield from section.issues
    if not any(issue.path[2:3] == ("toolchain",) for issue in section.issues):
        yield from _check_toolchain(name, document, dialect)


def _check_fallbacks(document: Document) -> Iterator[Issue]:
    """Yield fallbacks of TVM-FFI functions: the DSL's launches need Torch."""
    if document.frameworks() != ["tvm-ffi"]:
        return
    for name in document.in_dsls():
        for index, _op in enumerate(document.items("kernel", name, "op")):
            path = ("kernel", name, "op", index, "fallback")
            if document.get(*path) == "jit":
                message = "runs the DSL on tensors of Torch, and this project is one for TVM-FFI"
                yield Issue(path, message, "leave it out, or use `[torch]`")


def _check_types(document: Document) -> Iterator[Issue]:
    """Yield arguments and results that old stable ABIs of Torch, or TVM-FFI, cannot pass."""
    for_ffi = document.frameworks() == ["tvm-ffi"]
    floor = document.get("torch", "stable-abi")
    floors = [value for value in (floor.values() if isinstance(floor, dict) else [floor]) if value]
    old = [value for value in floors if _is_below(str(value), _FIRST_STABLE_LISTS)]
    for name in document.in_dsls() if for_ffi or old else ():
        for index, _op in enumerate(document.items("kernel", name, "op")):
            yield from _boxed_steps(document, ("kernel", name, "op", index), old, for_ffi=for_ffi)
            path = ("kernel", name, "op", index, "schema")
            schema = _schema(document.text(*path))
            if schema is None:
                continue
            if for_ffi and any(result.type.is_optional for result in schema.returns):
                message = "a result that may be None cannot be returned through TVM-FFI"
                yield Issue(path, message, "return an empty tensor, or use `[torch]`")
            devices = [argument for argument in schema.arguments if argument.type.name == "Device"]
            if for_ffi and devices:
                hint = "leave it out: an op runs where its tensors are; or use `[torch]`"
                yield Issue(path, f"`{devices[0]}` cannot be passed through TVM-FFI", hint)
            kinds = ((a, a.type) for a in schema.arguments)
            boxed = [a for a, kind in kinds if kind.is_list or kind.name in {"str", "Device"}]
            if old and boxed:
                message = f"`{boxed[0]}` is not passed by the stable ABI of Torch {old[0]}"
                hint = f'write `stable-abi = "{_FIRST_STABLE_LISTS}"` or later in `[torch]`'
                yield Issue(path, message, hint)


def _boxed_steps(
    document: Document, op: KeyPath, old: list[Any], *, for_ffi: bool
) -> Iterator[Issue]:
    """Yield ATen calls and views that an old stable ABI, or TVM-FFI, does not support."""
    if for_ffi and document.get(*op, "views"):
        yield Issue((*op, "views"), "no function for TVM-FFI has views", "use `[torch]`")
    if for_ffi and document.get(*op, "projections"):
        yield Issue(
            (*op, "projections"), "no function for TVM-FFI has projections", "use `[torch]`"
        )
    for index, _launch in enumerate(document.items(*op, "launch")):
        path = (*op, "launch", index, "aten")
        if document.get(*path) is None:
            continue
        if for_ffi:
            message = "calls ATen, which a function for TVM-FFI cannot do"
            yield Issue(path, message, "launch a kernel for it, or use `[torch]`")
        if old:
            message = f"ATen is not called through the stable ABI of Torch {old[0]}"
            hint = f'write `stable-abi = "{_FIRST_STABLE_LISTS}"` or later in `[torch]`'
            yield Issue(path, message, hint)


def _is_below(text: str, floor: Version) -> bool:
    try:
        return Version.parse(text) < floor
    except ValueError:
        return False


def _schema(text: str | None) -> Schema | None:
    from kbuild.ops.schema.parser import SchemaError, parse_schema

    try:
        return parse_schema(text) if text is not None else None
    except SchemaError:
        return None


def _check_toolchain(name: str, document: Document, dialect: Dialect) -> Iterator[Issue]:
    path = ("kernel", name, "toolchain")
    text = document.text(*path)
    pins = [text] if text is not None else [pin for _, pin in document.strings(*path)]
    reason = dialect.unsupported_reason(pins) if pins else None
    if reason is not None:
        what, _, hint = reason.partition("; ")
        yield Issue(path, what, hint)


def _check_dsl_backends(
    name: str, dialect: Dialect, document: Document, context: RuleContext
) -> Iterator[Issue]:
    catalog = context.catalog
    able = [b for b in catalog.language_backends if dialect.on_cpu or b not in catalog.hosts]
    named = document.backends_of(name)
    if document.get("kernel", name, "backend") == []:
        yield Issue(("kernel", name, "backend"), "lists no backend", f"one of {listed(able)}")
    for position, (path, backend) in enumerate(named):
        if backend in catalog.kernel_sections and backend not in able:
            message = f"kernels for `{backend}` are not written in `{dialect.name}`"
            yield Issue(path, message, f"backends with such kernels: {listed(able)}")
        if backend in [other for _, other in named[:position]]:
            yield Issue(path, f"`{backend}` is listed twice", "keep one of them")
    for index, value in enumerate(document.items("kernel", name, "backend")):
        if not isinstance(value, str):
            yield Issue(("kernel", name, "backend", index), "must be a string")


def _unknown_keys(
    name: str, section: Mapping[str, Any], document: Document, context: RuleContext
) -> Iterator[Issue]:
    from kbuild.project.config.file_model import LanguageKeys
    from kbuild.project.config.model_errors import keys_of

    backends = {backend for _, backend in document.backends_of(name)}
    keys = {b: context.catalog.arch_keys.get(b, ()) for b in context.catalog.language_backends}
    arch_keys = [k[0] for backend, k in keys.items() if k and (backend in backends or not backends)]
    known = {"backend", *arch_keys, *keys_of(LanguageKeys)}
    for key in section.keys() - known:
        yield Issue(("kernel", name, key), "unknown key", f"allowed: {listed(sorted(known))}")


def _check_functions(section: DslSection, tree: SourceTree) -> Iterator[Issue]:
    """Yield ops whose kernels are not in the sources, or declare other dtypes."""
    from kbuild.ops.dialects import DIALECTS
    from kbuild.ops.kernel_functions import missing_kernel

    dialect = DIALECTS.find(section.table["language"])
    if dialect is None or section.errors:
        return
    for op in section.ops:
        modules = {file: _module(file, tree) for file in op.sources}
        parsed = {file: module for file, module in modules.items() if module is not None}
        for launch in op.launches:
            if len(parsed) == len(modules):
                missing = missing_kernel(op, launch, dialect, parsed)
                yield from filter(None, (missing,))
            yield from _type_mismatches(op, launch, dialect, parsed)


def _module(file: str, tree: SourceTree) -> ast.Module | None:
    try:
        return tree.scan(file, _parse)
    except (ConfigError, OSError):
        return None  # another rule reports it


def _type_mismatches(
    op: OpSpec, launch: Launch, dialect: Dialect, modules: Mapping[str, ast.Module]
) -> Iterator[Issue]:
    from kbuild.ops.declared_types import find_function, in_file, mismatches

    for file, module in modules.items():
        function = find_function(module, launch.functions)
        if function is not None:
            declared = in_file(dialect.declared_types(module, function), file)
            yield from mismatches(op, launch, declared)
            return


def _parse(data: bytes) -> ast.Module | None:
    from kbuild.sources.python_syntax import parse_source

    try:
        return parse_source(data)
    except SyntaxError:
        return None  # the DSL's own error names the line


_MAX_ROWS_SHOWN = 5
"""Maximum of useless rows of a table that are reported one by one."""


def _check_tables(sections: Sequence[DslSection], tree: SourceTree) -> Iterator[Issue]:
    """Yield invalid tables, and rows that match no launch or candidate."""
    if not tree.is_dir(TABLES_FOLDER):
        return
    from kbuild.ops.tuned_tables import parse_table, stale_rows

    is_sound = not any(section.errors for section in sections)
    ops = [op for section in sections for op in section.ops]
    for path in tree.walk(TABLES_FOLDER):
        if not path.endswith(".json"):
            continue
        try:
            file = parse_table(tree.read_text(path), path)
        except ConfigError as error:
            yield from map(_issue_of, error.problems)
            continue
        # Rows cannot be compared with a section that has errors.
        problems = stale_rows(file, ops) if is_sound else ()
        yield from map(_issue_of, problems[:_MAX_ROWS_SHOWN])
        count = len(problems) - _MAX_ROWS_SHOWN
        if count > 0:
            message = f"{count} more row{'s' * (count != 1)} do not match the kernels any more"
            yield Issue((), message, "`kbuild tune` measures again", "warning", path)


def _issue_of(problem: Problem) -> Issue:
    message = f"{problem.key}: {problem.message}" if problem.key else problem.message
    return Issue((), message, problem.hint, problem.severity, problem.file, problem.line)
