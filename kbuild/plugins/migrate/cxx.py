"""Rewrites the bindings of an extension: ops of Torch instead of functions of pybind11.

Functions of a `PYBIND11_MODULE` become ops whose schemas follow from their C++ signatures. A
`TORCH_LIBRARY` gets the namespace that the build defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kbuild.plugins.migrate.bindings import Bindings
from kbuild.plugins.migrate.registrations import rewrite_registrations
from kbuild.sources.cxx_signatures import (
    BoundFunction,
    BoundParameter,
    BoundType,
    LabelledText,
    read_signature,
    schema_default,
)
from kbuild.sources.pybind import PybindFunction, PybindModule, read_pybind_module
from kbuild.system.errors import ConfigError

_EXTENSION_HEADERS = re.compile(
    r"^[ \t]*#\s*include\s*<(torch/extension\.h|torch/python\.h)>", re.MULTILINE
)
_PYBIND_HEADERS = re.compile(r"^[ \t]*#\s*include\s*[<\"]pybind11/[^\n]*\n", re.MULTILINE)
_WIDE = {"int": "int64_t", "float": "double"}
_AS_WIDE = re.compile(r"(?:std::)?int64_t|long|double")
_NARROW_INSIDE = re.compile(
    r"<(?:.*\b)?(?:u?int(?:8|16|32)?(?:_t)?|uint64_t|long long|short|unsigned|s?size_t|float)\b"
)
"""In a list or an optional, where no number can be converted."""
_OTHER_TYPES = ("Scalar", "Device")
"""Types of Torch that its own ops take, and those of the stable ABI do not."""


def rewrite_bindings(texts: Mapping[str, str], modules: Sequence[str] = ()) -> Bindings:
    """Rewrite the sources of a package.

    Args:
        texts: path -> text of every source and header.
        modules: names of its extension modules.
    """
    answer = Bindings()
    without: dict[str, str] = {}
    bound = []
    for path, text in texts.items():
        new = _EXTENSION_HEADERS.sub("#include <torch/all.h>", text)
        new = _PYBIND_HEADERS.sub("\n", new)
        while (module := read_pybind_module(new)) is not None:
            bound.append(path)
            lines = _library(path, module, tuple(texts.items()), answer)
            new = module.before + "\n".join(lines) + module.after
        without[path] = new
        if match := re.search(r"\bpy(bind11)?::", new):
            place = path if path in bound else f"{path}:{new.count(chr(10), 0, match.start()) + 1}"
            answer.notes.append(f"{place}: uses types of pybind11, which have no stable ABI")
    rewrite_registrations(without, modules, answer)
    for path in dict.fromkeys((*answer.registering, *bound)):
        answer.texts[path] = _with_header(answer.texts[path])
    answer.registering = list(dict.fromkeys((*answer.registering, *bound)))
    if texts and not answer.registering:
        answer.notes.append(
            f"{next(iter(texts))}: neither this file nor those with it have a "
            "PYBIND11_MODULE or TORCH_LIBRARY: write the bindings"
        )
    return answer


def _with_header(text: str) -> str:
    lines = [] if '#include "registration.h"' in text else ['#include "registration.h"']
    if "<torch/library.h>" not in text and "torch/csrc/stable/library.h" not in text:
        lines.insert(0, "#include <torch/library.h>")
    return "\n".join((*lines, "", text)) if lines else text


def _library(
    path: str, module: PybindModule, sources: Sequence[LabelledText], answer: Bindings
) -> list[str]:
    """The lines that register what the module binds; none for an empty module."""
    if not module.functions and not module.others:
        return []
    macro = "TORCH_LIBRARY_FRAGMENT_EXPAND" if answer.is_opened else "TORCH_LIBRARY_EXPAND"
    answer.is_opened = True
    lines = [f"{macro}(TORCH_EXTENSION_NAME, ops) {{"]
    for line, statement in module.others:
        answer.notes.append(f"{path}:{line}: `{statement[:60]}` has no counterpart among ops")
    for bound in module.functions:
        place = f"{path}:{bound.line}"
        try:
            function = read_signature(
                bound.target, sources, "at::Tensor", in_namespaces=True, others=_OTHER_TYPES
            )
        except ConfigError as error:
            (problem,) = error.problems
            answer.notes.append(f"{place}: {problem.message}: bind it by hand")
            continue
        lost = next((part for part in function.parameters if _loses_changes(part)), None)
        if lost is not None:
            answer.notes.append(
                f"{place}: `{bound.target}` changes `{lost.declared} {lost.name}`, and no op "
                "gives that back: bind it by hand"
            )
            continue
        narrow = next((kind for kind in _types(function) if _NARROW_INSIDE.search(kind.cxx)), None)
        if narrow is not None:
            answer.notes.append(
                f"{place}: `{bound.target}` has a `{narrow.cxx}`, which ops do not take"
            )
            continue
        schema = _described(place, bound, function, answer).schema.replace('"', '\\"')
        lines.append(f'  ops.def("{schema}", {_callee(bound.target, function)});')
        answer.ops.setdefault(path, []).append(bound.name)
    return [*lines, "}"]


def _loses_changes(part: BoundParameter) -> bool:
    """True for a reference to what is no tensor: a caller of C++ sees what the function writes."""
    text = part.declared
    is_reference = text.rstrip().endswith("&") and not text.rstrip().endswith("&&")
    return is_reference and "const" not in text and "Tensor" not in part.type.schema


def _described(
    place: str, bound: PybindFunction, function: BoundFunction, answer: Bindings
) -> BoundFunction:
    """The function with the names and defaults of Python, and with the tensors that it writes."""
    parameters = []
    words = bound.arguments
    if len(words) != len(function.parameters):
        if any(text for _, text in words):
            answer.notes.append(f"{place}: `{bound.name}`: its defaults are not taken over")
        words = tuple((part.name, "") for part in function.parameters)
    for part, (name, text) in zip(function.parameters, words, strict=True):
        default = schema_default(text, part.type.schema) if text else None
        if text and default is None:
            answer.notes.append(f"{place}: `{bound.name}`: no schema has the default `{text}`")
        is_written = part.type.is_mutable or (
            part.type.schema == "Tensor" and not function.results and "const" not in part.declared
        )
        kind = replace(part.type, is_mutable=is_written)
        parameters.append(replace(part, name=name, type=kind, default=default))
    required = max((at for at, part in enumerate(parameters) if part.default is None), default=0)
    for at, part in enumerate(parameters[:required]):
        if part.default is not None:
            message = f"`{part.name}={part.default}` stands before one without a default"
            answer.notes.append(f"{place}: `{bound.name}`: {message}, and is required")
            parameters[at] = replace(part, default=None)
    described = replace(function, name=bound.name, parameters=tuple(parameters))
    if "!" in described.schema:
        answer.notes.append(
            f"{place}: `{described.schema.rpartition(' -> ')[0]}`: that it writes to these tensors "
            "is what its signature suggests; check the schema"
        )
    return described


def _types(function: BoundFunction) -> Iterator[BoundType]:
    yield from (part.type for part in function.parameters)
    yield from function.results


def _is_narrow(kind: BoundType) -> bool:
    """True for a number that ops do not take as it is."""
    return kind.schema in _WIDE and _AS_WIDE.fullmatch(kind.cxx) is None


def _is_wrapped(part: BoundParameter) -> bool:
    """True for what Torch hands over otherwise: narrow numbers, references to lists of tensors."""
    return _is_narrow(part.type) or (part.type.is_mutable and part.type.schema != "Tensor")


def _callee(target: str, function: BoundFunction) -> str:
    """The function, or one around it that takes the wide numbers of schemas."""
    result = None if function.returns_tuple else next(iter(function.results), None)
    is_narrow = result is not None and _is_narrow(result)
    if not is_narrow and not any(map(_is_wrapped, function.parameters)):
        return f"&{target}"
    taken, passed = [], []
    for part in function.parameters:
        kind = part.type
        own = kind.cxx if _is_wrapped(part) else part.declared
        taken.append(f"{_WIDE[kind.schema] if _is_narrow(kind) else own} {part.name}")
        passed.append(f"static_cast<{kind.cxx}>({part.name})" if _is_narrow(kind) else part.name)
    call = f"{target}({', '.join(passed)})"
    if result is not None and is_narrow:
        call = f"static_cast<{_WIDE[result.schema]}>({call})"
    return f"[]({', '.join(taken)}) {{ return {call}; }}"
