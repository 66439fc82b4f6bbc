"""Reads the library targets of a `CMakeLists.txt` that builds an extension for Torch.

Variables that `set` and `list` fill are followed. What other commands compute is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.plugins.migrate.package import ForeignExtension

_TOKEN = re.compile(
    r"""\#\[\[.*?\]\]|\#[^\n]*|\[\[(?P<bracket>.*?)\]\]|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<paren>[()])
    |(?P<word>[^\s()"#]+)""",
    re.DOTALL | re.VERBOSE,
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LIBRARIES = ("add_library", "pybind11_add_module", "python_add_library", "nanobind_add_module",
              "cuda_add_library", "torch_library")  # fmt: skip
_SCOPES = ("PRIVATE", "PUBLIC", "INTERFACE", "SYSTEM", "BEFORE", "AFTER")
_KINDS = ("SHARED", "MODULE", "STATIC", "OBJECT", "WITH_SOABI", "NO_EXTRAS", "USE_SABI")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".hip", ".h", ".hpp", ".cuh")
_CUDA_ONLY = re.compile(r"\$<\$<COMPILE_LANGUAGE:CUDA>:(.*)>|\$<\$<COMPILE_LANGUAGE:CXX>:(.*)>")
_GLOBAL = {
    "add_compile_definitions": "compile_definitions", "add_definitions": "compile_definitions",
    "add_compile_options": "compile_options", "include_directories": "include_directories",
    "link_libraries": "link_libraries",
}  # fmt: skip
"""Command for all targets -> the property of one target that it sets."""
_HARMLESS = frozenset(
    (
        *("cmake_minimum_required", "cmake_policy", "project", "set", "list", "option", "message"),
        *("enable_language", "find_package", "mark_as_advanced", "else", "endif", "endforeach"),
        *("endfunction", "endmacro", "install", "enable_testing", "add_test", "return", "unset"),
        *("target_compile_features", "elseif"),
    )
)
"""Commands that are read, or that change nothing of what is compiled."""


@dataclass
class _Target:
    name: str
    sources: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    cxx_flags: list[str] = field(default_factory=list)
    cuda_flags: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    archs: list[str] = field(default_factory=list)
    line: int = 0


def read_cmake(root: Path) -> tuple[str, tuple[ForeignExtension, ...], list[str]]:
    """The project's name, an extension for each library, and what was not followed."""
    reader = _CMakeReader(root)
    for command, arguments, line in _commands((root / "CMakeLists.txt").read_text("utf-8")):
        reader.take(command, arguments, line)
    reader.finish()
    extensions = tuple(
        ForeignExtension(
            target.name, tuple(target.sources), tuple(target.include), tuple(target.cxx_flags),
            tuple(target.cuda_flags), tuple(target.libraries), (),
            tuple(target.archs or reader.archs), places={"": f"CMakeLists.txt:{target.line}"},
        )
        for target in reader.targets.values() if target.sources
    )  # fmt: skip
    return reader.name, extensions, reader.notes


def _unread(command: str, arguments: Sequence[str], line: int) -> str:
    if command == "if":
        condition = " ".join(arguments)
        return f"CMakeLists.txt:{line}: `if({condition})`: what depends on it is taken over anyway"
    shown = " ".join(arguments[:2])
    return f"CMakeLists.txt:{line}: `{command}({shown} ...)` was not followed"


def _commands(text: str) -> Iterator[tuple[str, list[str], int]]:
    """Name in lower case, arguments and line of each command."""
    name, depth, line = "", 0, 0
    arguments: list[str] = []
    for token in _TOKEN.finditer(text):
        if token["paren"] == "(":
            depth += 1
        elif token["paren"] == ")":
            depth -= 1
            if depth == 0:
                yield name.lower(), arguments, line
                arguments = []
        elif token["word"] and depth == 0:
            name, line = token["word"], text.count("\n", 0, token.start()) + 1
        elif depth and token.lastgroup:
            arguments.append(token[token.lastgroup])


class _CMakeReader:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.name = ""
        self.targets: dict[str, _Target] = {}
        self.notes: list[str] = []
        self.archs: list[str] = []
        self.all: list[tuple[str, Sequence[str]]] = []
        """Commands for all targets."""
        self.variables = {
            name: str(self.root)
            for name in ("CMAKE_CURRENT_SOURCE_DIR", "CMAKE_SOURCE_DIR", "PROJECT_SOURCE_DIR")
        }

    def take(self, command: str, arguments: Sequence[str], line: int) -> None:
        values = [value for text in arguments for value in self._expand(text)]
        if command == "project" and values:
            self.name = self.variables["PROJECT_NAME"] = values[0]
        elif command == "set" and values:
            self.variables[values[0]] = ";".join(values[1:]).partition(";CACHE")[0]
            if values[0] == "CMAKE_CUDA_ARCHITECTURES":
                self.archs = list(_archs(values[1:]))
        elif command == "list" and len(values) > 1 and values[0].upper() == "APPEND":
            before = self.variables.get(values[1], "")
            self.variables[values[1]] = ";".join(filter(None, (before, *values[2:])))
        elif command in _LIBRARIES and values:
            target = self._target(values[0])
            target.line = line
            target.sources += self._files(values[1:])
        elif command.startswith("target_") and values:
            self._take_target(command.removeprefix("target_"), values, line)
        elif command == "set_target_properties" and "CUDA_ARCHITECTURES" in values:
            at = values.index("CUDA_ARCHITECTURES")
            self._target(values[0]).archs += _archs(values[at + 1 :])
        elif command in _GLOBAL:
            self.all.append((_GLOBAL[command], values))
        elif command not in _HARMLESS:
            self.notes.append(_unread(command, arguments, line))

    def finish(self) -> None:
        """Apply the commands for all targets to each."""
        flags = [flag for name in ("CXX", "CUDA") for flag in self._flags(name)]
        for kind, values in (*self.all, *flags):
            for name in self.targets:
                self._take_target(kind, (name, *values), 0)

    def _flags(self, language: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        for flag in self.variables.get(f"CMAKE_{language}_FLAGS", "").replace(";", " ").split():
            if not flag.startswith("${"):
                yield "compile_options", (f"$<$<COMPILE_LANGUAGE:{language}>:{flag}>",)

    def _take_target(self, kind: str, values: Sequence[str], line: int) -> None:
        target = self._target(values[0])
        rest = [value for value in values[1:] if value not in _SCOPES]
        if kind == "sources":
            target.sources += self._files(rest)
        elif kind == "include_directories":
            target.include += [self._relative(path) for path in rest]
        elif kind == "compile_definitions":
            macros = [value if value.startswith("-D") else f"-D{value}" for value in rest]
            target.cxx_flags += macros
            target.cuda_flags += macros
        elif kind == "compile_options":
            for value in rest:
                only = _CUDA_ONLY.fullmatch(value)
                target.cuda_flags += (only[1] or "").split(";") if only and only[1] else []
                target.cxx_flags += (only[2] or "").split(";") if only and only[2] else []
                target.cxx_flags += [] if only else [value]
        elif kind == "link_libraries":
            target.libraries += rest
        elif kind != "compile_features":
            shown = " ".join(values[:2])
            self.notes.append(
                f"CMakeLists.txt:{line}: `target_{kind}({shown} ...)` was not followed"
            )

    def _target(self, name: str) -> _Target:
        return self.targets.setdefault(name, _Target(name))

    def _files(self, values: Sequence[str]) -> list[str]:
        return [
            self._relative(value)
            for value in values
            if value not in _KINDS and value.endswith(_SOURCES)
        ]

    def _relative(self, path: str) -> str:
        path = path.removeprefix("$<BUILD_INTERFACE:").removesuffix(">")
        return path.removeprefix(f"{self.root}/") if path != str(self.root) else "."

    def _expand(self, text: str) -> list[str]:
        known: Mapping[str, str] = self.variables
        if _CUDA_ONLY.fullmatch(text):
            return [text]
        expanded = _VARIABLE.sub(lambda match: known.get(match[1], match[0]), text)
        return [value for value in expanded.split(";") if value]


def _archs(values: Sequence[str]) -> Iterator[str]:
    """`80` and `90a-real` as compute capabilities; `90-virtual` has PTX only."""
    for value in values:
        if match := re.fullmatch(r"(\d+)(\d)([af]?)(-real|-virtual)?", value):
            yield f"{match[1]}.{match[2]}{match[3]}" + ("+PTX" if match[4] == "-virtual" else "")
