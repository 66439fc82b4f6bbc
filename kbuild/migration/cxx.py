"""Rewrites the bindings of an extension: ops of Torch instead of functions of pybind11.

Functions of a `PYBIND11_MODULE` become ops whose schemas follow from their C++ signatures. A
`TORCH_LIBRARY` gets the namespace that the build defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,\s*(\w+)\s*\)\s*\{")
_LIBRARY = re.compile(r"\b((?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?)\s*\(\s*(\w+)\s*,")
_DEFINED = re.compile(r'\.def\(\s*"(\w+)"\s*,\s*&?\s*([\w:]+)\s*')
_ARGUMENT = re.compile(
    r'(?:py|pybind11)::arg\(\s*"(\w+)"\s*\)(?:\s*=\s*([^,]+))?|"(\w+)"_a(?:\s*=\s*([^,]+))?'
)
_EXTENSION_HEADERS = re.compile(
    r"^[ \t]*#\s*include\s*<(torch/extension\.h|torch/python\.h)>", re.MULTILINE
)
_PYBIND_HEADERS = re.compile(r"^[ \t]*#\s*include\s*[<\"]pybind11/[^\n]*\n", re.MULTILINE)
_QUALIFIERS = re.compile(
    r"\b(?:const|inline|static|extern|typename|C10_EXPORT|TORCH_API)\b|\b(?:torch|at|c10|std)::"
)
_PLAIN = {
    "Tensor": "Tensor", "int64_t": "int", "long": "int", "double": "float", "bool": "bool",
    "string": "str", "string_view": "str", "TensorList": "Tensor[]", "IntArrayRef": "int[]",
    "ScalarType": "ScalarType", "Scalar": "Scalar", "Device": "Device", "void": "()",
}  # fmt: skip
_NARROW = {
    **dict.fromkeys(
        ("int", "int32_t", "uint32_t", "unsigned", "size_t", "short", "uint8_t"), "int"
    ),
    "float": "float",
}
_WIDE = {"int": "int64_t", "float": "double"}
_LISTS = ("vector", "ArrayRef", "List")
_DEFAULTS = {"true": "True", "false": "False", "py::none()": "None", "std::nullopt": "None"}


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


@dataclass(frozen=True)
class _CxxParameter:
    type: str
    """As C++ writes it."""
    name: str
    schema: str = ""
    """Type in a schema; empty when there is none."""

    @property
    def plain(self) -> str:
        """The type without qualifiers and references."""
        return _plain(self.type)

    @property
    def is_written(self) -> bool:
        """True for a tensor that a function may change, as far as its type says."""
        return self.plain == "Tensor" and "const" not in self.type.split()


def rewrite_bindings(texts: Mapping[str, str]) -> Bindings:
    """Rewrite the sources of one extension.

    Args:
        texts: path -> text of every source and header.
    """
    answer = Bindings()
    everything = "\n".join(_COMMENT.sub(_blank, text) for text in texts.values())
    registered = False
    for path, text in texts.items():
        new = _EXTENSION_HEADERS.sub("#include <torch/all.h>", text)
        new = _PYBIND_HEADERS.sub("", new)
        has_module = bool(_PYBIND.search(new))
        new = _without_pybind(path, new, everything, answer)
        new, count = _LIBRARY.subn(lambda match: _expanded(match, answer), new)
        if has_module or count:
            new = _with_header(new)
            answer.registering.append(path)
        if not registered and (has_module or re.search(r"\bTORCH_LIBRARY_EXPAND\(", new)):
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


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else " "


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


def _without_pybind(path: str, text: str, everything: str, answer: Bindings) -> str:
    match = _PYBIND.search(text)
    if match is None:
        return text
    end = _closing(text, match.end() - 1)
    block = text[match.end() : end]
    if not block.strip():
        return text[: match.start()] + text[end + 1 :]
    lines = ["TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {"]
    for statement in _split(_COMMENT.sub(_blank, block), ";"):
        defined = _DEFINED.search(statement)
        if defined is None:
            if statement.strip() and ".doc()" not in statement:
                shown = " ".join(statement.split())[:60]
                answer.notes.append(f"{path}: `{shown}` has no counterpart among ops")
            continue
        line = _op(
            path, defined[1], defined[2], statement[defined.end() :], everything, answer=answer
        )
        if line:
            lines.append(f"  {line}")
            answer.ops.append(defined[1])
    return text[: match.start()] + "\n".join((*lines, "}")) + text[end + 1 :]


def _op(
    path: str, name: str, function: str, rest: str, everything: str, *, answer: Bindings
) -> str | None:
    """`ops.def("f(Tensor x) -> Tensor", &f);`; None where there is no schema."""
    signature = _signature(function.rpartition("::")[2], everything)
    if signature is None:
        answer.notes.append(f"{path}: the signature of `{function}` was not found: bind it by hand")
        return None
    result, parameters = signature
    returned = _schema_type(_plain(result))
    unknown = [part.type for part in parameters if not part.schema]
    if returned is None or unknown:
        shown = unknown[0] if unknown else result
        answer.notes.append(f"{path}: `{function}` has a `{shown}`, which ops do not take")
        return None
    words = list(_ARGUMENT.finditer(rest))
    described, letters = [], iter("abcdefghijklmnopqrstuvwxyz")
    for index, part in enumerate(parameters):
        schema = part.schema
        if part.is_written and (returned == "()" or "&" in part.type):
            schema = f"Tensor({next(letters)}!)"
        word = words[index] if len(words) == len(parameters) else None
        label = (word[1] or word[3]) if word else part.name
        default = ((word[2] or word[4] or "") if word else "").strip()
        while default.count(")") > default.count("("):  # of the call around the last argument
            default = default[:-1].rstrip()
        default = f"={_DEFAULTS.get(default, default)}" if default else ""
        described.append(f"{schema} {label}{default}")
    if any("!" in text for text in described):
        answer.notes.append(
            f"{path}: `{name}({', '.join(described)})`: that it writes to these tensors is what "
            "its signature suggests; check the schema"
        )
    schema = f"{name}({', '.join(described)}) -> {returned}"
    return f'ops.def("{schema}", {_callee(function, result, parameters)});'


def _callee(function: str, result: str, parameters: Sequence[_CxxParameter]) -> str:
    """The function, or one around it that takes the wide numbers of schemas."""
    narrow = [part for part in parameters if part.plain in _NARROW]
    if not narrow and _plain(result) not in _NARROW:
        return f"&{function}"
    taken = [
        f"{_WIDE[_NARROW[part.plain]]} {part.name}"
        if part in narrow
        else f"{part.type} {part.name}"
        for part in parameters
    ]
    passed = [
        f"static_cast<{part.plain}>({part.name})" if part in narrow else part.name
        for part in parameters
    ]
    call = f"{function}({', '.join(passed)})"
    if _plain(result) in _NARROW:
        call = f"static_cast<{_WIDE[_NARROW[_plain(result)]]}>({call})"
    return f"[]({', '.join(taken)}) {{ return {call}; }}"


def _signature(function: str, everything: str) -> tuple[str, tuple[_CxxParameter, ...]] | None:
    """Result type and parameters of the first declaration or definition."""
    pattern = rf"(?:^|[;{{}}\n])\s*((?:[\w:]+(?:\s*<[^;{{}}()]*>)?[\s&*]+)+?){function}\s*\("
    for match in re.finditer(pattern, everything):
        result = " ".join(match[1].split())
        if result.split()[0] in {"return", "else", "new", "auto", "template"}:
            continue
        inside = everything[match.end() : _closing(everything, match.end() - 1)]
        parts = [part for part in _split(inside, ",") if part.strip() not in {"", "void"}]
        return result, tuple(map(_parameter, parts))
    return None


def _parameter(text: str) -> _CxxParameter:
    text = " ".join(text.partition("=")[0].split())
    match = re.fullmatch(r"(.*?[\s&*>])(\w+)", text)
    if match is None:
        return _CxxParameter(text, "")
    kind = match[1].strip()
    return _CxxParameter(kind, match[2], _schema_type(_plain(kind)) or "")


def _plain(text: str) -> str:
    return "".join(_QUALIFIERS.sub("", text).replace("&", "").split())


def _schema_type(plain: str) -> str | None:
    """A type without qualifiers as schemas write it; None where they cannot."""
    if plain in _PLAIN or plain in _NARROW:
        return _PLAIN.get(plain) or _NARROW[plain]
    outer = re.fullmatch(r"(\w+)<(.*)>", plain)
    if outer is None:
        return None
    inner = [_schema_type(part) for part in _split(outer[2], ",")]
    if None in inner or (outer[1] != "tuple" and outer[2] in _NARROW):
        return None
    if outer[1] == "optional":
        return f"{inner[0]}?"
    if outer[1] in _LISTS:
        return f"{inner[0]}[]"
    return f"({', '.join(filter(None, inner))})" if outer[1] == "tuple" else None


def _closing(text: str, opening: int) -> int:
    """Where the bracket at a place is closed; strings and comments do not count."""
    pairs = {"(": ")", "{": "}"}
    closing, depth, at = pairs[text[opening]], 0, opening
    while at < len(text):
        skipped = _COMMENT.match(text, at)
        if skipped:
            at = skipped.end()
            continue
        depth += (text[at] == text[opening]) - (text[at] == closing)
        if depth == 0:
            return at
        at += 1
    return len(text)


def _split(text: str, sign: str) -> Iterator[str]:
    """The parts between signs that are in no brackets and no string."""
    depth, start, quoted = 0, 0, False
    for at, letter in enumerate(text):
        if letter == '"' and text[at - 1 : at] != "\\":
            quoted = not quoted
        if quoted:
            continue
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == sign and depth <= 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]
