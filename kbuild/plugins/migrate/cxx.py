"""Rewrites the bindings of an extension: ops of Torch instead of functions of pybind11.

Functions of a `PYBIND11_MODULE` become ops whose schemas follow from their C++ signatures. A
`TORCH_LIBRARY` gets the namespace that the build defines. A namespace may be opened by one
`TORCH_LIBRARY` alone: where a package has several, the others become fragments, and fragments stay
what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kbuild.plugins.migrate.package import Bindings
from kbuild.sources.cxx import CxxToken, closing_sign, split_tokens, tokens_of
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

_LIBRARY = re.compile(r"\b((?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?)\s*\(\s*(\w+)\s*,")
_EXPANDED = re.compile(r"(?<!define )\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?_EXPAND\s*\(")
_OF_TORCH = frozenset(("aten", "_", "prim", "prims", "quantized", "c10", "onednn", "mkldnn"))
"""Namespaces that a package extends, and does not own."""
_OF_MODULES = re.compile(r"\b(?:set_python_module|impl_abstract_pystub)\s*\(")
_DEFINED = re.compile(
    r'\b\w+\s*\.\s*def\s*\(\s*(?:TORCH_\w+\(\s*)?(?:R"\w*\(|")\s*(?:\w+::)?([\w.]+)'
)
_CLASSES = re.compile(r"\.\s*class_\s*<")
_NAME = "TORCH_EXTENSION_NAME"


def rewrite_registrations(
    texts: Mapping[str, str], modules: Sequence[str], answer: Bindings
) -> None:
    """Rewrite `TORCH_LIBRARY` and the like in `answer.texts`."""
    answer.namespaces |= _own_namespaces(texts.values(), modules)
    for path, text in texts.items():
        new, count = _without_registry(path, text, answer)
        new = _LIBRARY.sub(partial(_expanded, path, answer), new)
        is_registering = count > 0 or new != text or _EXPANDED.search(text) is not None
        if is_registering:
            new = _without_namespaces(path, new, answer)
            answer.notes += [
                f"{path}:{_line(text, match.start())}: `{match[0]}...)` names a module that may "
                "have another name now: remove it"
                for match in _OF_MODULES.finditer(text)
            ]
            answer.notes += [
                f"{path}:{_line(text, match.start())}: a class of Torch, whose name in Python "
                "follows from the namespace"
                for match in _CLASSES.finditer(text)
            ]
            known = answer.ops.setdefault(path, [])
            known += [op for op in _DEFINED.findall(new) if op not in known]
        answer.texts[path] = new
        answer.registering += [path] * is_registering


def without_registration(text: str) -> str:
    """The text for a kernel's section, which does not see `registration.h`."""
    used = sorted(set(re.findall(r"\b(\w*TORCH_LIBRARY\w*)_EXPAND\(", text)))
    lines = ["// The macros paste their arguments: the build's name has to be expanded first."]
    for macro in used:
        arguments = "NAME, KEY, MODULE" if macro.endswith("_IMPL") else "NAME, MODULE"
        lines.append(f"#define {macro}_EXPAND({arguments}) {macro}({arguments})")
    return text.replace('#include "registration.h"', "\n".join(lines), 1)


def _own_namespaces(texts: Iterable[str], modules: Sequence[str]) -> set[str]:
    names = set()
    for text in texts:
        names |= {
            match[2]
            for match in _LIBRARY.finditer(text)
            if not match[1].endswith("_IMPL") and not _defined_macro(match)
        } - _OF_TORCH
        names |= {_NAME} if _EXPANDED.search(text) and _NAME in text else set()
        if "RegisterOperators" in text:
            names |= set(re.findall(r'"(\w+)::\w+', text)) - _OF_TORCH
    if _NAME in names:
        names |= {name.rpartition(".")[2] for name in modules}
    return names - {_NAME}


def _defined_macro(match: re.Match[str]) -> str:
    """The macro whose definition has the match, whose namespace is the macro's; else nothing."""
    # A definition goes on over lines that end in a backslash.
    before = re.sub(r"\\\n", " ", match.string[: match.start()]).rpartition("\n")[2]
    definition = re.match(r"\s*#\s*define\s+(\w+)", before)
    return definition[1] if definition else ""


def _expanded(path: str, answer: Bindings, match: re.Match[str]) -> str:
    """The macro that expands the build's name; those of other namespaces stay."""
    if macro := _defined_macro(match):
        if not macro.endswith("_EXPAND"):
            place = f"{path}:{_line(match.string, match.start())}"
            answer.notes.append(f"{place}: `{macro}` opens a namespace: it has to be `{_NAME}`")
        return match[0]
    if match[2] not in answer.namespaces | {_NAME}:
        return match[0]
    macro = match[1]
    if not macro.endswith(("_IMPL", "_FRAGMENT")):
        macro = f"{macro}_FRAGMENT" if answer.is_opened else macro
        answer.is_opened = True
    return f"{macro}_EXPAND({_NAME},"


def _without_namespaces(path: str, text: str, answer: Bindings) -> str:
    """`m.def("own::f...` without the namespace; other mentions of it are listed."""
    names = "|".join(map(re.escape, sorted(answer.namespaces)))
    if not names:
        return text
    text = re.sub(
        rf'(\b(?:def|impl)\s*\(\s*(?:TORCH_\w+\(\s*)?(?:R"\w*\(|"))(?:{names})::', r"\1", text
    )
    for match in re.finditer(rf'"(?:{names})::\w+', text):
        place = f"{path}:{_line(text, match.start())}"
        answer.notes.append(f'{place}: `{match[0]}"` is looked up by a namespace that is gone')
    return text


def _without_registry(path: str, text: str, answer: Bindings) -> tuple[str, int]:
    """The text with fragments instead of `RegisterOperators`, and how many were rewritten."""
    if "RegisterOperators" not in text:
        return text, 0
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def offset(token: CxxToken) -> int:
        return starts[token.line - 1] + token.column - 1

    changes = []
    for statement in _statements(tokens_of(text)):
        at = next((n for n, part in enumerate(statement) if part.text == "RegisterOperators"), None)
        if at is None or statement[0].text == "using":
            continue
        definitions = _definitions(text, statement, offset)
        if definitions is None:
            place = f"{path}:{statement[at].line}"
            answer.notes.append(f"{place}: this `RegisterOperators` has options: use TORCH_LIBRARY")
            continue
        lines = [f"TORCH_LIBRARY_FRAGMENT_EXPAND({_NAME}, ops) {{"]
        lines += [f"  ops.def({schema}, {target});" for schema, target in definitions]
        end = text.index(";", offset(statement[-1])) + 1
        changes.append((offset(statement[0]), end, "\n".join([*lines, "}"])))
    # From the end, so that the offsets of earlier changes stay right.
    for start, end, new in reversed(changes):
        text = text[:start] + new + text[end:]
    return text, len(changes)


def _statements(tokens: Sequence[CxxToken]) -> Iterator[Sequence[CxxToken]]:
    """Statements that end in a semicolon, at the top level and in namespaces."""
    statement: list[CxxToken] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.text == ";":
            if statement:
                yield statement
            statement = []
        elif token.text == "}" or (
            token.text == "{" and statement[:1] and statement[0].text in ("namespace", "extern")
        ):
            statement = []
        elif token.text in ("{", "("):
            end = closing_sign(tokens, at, "{}" if token.text == "{" else "()")
            # A body ends a statement without a semicolon; the braces of an initializer do not.
            is_body = token.text == "{" and not any(
                part.text == "RegisterOperators" for part in statement
            )
            statement = [] if is_body else [*statement, *tokens[at : end + 1]]
            at = end
        else:
            statement.append(token)
        at += 1


def _definitions(
    text: str, statement: Sequence[CxxToken], offset: Callable[[CxxToken], int]
) -> list[tuple[str, str]] | None:
    """Schema and function of each op; None where one has options."""
    last = max(n for n, part in enumerate(statement) if part.text == "RegisterOperators")
    operators = []
    at = last + 1
    while at < len(statement):
        token = statement[at]
        if token.text not in ("(", "{"):
            at += 1
            continue
        end = closing_sign(statement, at, "()" if token.text == "(" else "{}")
        parts = list(split_tokens(statement[at + 1 : end], ","))
        if parts:
            strings = all(part.kind == "string" for part in parts[0])
            if len(parts) != 2 or not strings or any(p.text == "options" for p in parts[1]):  # noqa: PLR2004
                return None
            schema = "".join(part.text[1:-1] for part in parts[0])
            first, final = parts[1][0], parts[1][-1]
            target = text[offset(first) : offset(final) + len(final.text)]
            name = schema.partition("(")[0].rpartition("::")[2] + "".join(schema.partition("(")[1:])
            operators.append((f'"{name}"', target))
        at = end + 1
    return operators or None


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


_EXTENSION_HEADERS = re.compile(
    r"^[ \t]*#\s*include\s*<(torch/extension\.h|torch/python\.h)>", re.MULTILINE
)
_PYBIND_HEADERS = re.compile(r"^[ \t]*#\s*include\s*[<\"]pybind11/[^\n]*\n", re.MULTILINE)
_WIDE = {"int": "int64_t", "float": "double"}
_AS_WIDE = re.compile(r"(?:std::)?int64_t|long|double")
_NARROW_INSIDE = re.compile(
    r"<(?:.*\b)?(?:u?int(?:8|16|32)?(?:_t)?|uint64_t|long long|short|unsigned|s?size_t|float)\b"
)
"""Narrow numbers inside a list or an optional, where no number can be converted."""
_OTHER_TYPES = ("Scalar", "Device")
"""Types of Torch that its own ops take, and those of the stable ABI do not."""


def rewrite_bindings(texts: Mapping[str, str], modules: Sequence[str] = ()) -> Bindings:
    """Rewrite the sources of a package."""
    answer = Bindings()
    without: dict[str, str] = {}
    bound = []
    for path, text in texts.items():
        new = _EXTENSION_HEADERS.sub("#include <torch/all.h>", text)
        # A blank line in its place keeps the numbers of those below, which notes name.
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
    """True for a reference to anything but a tensor, through which C++ callers see changes."""
    text = part.declared
    is_reference = text.rstrip().endswith("&") and not text.rstrip().endswith("&&")
    return is_reference and "const" not in text and "Tensor" not in part.type.schema


def _described(
    place: str, bound: PybindFunction, function: BoundFunction, answer: Bindings
) -> BoundFunction:
    """The function with the names and defaults of Python, and with the tensors that it writes."""
    parameters = []
    arguments = bound.arguments
    if len(arguments) != len(function.parameters):
        if any(text for _, text in arguments):
            answer.notes.append(f"{place}: `{bound.name}`: its defaults are not taken over")
        arguments = tuple((part.name, "") for part in function.parameters)
    for part, (name, text) in zip(function.parameters, arguments, strict=True):
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
    """True for a type that Torch passes differently: a narrow number, a reference to tensors."""
    return _is_narrow(part.type) or (part.type.is_mutable and part.type.schema != "Tensor")


def _callee(target: str, function: BoundFunction) -> str:
    """The function to call, wrapped if it takes narrower numbers than schemas have."""
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
