"""Checks of C++ sources before they are compiled.

Ops must be registered under the name that the build gives, and no call may need a function that
only an omitted section defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kbuild.checks.base import Finding, Severity
from kbuild.sources.cxx import CxxCode, CxxToken, Macro, read_cxx
from kbuild.sources.cxx_functions import CxxFunctions, FunctionMention, read_functions

_BLOCKS = ("TORCH_LIBRARY", "TORCH_LIBRARY_FRAGMENT", "TORCH_LIBRARY_IMPL")
BLOCKS = frozenset(
    f"{prefix}{block}{suffix}"
    for block in _BLOCKS
    for prefix in ("", "_", "STABLE_", "_STABLE_")
    for suffix in ("", "_EXPAND")
)
"""Macros whose first argument is the namespace; `_EXPAND` are those of `registration.h`."""
OBJECTS = ("Library", "StableLibrary", "StableTorchLibraryInit", "TorchLibraryInit")
REGISTRIES = ("RegisterOperators", "class_")
FUNCTIONS = tuple(
    f"{prefix}torch_library_init_{kind}"
    for prefix in ("", "aoti_")
    for kind in ("def", "fragment", "impl")
)
_KINDS = ("DEF", "IMPL", "FRAGMENT")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_ENTER = ("(", "{")


def check_ops_cxx(files: Mapping[str, str], macro: str) -> list[Finding]:
    """Check the C++ files of one kernel; `where` is as `files` names them.

    Args:
        files: text by name; macros of one file count in all.
        macro: what the build defines as the op namespace.
    """
    sources = _CxxOpSources(files, macro)
    return [finding for name in files for finding in sources.judge(name)]


class _CxxOpSources:
    """Looks at the files of one kernel.

    Of a large project, few files register anything. What holds none of the words that do, and no
    name that may stand for the build's macro, is searched and not taken apart.
    """

    def __init__(self, files: Mapping[str, str], macro: str) -> None:
        self.macro = macro
        self.means: dict[str, list[Sequence[CxxToken]]] = {}
        """What a macro or a constant stands for, once for each definition."""
        self.namespace_at: dict[str, int] = dict.fromkeys(BLOCKS, 0)
        """Macros that open a namespace, and which argument names it."""
        self.files = files
        self.codes: dict[str, CxxCode] = {}
        """What was taken apart, by the file's name."""
        identifiers = {macro, *BLOCKS, *OBJECTS, *REGISTRIES, *FUNCTIONS}
        standing: set[str] = set()
        while identifiers:
            self._read(identifiers)
            aliases = self._aliases({macro, *standing}) - standing
            identifiers = aliases | {*self._learn_wrappers(self.codes.values())}
            standing |= aliases
        self.own = self._own(standing)
        """The build's macro, and the names that stand for it in every definition."""

    def _read(self, identifiers: set[str]) -> None:
        """Take apart the files that hold one of these words, perhaps within another one."""
        shortest = [
            identifier
            for identifier in identifiers
            if not any(w in identifier for w in identifiers - {identifier})
        ]
        for name, text in self.files.items():
            if name not in self.codes and any(identifier in text for identifier in shortest):
                self.codes[name] = read_cxx(text, self.macro)
                self._learn(self.codes[name])

    def _aliases(self, names: set[str]) -> set[str]:
        """What is defined by one of these names, in at least one place."""
        return {
            alias
            for alias, bodies in self.means.items()
            if any(word.text in names for body in bodies for word in body)
        }

    def judge(self, file: str) -> Iterator[Finding]:
        """The findings in one file, in the order of its lines."""
        code = self.codes.get(file)
        if code is None:
            return
        faults = {
            (token.line, what)
            for tokens, parameters in _code_and_macros(code)
            for token, what in self._faults(tokens, parameters)
        }
        faults |= {(line, what) for line, what in self._redefinitions(code)}
        hint = f"name it by `{self.macro}`, which the build defines: `registration.h` has wrappers"
        for line, what in sorted(faults):
            yield Finding("ops", "error", f"{file}:{line}", what, hint)

    def _learn(self, code: CxxCode) -> None:
        for macro in code.macros:
            if macro.parameters is None:
                self.means.setdefault(macro.name, []).append(macro.body)
        for at, word in enumerate(code.tokens):
            if word.text == "=" and (name := _assigned(code.tokens, at)):
                end = _statement_end(code.tokens, at)
                self.means.setdefault(name, []).append(code.tokens[at + 1 : end])

    def _learn_wrappers(self, codes: Iterable[CxxCode]) -> Iterable[str]:
        """Macros that open the namespace that they are given; those that are new."""
        positions = {
            macro.name: position
            for code in codes
            for macro in code.macros
            if macro.name not in self.namespace_at
            and (position := self._position(macro)) is not None
        }
        self.namespace_at |= positions
        return positions.keys()

    def _position(self, macro: Macro) -> int | None:
        for _, name in self._opened(macro.body):
            texts = {word.text for word in name}
            for at, parameter in enumerate(macro.parameters or ()):
                if parameter in texts:
                    return at
        return None

    def _redefinitions(self, code: CxxCode) -> Iterator[tuple[int, str]]:
        for macro in code.macros:
            if macro.name == self.macro:
                yield macro.line, f"defines `{self.macro}`, which only the build may define"

    def _faults(
        self, tokens: Sequence[CxxToken], parameters: Sequence[str]
    ) -> Iterator[tuple[CxxToken, str]]:
        for at, name in self._opened(tokens):
            texts = {token.text for token in name}
            if name and not texts & set(parameters) and not self._is_own(name):
                what = f"`{tokens[at].text}` opens the namespace `{_joined_text(name)}`"
                yield tokens[at], f"{what}, which is the same in every build"
        for at, arguments in self._made(tokens):
            if not self._is_own(arguments):
                what = f"`{tokens[at].text}` is given a name that is the same in every build"
                yield tokens[at], what

    def _opened(self, tokens: Sequence[CxxToken]) -> Iterator[tuple[int, Sequence[CxxToken]]]:
        """Where a namespace is opened, and the tokens that name it."""
        for at, token in enumerate(tokens):
            position = self.namespace_at.get(token.text)
            if position is not None and _text_at(tokens, at + 1) == "(":
                arguments = _arguments(tokens, at + 1)
                yield at, arguments[position] if position < len(arguments) else ()

    def _made(self, tokens: Sequence[CxxToken]) -> Iterator[tuple[int, Sequence[CxxToken]]]:
        """Objects that register, and the tokens that they are made with."""
        for at, token in enumerate(tokens):
            before = _text_at(tokens, at - 1)
            if before in (".", "->", "class", "struct", "template"):
                continue
            if token.text in REGISTRIES and before == "::":
                initializer = tokens[at : _statement_end(tokens, at)]
                if any(part.kind == "string" for part in initializer):
                    yield at, initializer
            elif token.text in OBJECTS and _constructs(tokens, at):
                opening = at + 1 if _text_at(tokens, at + 1) in _ENTER else at + 2
                initializer = tokens[opening : _closing(tokens, opening)]
                if any(part.text in _KINDS for part in initializer):
                    yield at, initializer
            elif token.text in FUNCTIONS and _text_at(tokens, at + 1) == "(":
                arguments = _arguments(tokens, at + 1)
                if not any("*" in {w.text for w in argument} for argument in arguments[:1]):
                    yield at, arguments[0] if arguments else ()

    def _own(self, names: set[str]) -> set[str]:
        """Those of the names that lead to the build's macro, with the macro."""
        own, open_ = {self.macro}, {name: self.means[name] for name in names - {self.macro}}
        new_names = {self.macro}
        while new_names:
            new_names = {
                name
                for name, bodies in open_.items()
                if all(any(word.text in own for word in body) for body in bodies)
            }
            own |= new_names
            open_ = {name: bodies for name, bodies in open_.items() if name not in new_names}
        return own

    def _is_own(self, tokens: Sequence[CxxToken]) -> bool:
        """True when a token is the build's macro, or stands for it in every definition."""
        return any(token.text in self.own for token in tokens)


def _code_and_macros(code: CxxCode) -> Iterator[tuple[Sequence[CxxToken], Sequence[str]]]:
    """The code, and the body of each macro with its parameters."""
    yield code.tokens, ()
    for macro in code.macros:
        yield macro.body, macro.parameters or ()


def _text_at(tokens: Sequence[CxxToken], index: int) -> str:
    return tokens[index].text if 0 <= index < len(tokens) else ""


def _constructs(tokens: Sequence[CxxToken], at: int) -> bool:
    """`Library(...)`, `Library{...}` and `Library name(...)`."""
    after = _text_at(tokens, at + 1)
    named = after.isidentifier() and _text_at(tokens, at + 2) in _ENTER
    return after in _ENTER or named


def _closing(tokens: Sequence[CxxToken], opening: int) -> int:
    """The index of the bracket that closes the one there."""
    depth = 0
    for at in range(opening, len(tokens)):
        if tokens[at].text in _OPENING:
            depth += 1
        elif tokens[at].text in _CLOSING:
            depth -= 1
            if depth == 0:
                return at
    return len(tokens)


def _arguments(tokens: Sequence[CxxToken], opening: int) -> list[Sequence[CxxToken]]:
    """The arguments between the bracket there and its end."""
    end, depth = _closing(tokens, opening), 0
    arguments: list[list[CxxToken]] = [[]]
    for token in tokens[opening + 1 : end]:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if token.text == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return list(arguments)


def _statement_end(tokens: Sequence[CxxToken], start: int) -> int:
    """The index of the `;` that ends the statement there, or of what closes the block around."""
    depth = 0
    for at in range(start, len(tokens)):
        text = tokens[at].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth < 0 or (text == ";" and depth == 0):
            return at
    return len(tokens)


def _assigned(tokens: Sequence[CxxToken], at: int) -> str | None:
    """The name before a `=`, an array's included."""
    before = (
        at - 3 if _text_at(tokens, at - 1) == "]" and _text_at(tokens, at - 2) == "[" else at - 1
    )
    name = _text_at(tokens, before)
    return name if name.isidentifier() else None


def _joined_text(tokens: Sequence[CxxToken]) -> str:
    return " ".join(token.text for token in tokens)


UNDEFINED_CHECK = "undefined"
"""The check that would find it in the built extension."""


@dataclass(frozen=True)
class OmittedSection:
    """A section that is not part of a variant."""

    place: str
    """Where it is in build.toml: `kernel.sm80`."""
    reason: str
    files: Mapping[str, str]
    """Text by name, of its sources."""


@dataclass(frozen=True)
class MacroDefinitions:
    """What every unit of a variant says of macros."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]

    def functions(self, text: str) -> CxxFunctions:
        """The functions of one file."""
        return read_functions(read_cxx(text, *self.defined, undefined=self.undefined))


def check_omitted_functions(
    units: Mapping[str, str],
    headers: Mapping[str, str],
    left: list[OmittedSection],
    macros: MacroDefinitions,
) -> list[Finding]:
    """Uses of functions that nothing in the variant defines; `where` is as the mappings name files.

    An error where a unit calls a function that is declared, that a section left out defines and
    no other file does. A warning where a branch, a template or a macro may keep the call from being
    compiled.

    Args:
        units: text of what is compiled, by name.
        headers: text of what these include.
        left: the sections that are not compiled.
        macros: that the units' conditions ask for.
    """
    kept = {name: macros.functions(text) for name, text in {**headers, **units}.items()}
    defined = {function.name for file in kept.values() for function in file.defined}
    declared = {function.name for file in kept.values() for function in file.declared}
    in_macros = {name for file in kept.values() for name in file.in_macros}
    lost = {
        name: place
        for name, place in _omitted_functions(left, macros, defined, declared)
        if name.rpartition("::")[2] not in in_macros
    }
    return [
        _omitted_finding(name, used, *lost[target])
        for name in units
        for used, target in _uses_of_omitted(kept[name], lost, defined)
    ]


def _omitted_functions(
    left: list[OmittedSection], macros: MacroDefinitions, defined: set[str], declared: set[str]
) -> Iterator[tuple[str, tuple[OmittedSection, str]]]:
    """Name -> the section that defines it, and where, for what no file of the variant does."""
    for section in left:
        for file, text in section.files.items():
            for function in macros.functions(text).defined:
                if (
                    not function.is_own
                    and function.name not in defined
                    and function.name in declared
                ):
                    yield function.name, (section, f"{file}:{function.line}")


def _uses_of_omitted(
    file: CxxFunctions, lost: Mapping[str, object], defined: set[str]
) -> Iterator[tuple[FunctionMention, str]]:
    """The first use of each lost function, one that is certain before one that is not."""
    mentions: dict[str, FunctionMention] = {}
    bases = {name.rpartition("::")[2] for name in lost}
    for used in file.used:
        if used.base not in bases or any(used.means(name) for name in defined):
            continue
        for target in (name for name in lost if used.means(name)):
            known = mentions.get(target)
            if known is None or (known.maybe and not used.maybe):
                mentions[target] = used
    yield from ((used, target) for target, used in mentions.items())


def _omitted_finding(
    file: str, used: FunctionMention, section: OmittedSection, place: str
) -> Finding:
    verb = "may use" if used.maybe else "uses"
    what = (
        f"{verb} `{used.name}`, which only {section.place} defines ({place}), and that is left "
        f"out: {section.reason}"
    )
    hint = "build for an arch that the section supports, or guard the use with a macro of your own"
    severity: Severity = "warning" if used.maybe else "error"
    return Finding(UNDEFINED_CHECK, severity, f"{file}:{used.line}", what, hint)
