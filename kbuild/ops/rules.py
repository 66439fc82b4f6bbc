"""Rules for `[kernel.*]` sections in Python DSLs and for their tuned tables.

The readers of sections are imported on demand: most projects have no such section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbuild.project.config.document import TABLES_FOLDER, Document
from kbuild.project.config.issue import Issue, listed, one_of
from kbuild.project.config.model import CXX
from kbuild.project.config.rules.context import RuleContext
from kbuild.system.errors import ConfigError, Problem
from kbuild.system.version import Version

if TYPE_CHECKING:
    from kbuild.ops.dialects import Dialect
    from kbuild.ops.model import OpSpec
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
        every = [section for sections in self.sections.values() for section in sections]
        own = [section for section in every if not section.origin]
        yield from _check_frameworks(own, document)
        for section in own:
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
        path = ("kernel", name, "toolchain")
        text = document.text(*path)
        pins = [text] if text is not None else [pin for _, pin in document.strings(*path)]
        reason = dialect.unsupported_reason(pins) if pins else None
        if reason is not None:
            what, _, hint = reason.partition("; ")
            yield Issue(path, what, hint)


def _check_frameworks(sections: Sequence[DslSection], document: Document) -> Iterator[Issue]:
    """Yield parts of ops that TVM-FFI, or an old stable ABI of Torch, does not support."""
    is_for_ffi = document.frameworks() == ["tvm-ffi"]
    floor = document.get("torch", "stable-abi")
    floors = [value for value in (floor.values() if isinstance(floor, dict) else [floor]) if value]
    old = [str(value) for value in floors if _is_below(str(value), _FIRST_STABLE_LISTS)]
    for op in (op for section in sections for op in section.ops):
        if is_for_ffi:
            yield from tvm_ffi_issues(op)
        if old:
            yield from _stable_abi_issues(op, old[0])


def tvm_ffi_issues(op: OpSpec) -> Iterator[Issue]:
    """Yield the parts of an op that a function for TVM-FFI cannot have."""
    schema = (*op.path, "schema")
    if op.fallback == "jit":
        message = "runs the DSL on tensors of Torch, and this project is one for TVM-FFI"
        yield Issue((*op.path, "fallback"), message, "leave it out, or use `[torch]`")
    if op.returned:
        message = "a result that may be None cannot be returned through TVM-FFI"
        yield Issue(schema, message, "return an empty tensor, or use `[torch]`")
    for argument in op.schema.arguments:
        if argument.type.name == "Device":
            hint = "leave it out: an op runs where its tensors are; or use `[torch]`"
            yield Issue(schema, f"`{argument}` cannot be passed through TVM-FFI", hint)
    for key in ("views", "projections"):
        if getattr(op, key):
            yield Issue((*op.path, key), f"no function for TVM-FFI has {key}", "use `[torch]`")
    for call in op.aten:
        message = "calls ATen, which a function for TVM-FFI cannot do"
        yield Issue((*call.path, "aten"), message, "launch a kernel for it, or use `[torch]`")


def _stable_abi_issues(op: OpSpec, release: str) -> Iterator[Issue]:
    """Yield the parts of an op that the stable ABI of a Torch release before 2.10 lacks."""
    hint = f'write `stable-abi = "{_FIRST_STABLE_LISTS}"` or later in `[torch]`'
    kinds = ((argument, argument.type) for argument in op.schema.arguments)
    boxed = [a for a, kind in kinds if kind.is_list or kind.name in {"str", "Device"}]
    if boxed:
        message = f"`{boxed[0]}` is not passed by the stable ABI of Torch {release}"
        yield Issue((*op.path, "schema"), message, hint)
    for call in op.aten:
        message = f"ATen is not called through the stable ABI of Torch {release}"
        yield Issue((*call.path, "aten"), message, hint)


def _is_below(text: str, floor: Version) -> bool:
    try:
        return Version.parse(text) < floor
    except ValueError:
        return False


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


_DYNAMIC = re.compile(
    r"\b(?:globals|locals|vars|setattr|exec|eval|__dict__|__getattr__)\b|\bimport\s+\*"
)
"""Ways in which a source may define names that its text does not have."""


def _check_functions(section: DslSection, tree: SourceTree) -> Iterator[Issue]:
    """Yield launches whose functions no source names; the build finds all others."""
    from kbuild.ops.dialects import DIALECTS

    dialect = DIALECTS.find(section.table["language"])
    if dialect is None or section.errors or not dialect.decorator:
        return
    try:
        text = "\n".join(tree.read_text(file) for file in section.sources)
    except (ConfigError, OSError):
        return  # another rule reports the file
    known = {*re.findall(r"\w+", text)}
    if not known or _DYNAMIC.search(text):
        return
    for launch in (launch for op in section.ops for launch in op.launches):
        if known.isdisjoint(launch.functions):
            wanted = " or ".join(f"`{name}`" for name in launch.functions)
            hint = one_of(launch.functions[0], re.findall(r"\bdef\s+(\w+)", text))
            message = f"there is no {wanted} in `{section.sources[0]}`"
            yield Issue((*launch.path, "function"), message, hint)


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
