"""Rewrites the bindings of an extension: ops of Torch instead of functions of pybind11.

Functions of a `PYBIND11_MODULE` become ops whose schemas follow from their C++ signatures. A
`TORCH_LIBRARY` gets the namespace that the build defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbuild.errors import ConfigError
from kbuild.sources.cxx_signatures import (
    BoundFunction,
    BoundType,
    LabelledText,
    read_signature,
    schema_default,
)
from kbuild.sources.pybind import PybindFunction, PybindModule, read_pybind_module

_LIBRARY = re.compile(r"\b((?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?)\s*\(\s*(\w+)\s*,")
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


@dataclass
class Bindings:
    """What the sources of an extension register, and what has to be looked at."""

    texts: dict[str, str] = field(default_factory=dict)
    """Path -> rewritten text."""
    ops: list[str] = field(default_factory=list)
    """Functions of pybind11 that are ops now."""
    registering: list[str] = field(default_factory=list)
    """Paths of the sources that register ops."""
    namespaces: set[str] = field(default_factory=set)
    """Names of `TORCH_LIBRARY` that gave way to the build's."""
    notes: list[str] = field(default_factory=list)


def rewrite_bindings(texts: Mapping[str, str]) -> Bindings:
    """Rewrite the sources of one extension.

    Args:
        texts: path -> text of every source and header.
    """
    answer = Bindings()
    registered = False
    for path, text in texts.items():
        new = _EXTENSION_HEADERS.sub("#include <torch/all.h>", text)
        new = _PYBIND_HEADERS.sub("", new)
        module = read_pybind_module(new)
        if module is not None:
            lines = _library(path, module, tuple(texts.items()), answer)
            new = module.before + "\n".join(lines) + module.after
        new, count = _LIBRARY.subn(lambda match: _expanded(match, answer), new)
        if module is not None or count:
            new = _with_header(new)
            answer.registering.append(path)
        if not registered and (module is not None or re.search(r"\bTORCH_LIBRARY_EXPAND\(", new)):
            registered = True
            new = f"{new.rstrip()}\n\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n"
        if re.search(r"\bpy(bind11)?::", new):
            answer.notes.append(f"{path}: uses types of pybind11, which have no stable ABI")
        answer.texts[path] = new
    if not registered:
        answer.notes.append(
            f"{next(iter(texts), 'no source')}: neither this file nor those with it have a "
            "PYBIND11_MODULE or TORCH_LIBRARY: write the bindings"
        )
    return answer


def _expanded(match: re.Match[str], answer: Bindings) -> str:
    answer.namespaces.add(match[2])
    if match[1].endswith("_FRAGMENT"):
        answer.notes.append(f"TORCH_LIBRARY_FRAGMENT({match[2]}, ...) is a TORCH_LIBRARY now")
    macro = match[1].replace("_FRAGMENT", "")
    return f"{macro}_EXPAND(TORCH_EXTENSION_NAME,"


def _with_header(text: str) -> str:
    lines = ['#include "registration.h"']
    if "<torch/library.h>" not in text and "torch/csrc/stable/library.h" not in text:
        lines.insert(0, "#include <torch/library.h>")
    return "\n".join((*lines, "", text))


def _library(
    path: str, module: PybindModule, sources: Sequence[LabelledText], answer: Bindings
) -> list[str]:
    """The lines that register what the module binds; none for an empty module."""
    if not module.functions and not module.others:
        return []
    lines = ["TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {"]
    for _, statement in module.others:
        answer.notes.append(f"{path}: `{statement[:60]}` has no counterpart among ops")
    for bound in module.functions:
        try:
            function = read_signature(
                bound.target, sources, "at::Tensor", in_namespaces=True, others=_OTHER_TYPES
            )
        except ConfigError as error:
            (problem,) = error.problems
            answer.notes.append(f"{path}: {problem.message}: bind it by hand")
            continue
        narrow = next((kind for kind in _types(function) if _NARROW_INSIDE.search(kind.cxx)), None)
        if narrow is not None:
            answer.notes.append(
                f"{path}: `{bound.target}` has a `{narrow.cxx}`, which ops do not take"
            )
            continue
        schema = _described(path, bound, function, answer).schema
        lines.append(f'  ops.def("{schema}", {_callee(bound.target, function)});')
        answer.ops.append(bound.name)
    return [*lines, "}"]


def _described(
    path: str, bound: PybindFunction, function: BoundFunction, answer: Bindings
) -> BoundFunction:
    """The function with the names and defaults of Python, and with the tensors that it writes."""
    parameters = []
    words = bound.arguments
    if len(words) != len(function.parameters):
        words = tuple((part.name, "") for part in function.parameters)
    for part, (name, text) in zip(function.parameters, words, strict=True):
        default = schema_default(text, part.type.schema) if text else None
        if text and default is None:
            answer.notes.append(f"{path}: `{bound.name}`: no schema has the default `{text}`")
        is_written = part.type.is_mutable or (
            part.type.schema == "Tensor" and not function.results and "const" not in part.declared
        )
        kind = replace(part.type, is_mutable=is_written)
        parameters.append(replace(part, name=name, type=kind, default=default))
    described = replace(function, name=bound.name, parameters=tuple(parameters))
    if "!" in described.schema:
        answer.notes.append(
            f"{path}: `{described.schema.rpartition(' -> ')[0]}`: that it writes to these tensors "
            "is what its signature suggests; check the schema"
        )
    return described


def _types(function: BoundFunction) -> Iterator[BoundType]:
    yield from (part.type for part in function.parameters)
    yield from function.results


def _is_narrow(kind: BoundType) -> bool:
    """True for a number that ops do not take as it is."""
    return kind.schema in _WIDE and _AS_WIDE.fullmatch(kind.cxx) is None


def _callee(target: str, function: BoundFunction) -> str:
    """The function, or one around it that takes the wide numbers of schemas."""
    result = None if function.returns_tuple else next(iter(function.results), None)
    is_narrow = result is not None and _is_narrow(result)
    if not is_narrow and not any(_is_narrow(part.type) for part in function.parameters):
        return f"&{target}"
    taken, passed = [], []
    for part in function.parameters:
        kind = part.type
        taken.append(f"{_WIDE[kind.schema] if _is_narrow(kind) else part.declared} {part.name}")
        passed.append(f"static_cast<{kind.cxx}>({part.name})" if _is_narrow(kind) else part.name)
    call = f"{target}({', '.join(passed)})"
    if result is not None and is_narrow:
        call = f"static_cast<{_WIDE[result.schema]}>({call})"
    return f"[]({', '.join(taken)}) {{ return {call}; }}"
