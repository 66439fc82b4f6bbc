"""Ops of Torch's stable ABI have the types that their schemas promise.

A boxed function reads each argument by its own C++ type: `int` in the schema and `double` in C++
give a wrong number, and nothing complains. The types come from the objects, the schemas from the
sources (`m.impl("f", TORCH_BOX(&f))`). Torch itself compares ops without the stable ABI when they
are loaded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from kbuild.checks.base import CHECKS, Check, Finding, Group, Output, Severity
from kbuild.checks.boxed_functions import (
    BOXED_SYMBOL,
    CXX_TYPES,
    BoxedFunction,
    cxx_type,
    read_boxed,
    schema_type,
    shown_type,
    template_parts,
    widened,
)
from kbuild.checks.readers.object_files import function_names, object_files, project_of, source_of
from kbuild.checks.readers.symbols import can_demangle, demangle
from kbuild.ops.schema.model import Schema, Type
from kbuild.ops.schema.parser import SchemaError, parse_schema
from kbuild.sources.cxx import (
    CxxToken,
    closing_sign,
    joined_tokens,
    split_tokens,
    tokens_of,
)
from kbuild.system.workspace import WORKSPACE_FOLDER

_BOX = "TORCH_BOX"
_SHOWN = 3


class Definition(NamedTuple):
    """`m.def("scale(Tensor x, int factor) -> Tensor")`."""

    file: str
    line: int
    schema: Schema


class Implementation(NamedTuple):
    """`m.impl("scale", TORCH_BOX(&scale))`."""

    file: str
    line: int
    op: str
    function: str
    """Text of the function; empty where it is not boxed by Torch's macro."""


@CHECKS.add
class SchemaCheck(Check):
    """See the module."""

    name = "schema"
    summary = "Functions that are boxed for the stable ABI have the types of their schemas."
    group: ClassVar[Group] = "code"

    def applies(self, output: Output) -> bool:
        """Torch extensions that were built here; objects of Linux are read."""
        variant = output.variant
        is_torch = variant is not None and variant.framework in ("torch", "torch-stable-abi")
        is_linux = output.system is not None and output.system.os == "linux"
        return is_torch and is_linux and output.object_tree.is_dir()

    def run(self, output: Output) -> Iterator[Finding]:
        """Report at most one finding for each type, and one for what could not be compared."""
        boxed, texts = _read_tree(output.object_tree)
        if not any(boxed.values()) and not any(map(_is_stable, texts.values())):
            return
        if not can_demangle():
            what = "no C++ library names the types of boxed functions: schemas were not compared"
            yield Finding(self.name, "info", ".", what)
            return
        definitions: dict[str, list[Definition]] = {}
        for file, text in texts.items():
            for definition in read_definitions(file, text):
                name = definition.schema.name.rpartition("::")[2]
                overload = definition.schema.overload
                definitions.setdefault(f"{name}.{overload}".rstrip("."), []).append(definition)
        for file, text in texts.items():
            yield from _findings(file, text, boxed[file], definitions)


def _read_tree(tree: Path) -> tuple[dict[str, list[BoxedFunction]], dict[str, str]]:
    """The boxed functions and the text of each of the project's sources, by its path."""
    root = project_of(tree)
    linked = _text(tree / "build.ninja")
    boxed: dict[str, list[BoxedFunction]] = {}
    texts: dict[str, str] = {}
    for path in object_files(tree):
        source = source_of(path, tree)
        # Objects of sources that are no longer listed stay where they are.
        name = path.relative_to(tree).as_posix().replace(" ", "$ ").replace(":", "$:")
        is_linked = not linked or name in linked
        if is_linked and WORKSPACE_FOLDER not in Path(source).parts:
            symbols = function_names(path, BOXED_SYMBOL)
            functions = filter(None, (read_boxed(demangle(name)) for name in symbols))
            boxed[source] = [*dict.fromkeys(functions)]
            texts[source] = _text(root / source)
    return boxed, texts


def _is_stable(text: str) -> bool:
    """True for a source that registers ops through the stable ABI alone."""
    return "STABLE_TORCH_LIBRARY" in text and not re.search(r"\bTORCH_LIBRARY", text)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def read_definitions(file: str, text: str) -> Iterator[Definition]:
    """The schemas that a source hands to `def` as text."""
    for line, arguments in _calls(text, "def"):
        schema = _string(arguments[0])
        if schema is not None:
            try:
                yield Definition(file, line, parse_schema(schema))
            except SchemaError:  # Torch's own parser reports it when the library is loaded
                continue


def read_implementations(file: str, text: str) -> Iterator[Implementation]:
    """The functions that a source hands to `impl`, each with the name of its op."""
    for line, (first, *others) in _calls(text, "impl"):
        op = _string(first)
        if op is not None and others:
            texts = [token.text for token in others[0]]
            name = joined_tokens(others[0][2:-1]).lstrip("&(").rstrip(")")
            function = template_parts(name)[0] if texts[0] == _BOX else ""
            yield Implementation(file, line, op.rpartition("::")[2], function)


def _calls(text: str, method: str) -> Iterator[tuple[int, list[Sequence[CxxToken]]]]:
    """(line, arguments) of calls of a method."""
    if method not in text:
        return
    tokens = tokens_of(text)
    for at, token in enumerate(tokens[1:-1], 1):
        is_call = token.text == method and tokens[at + 1].text == "("
        if is_call and tokens[at - 1].text in (".", "->"):
            inner = tokens[at + 2 : closing_sign(tokens, at + 1)]
            if arguments := [*split_tokens(inner, ",")]:
                yield token.line, arguments


def _string(tokens: Sequence[CxxToken]) -> str | None:
    """The text of adjacent string literals; None for anything else."""
    parts = []
    for token in tokens:
        literal = token.text
        if token.kind != "string":
            return None
        if literal.startswith('R"'):
            parts.append(literal[literal.index("(") + 1 : literal.rindex(")")])
            continue
        try:
            parts.append(str(ast.literal_eval(literal)))  # escapes are those of Python
        except (SyntaxError, ValueError):
            return None
    return "".join(parts) if parts else None


def _findings(
    file: str,
    text: str,
    functions: Sequence[BoxedFunction],
    definitions: Mapping[str, Sequence[Definition]],
) -> Iterator[Finding]:
    """Findings on the functions that one source implements ops with."""
    compared: set[str] = set()
    unread: list[tuple[int, str]] = []
    for implementation in read_implementations(file, text) if functions or _is_stable(text) else ():
        fitting = [f for f in functions if _is_named(f.name, implementation.function)]
        known = definitions.get(implementation.op, ())
        if fitting and known:
            compared.update(function.name for function in fitting)
            # Overloads, and schemas of the same name in another library: one of them is meant.
            yield from min(
                (_Comparison(implementation, d, f).findings(text) for d in known for f in fitting),
                key=len,
            )
        else:
            compared.update(function.name for function in fitting)
            unread.append((implementation.line, f"`{implementation.op}`"))
    others = [f"`{f.name}`" for f in functions if f.name not in compared]
    for line, names in (
        (min((line for line, _ in unread), default=0), [name for _, name in unread]),
        (0, sorted(others)),
    ):
        if names:
            shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            what = f"the types of {shown} were not compared with a schema"
            hint = 'write `m.def("...")` and `m.impl("...", TORCH_BOX(&function))` with literals'
            yield Finding("schema", "warning", f"{file}:{line}" if line else file, what, hint)


def _is_named(name: str, written: str) -> bool:
    """True when a qualified name may be what is written."""
    return bool(written) and f"::{name}".endswith(f"::{written.removeprefix('::')}")


class _Comparison(NamedTuple):
    """An op's schema, and the function that is boxed for it."""

    implementation: Implementation
    defined: Definition
    function: BoxedFunction

    def findings(self, text: str) -> list[Finding]:
        """The findings on the differences."""
        schema, function = self.defined.schema, self.function
        for kind, promised, there in (
            ("argument", schema.arguments, function.parameters),
            ("result", schema.returns, function.results),
        ):
            if len(promised) != len(there):
                verb = "takes" if kind == "argument" else "returns"
                number = f"{len(promised)} {kind}{'' if len(promised) == 1 else 's'}"
                what = f"has {number}, but {self._function} {verb} {len(there)}"
                return [self._finding("error", f"the schema of `{self.implementation.op}` {what}")]
        findings = [
            finding
            for argument, cxx in zip(schema.arguments, function.parameters, strict=True)
            for finding in self._type(f"`{argument.name}`", argument.type, cxx, is_result=False)
        ]
        for index, (result, cxx) in enumerate(zip(schema.returns, function.results, strict=True)):
            name = "the result" if len(schema.returns) == 1 else f"result {index}"
            findings += self._type(name, result.type, cxx, is_result=True)
        findings += self._mutability()
        return findings or [*self._order(text)]

    @property
    def _function(self) -> str:
        return f"`{self.function.name}`"

    def _type(self, name: str, type_: Type, cxx: str, *, is_result: bool) -> Iterator[Finding]:
        base = "int" if type_.name == "SymInt" else type_.name
        wanted = base + "".join("[]" if s.startswith("[") else s for s in type_.suffixes)
        given = schema_type(cxx)
        if given == wanted:
            return
        shown = shown_type(cxx)
        if not given or base not in CXX_TYPES:
            what = f"{name} is `{wanted}` and `{shown}`, which were not compared"
            yield self._finding("warning", what, "take a type that the stable ABI converts")
            return
        right = widened(given)
        if not is_result and base == "int" and right == wanted:
            what = f"{name} is `{wanted}`, of which {self._function} keeps the low bits: `{shown}`"
            yield self._finding("warning", what, "take `int64_t`")
            return
        does = "returns" if is_result else "takes"
        what = f"{name} is `{wanted}` (`{cxx_type(wanted)}` in C++)"
        what += f", but {self._function} {does} `{shown}`"
        severity: Severity = "warning" if (wanted, given) == ("bool", "int") else "error"
        hint = f"write `{right}` in the schema, or `{cxx_type(wanted)}` in C++"
        if right == wanted:
            hint = f"write `{cxx_type(wanted)}` in C++"
        yield self._finding(severity, what, hint)

    def _mutability(self) -> Iterator[Finding]:
        """References that are not const say what a function writes to, as far as they go."""
        pairs = [
            (argument, "Tensor&" in cxx.replace("const&", ""), "Tensor const&" in cxx)
            for argument, cxx in zip(
                self.defined.schema.arguments, self.function.parameters, strict=True
            )
            if argument.type.name == "Tensor"
        ]
        is_swapped = any(argument.type.is_mutated and const for argument, _, const in pairs)
        for argument, is_written, _ in pairs:
            if is_written and not argument.type.is_mutated:
                what = (
                    f"`{argument.name}` is `{argument.type}`, but {self._function} takes it by "
                    "non-const reference"
                )
                hint = (
                    f"write `Tensor(a!) {argument.name}` in the schema, or `const Tensor&` in C++"
                )
                yield self._finding("error" if is_swapped else "warning", what, hint)

    def _order(self, text: str) -> Iterator[Finding]:
        """Parameters of the same names in another order."""
        names = [argument.name for argument in self.defined.schema.arguments]
        base = self.function.name.rpartition("::")[2]
        written = [*_parameter_names(text, base)]
        if names not in written:
            for other in written:
                if sorted(other) == sorted(names):
                    what = f"the schema of `{self.implementation.op}` has another order of "
                    what += f"arguments than {self._function}, which takes {', '.join(other)}"
                    yield self._finding("error", what, "write both in the same order")
                    return

    def _finding(self, severity: Severity, what: str, hint: str = "") -> Finding:
        if not what.startswith("the schema of"):
            what = f"the schema of `{self.implementation.op}`: {what}"
        what += f" (`impl` at {self.implementation.file}:{self.implementation.line})"
        where = f"{self.defined.file}:{self.defined.line}"
        return Finding("schema", severity, where, what, hint or "correct the schema, or the C++")


def _parameter_names(text: str, function: str) -> Iterator[list[str]]:
    """The names of parameters in each declaration of a function."""
    tokens = tokens_of(text) if function in text else ()
    for at, token in enumerate(tokens[:-1]):
        if token.text == function and tokens[at + 1].text == "(":
            inner = tokens[at + 2 : closing_sign(tokens, at + 1)]
            parts = [next(iter(split_tokens(part, "=")), part) for part in split_tokens(inner, ",")]
            # An argument of a call is no type with a name.
            if parts and all(
                len(part) > 1 and part[0].kind == part[-1].kind == "name" for part in parts
            ):
                yield [part[-1].text for part in parts]
