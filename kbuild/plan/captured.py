"""Kernels whose launches are captured: the ops of each source that has such functions."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from kbuild.ops.captured.description import (
    kernels_file,
    read_declaration,
    read_description,
    staleness,
    wrapper_file,
)
from kbuild.ops.captured.launches import (
    CapturedFunction,
    captured_file,
    launch_ops,
    module_of,
    parse_captured,
    wrapper_kernel,
)
from kbuild.ops.captured.tuning import with_tuning
from kbuild.ops.dialects import DIALECTS
from kbuild.ops.function_digests import source_digests
from kbuild.ops.language import LANGUAGES
from kbuild.ops.model import IssueCollector
from kbuild.ops.section import read_section
from kbuild.plan.context import PlanningContext
from kbuild.plan.plan import AotKernel
from kbuild.project.config.file_model import LanguageSection
from kbuild.project.config.issue import one_of
from kbuild.project.config.load import config_error, locate_issues
from kbuild.system.errors import ConfigError, Problem
from kbuild.system.sourcetree import SourceTree


def captured_kernels(
    desk: PlanningContext, kernel: AotKernel, section: LanguageSection
) -> Iterator[AotKernel]:
    """A kernel for each source whose launches are captured.

    Args:
        desk: the variant.
        kernel: the section's own.
        section: with `capture`.

    Raises:
        ConfigError: launches cannot be captured, or have not been.
    """
    if LANGUAGES.get(section.language).launch_runtime is None:
        message = f"launches of `{section.language}` kernels cannot be captured"
        where = ("kernel", kernel.name, "capture")
        raise config_error(desk.tree, where, message, "describe the ops in `op`")
    if desk.framework.table != "torch":
        message = "only packages for Torch launch kernels from an author's Python"
        where = ("kernel", kernel.name, "capture")
        raise config_error(desk.tree, where, message, "use `[torch]`")
    own = _without_ops(kernel)
    texts = source_digests({path: desk.tree.read_text(path) for path in kernel.sources})
    functions = captured_functions(desk.tree, kernel.name, section)
    for number, ops in enumerate(launch_ops(kernel.name, functions)):
        sources = texts.imported(ops.source)
        is_first = number == 0 and not section.op
        own_name = kernel.name if is_first else f"{kernel.name}_launches_{number}"
        yield replace(
            kernel,
            section=read_section(own_name, {**own, "src": list(sources), "op": list(ops.ops)}),
            captured={
                "sources": kernel.sources,
                "functions": ops.functions,
                "jit": any(capture.fallback == "jit" for capture in section.capture),
            },
        )


def stale_functions(tree: SourceTree, name: str, section: LanguageSection) -> Iterator[str]:
    """A sentence for each kernel function that has changed since its launches were captured."""
    digests = source_digests({path: tree.read_text(path) for path in section.src})
    for function in captured_functions(tree, name, section):
        if digests.of(function.source, function.name) != function.digest:
            yield (
                f"`{function.name}` in {function.source} has changed since its launches were "
                "captured; `kbuild capture --check` lists such functions"
            )


def captured_functions(
    tree: SourceTree, name: str, section: LanguageSection
) -> tuple[CapturedFunction, ...]:
    """The kernel functions that the section captures at their launches.

    Raises:
        ConfigError: they were never recorded, or are of a file that `src` does not list.
    """
    file = captured_file(name)
    if not tree.is_file(file):
        message = f"kernel.{name} captures launches, and `{file}` does not exist"
        hint = "record them: `kbuild capture --record -- pytest tests`, on a GPU or interpreted"
        raise config_error(tree, ("kernel", name, "capture"), message, hint)
    patterns = [pattern for capture in section.capture for pattern in capture.launches]
    sources = {posixpath.normpath(path) for path in section.src}
    functions = []
    for function in parse_captured(tree.read_text(file), file).functions:
        if function.source not in sources:
            message = f"`{function.source}` is not in `src` of kernel.{name}"
            hint = "record the launches again: `kbuild capture --record -- COMMAND`"
            raise ConfigError([Problem(file, 0, "", message, hint)])
        if any(fnmatchcase(module_of(function.source), pattern) for pattern in patterns):
            functions.append(function)
    if not functions:
        message = f"`{file}` has no launches of {', '.join(patterns)}"
        raise config_error(tree, ("kernel", name, "capture"), message)
    return tuple(functions)


def wrapped_kernels(
    desk: PlanningContext, kernel: AotKernel, section: LanguageSection
) -> Iterator[AotKernel]:
    """A kernel for each function that is captured whole.

    Raises:
        ConfigError: it was not captured.
    """
    texts = source_digests({path: desk.tree.read_text(path) for path in kernel.sources})
    own = _without_ops(kernel)
    for index, table in enumerate(section.capture):
        if table.function is None:
            continue
        place = IssueCollector(("kernel", kernel.name, "capture", index))
        declaration = read_declaration(kernel.section.table["capture"][index], place.path, place)
        if declaration is None:
            raise ConfigError(locate_issues(place.issues, desk.tree))
        file = wrapper_file(kernel.name, declaration.name)
        if not desk.tree.is_file(file):
            where = ("kernel", kernel.name, "capture")
            message = f"`{declaration.function}` is not captured: `{file}` does not exist"
            raise config_error(desk.tree, where, message, "run `kbuild capture`")
        data = read_description(desk.tree.read_text(file), file)
        captured_as = LANGUAGES.get(section.language).captured_as
        if not captured_as or captured_as == section.language:
            sources = texts.imported(data["source"])
        else:
            sources = (_generated_kernels(desk.tree, kernel.name, declaration.name),)
            own |= _written_as(captured_as, section.pins)
        tune = kernel.section.table["capture"][index].get("tune", {})
        _validate_tuning(tune, data["ops"], place.at("tune"), desk.tree)
        ops = [with_tuning(op, tune) for op in data["ops"]]
        captured = read_section(
            wrapper_kernel(kernel.name, declaration.name),
            {**own, "src": list(sources), "op": ops},
        )
        yield replace(
            kernel,
            # Their conditions cover all calls together, so that no warning applies.
            section=replace(captured, issues=captured.errors),
            wrappers=({key: value for key, value in data.items() if key != "ops"},),
        )


def _generated_kernels(tree: SourceTree, kernel: str, name: str) -> str:
    """The file with the kernels that a DSL has written.

    Raises:
        ConfigError: there is none.
    """
    file = kernels_file(kernel, name)
    if not tree.is_file(file):
        message = f"`{file}` does not exist, which `kbuild capture` writes"
        hint = "run `kbuild capture`, and commit both files"
        raise config_error(tree, ("kernel", kernel, "capture"), message, hint)
    return file


def _written_as(language: str, pins: Sequence[str]) -> dict[str, Any]:
    """What a section says whose kernels are in the language that a DSL writes."""
    needed = DIALECTS.get(language).distributions
    return {"language": language, "toolchain": [p for p in pins if p.partition("==")[0] in needed]}


def _without_ops(kernel: AotKernel) -> dict[str, Any]:
    table = kernel.section.table
    return {key: value for key, value in table.items() if key not in {"op", "capture"}}


def _validate_tuning(
    table: Mapping[str, Any],
    ops: Sequence[Mapping[str, Any]],
    place: IssueCollector,
    tree: SourceTree,
) -> None:
    """Whether `tune` of a captured function names what its ops have.

    Raises:
        ConfigError: it does not.
    """
    known = {name for op in ops for name in op.get("tune", {}).get("sizes", {})}
    named = {name: ("sizes", name) for name in table.get("sizes", {})}
    for at, case in enumerate(table.get("cases", ())):
        named |= {name: ("cases", at, name) for name in case}
    for name, keys in named.items():
        if name not in known:
            message = f"`{name}` is neither a size nor an argument of the tuned ops"
            place.at(*keys).error(message, one_of(name, known))
    if "reference" in table:
        message = "ops of a captured function are compared with their first candidate"
        place.at("reference").error(message, "leave it out")
    if place.issues:
        raise ConfigError(locate_issues(place.issues, tree))


def stale_wrappers(tree: SourceTree, name: str, section: LanguageSection) -> Iterator[str]:
    """A sentence for each function that has changed since it was captured."""
    written = section.as_written().get("capture", ())
    for index, table in enumerate(written):
        place = IssueCollector(("kernel", name, "capture", index))
        declaration = read_declaration(table, place.path, place) if table.get("function") else None
        file = wrapper_file(name, declaration.name) if declaration else ""
        if declaration is not None and tree.is_file(file):
            texts = {path: tree.read_text(path) for path in section.src}
            if reason := staleness(
                declaration, read_description(tree.read_text(file), file), texts
            ):
                yield f"{reason}; `kbuild capture` describes it anew"
