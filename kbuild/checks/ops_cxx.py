"""Every op of the C++ sources is registered under the name that the build gives.

The name is unique per kernel, backend and revision, and comes in as a macro. A name that stands in
the source is the same for every build of the kernel: two of them cannot be in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kbuild.checks.base import Finding
from kbuild.checks.readers.cxx import Code, Macro, Word, read_code

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
    sources = _Sources(files, macro)
    return [finding for name in files for finding in sources.judge(name)]


class _Sources:
    """Looks at the files of one kernel.

    Of a large project, few files register anything. What holds none of the words that do, and no
    name that may stand for the build's macro, is searched and not taken apart.
    """

    def __init__(self, files: Mapping[str, str], macro: str) -> None:
        self.macro = macro
        self.means: dict[str, list[Sequence[Word]]] = {}
        """What a macro or a constant stands for, once for each definition."""
        self.namespace_at: dict[str, int] = dict.fromkeys(BLOCKS, 0)
        """Macros that open a namespace, and which argument names it."""
        self.files = files
        self.codes: dict[str, Code] = {}
        """What was taken apart, by the file's name."""
        words = {macro, *BLOCKS, *OBJECTS, *REGISTRIES, *FUNCTIONS}
        standing: set[str] = set()
        while words:
            self._read(words)
            aliases = self._aliases({macro, *standing}) - standing
            words = aliases | {*self._learn_wrappers(self.codes.values())}
            standing |= aliases
        self.own = self._own(standing)
        """The build's macro, and the names that stand for it in every definition."""

    def _read(self, words: set[str]) -> None:
        """Take apart the files that hold one of these words, perhaps within another one."""
        shortest = [word for word in words if not any(w in word for w in words - {word})]
        for name, text in self.files.items():
            if name not in self.codes and any(word in text for word in shortest):
                self.codes[name] = read_code(text, self.macro)
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
            (word.line, what)
            for words, parameters in _passages(code)
            for word, what in self._faults(words, parameters)
        }
        faults |= {(line, what) for line, what in self._redefinitions(code)}
        hint = f"name it by `{self.macro}`, which the build defines: `registration.h` has wrappers"
        for line, what in sorted(faults):
            yield Finding("ops", "error", f"{file}:{line}", what, hint)

    def _learn(self, code: Code) -> None:
        for macro in code.macros:
            if macro.parameters is None:
                self.means.setdefault(macro.name, []).append(macro.body)
        for at, word in enumerate(code.words):
            if (
                word.text == "="
                and _at(code.words, at + 1) != "="
                and (name := _assigned(code.words, at))
            ):
                end = _statement_end(code.words, at)
                self.means.setdefault(name, []).append(code.words[at + 1 : end])

    def _learn_wrappers(self, codes: Iterable[Code]) -> Iterable[str]:
        """Macros that open the namespace that they are given; those that are new."""
        found = {
            macro.name: position
            for code in codes
            for macro in code.macros
            if macro.name not in self.namespace_at
            and (position := self._position(macro)) is not None
        }
        self.namespace_at |= found
        return found.keys()

    def _position(self, macro: Macro) -> int | None:
        for _, name in self._opened(macro.body):
            texts = {word.text for word in name}
            for at, parameter in enumerate(macro.parameters or ()):
                if parameter in texts:
                    return at
        return None

    def _redefinitions(self, code: Code) -> Iterator[tuple[int, str]]:
        for macro in code.macros:
            if macro.name == self.macro:
                yield macro.line, f"defines `{self.macro}`, which is the build's to define"

    def _faults(
        self, words: Sequence[Word], parameters: Sequence[str]
    ) -> Iterator[tuple[Word, str]]:
        for at, name in self._opened(words):
            texts = {word.text for word in name}
            if name and not texts & set(parameters) and not self._is_own(name):
                what = f"`{words[at].text}` opens the namespace `{_text(name)}`"
                yield words[at], f"{what}, which is the same in every build"
        for at, given in self._made(words):
            if not self._is_own(given):
                what = f"`{words[at].text}` is given a name that is the same in every build"
                yield words[at], what

    def _opened(self, words: Sequence[Word]) -> Iterator[tuple[int, Sequence[Word]]]:
        """Where a namespace is opened, and the tokens that name it."""
        for at, word in enumerate(words):
            position = self.namespace_at.get(word.text)
            if position is not None and _at(words, at + 1) == "(":
                arguments = _arguments(words, at + 1)
                yield at, arguments[position] if position < len(arguments) else ()

    def _made(self, words: Sequence[Word]) -> Iterator[tuple[int, Sequence[Word]]]:
        """Objects that register, and the tokens that they are made with."""
        for at, word in enumerate(words):
            before = _at(words, at - 1)
            if before in (".", "->", "class", "struct", "template"):
                continue
            if word.text in REGISTRIES and before == "::":
                given = words[at : _statement_end(words, at)]
                if any(given_word.text.startswith('"') for given_word in given):
                    yield at, given
            elif word.text in OBJECTS and _makes(words, at):
                opening = at + 1 if _at(words, at + 1) in _ENTER else at + 2
                given = words[opening : _closing(words, opening)]
                if any(given_word.text in _KINDS for given_word in given):
                    yield at, given
            elif word.text in FUNCTIONS and _at(words, at + 1) == "(":
                arguments = _arguments(words, at + 1)
                if not any("*" in {w.text for w in argument} for argument in arguments[:1]):
                    yield at, arguments[0] if arguments else ()

    def _own(self, names: set[str]) -> set[str]:
        """Those of the names that lead to the build's macro, with the macro."""
        own, open_ = {self.macro}, {name: self.means[name] for name in names - {self.macro}}
        found = {self.macro}
        while found:
            found = {
                name
                for name, bodies in open_.items()
                if all(any(word.text in own for word in body) for body in bodies)
            }
            own |= found
            open_ = {name: bodies for name, bodies in open_.items() if name not in found}
        return own

    def _is_own(self, words: Sequence[Word]) -> bool:
        """True when a token is the build's macro, or stands for it in every definition."""
        return any(word.text in self.own for word in words)


def _passages(code: Code) -> Iterator[tuple[Sequence[Word], Sequence[str]]]:
    """The code, and the body of each macro with its parameters."""
    yield code.words, ()
    for macro in code.macros:
        yield macro.body, macro.parameters or ()


def _at(words: Sequence[Word], index: int) -> str:
    return words[index].text if 0 <= index < len(words) else ""


def _makes(words: Sequence[Word], at: int) -> bool:
    """`Library(...)`, `Library{...}` and `Library name(...)`."""
    after = _at(words, at + 1)
    named = after.isidentifier() and _at(words, at + 2) in _ENTER
    return after in _ENTER or named


def _closing(words: Sequence[Word], opening: int) -> int:
    """The index of the bracket that closes the one there."""
    depth = 0
    for at in range(opening, len(words)):
        if words[at].text in _OPENING:
            depth += 1
        elif words[at].text in _CLOSING:
            depth -= 1
            if depth == 0:
                return at
    return len(words)


def _arguments(words: Sequence[Word], opening: int) -> list[Sequence[Word]]:
    """The arguments between the bracket there and its end."""
    end, depth = _closing(words, opening), 0
    found: list[list[Word]] = [[]]
    for word in words[opening + 1 : end]:
        depth += (word.text in _OPENING) - (word.text in _CLOSING)
        if word.text == "," and depth == 0:
            found.append([])
        else:
            found[-1].append(word)
    return list(found)


def _statement_end(words: Sequence[Word], start: int) -> int:
    """The index of the `;` that ends the statement there, or of what closes the block around."""
    depth = 0
    for at in range(start, len(words)):
        text = words[at].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth < 0 or (text == ";" and depth == 0):
            return at
    return len(words)


def _assigned(words: Sequence[Word], at: int) -> str | None:
    """The name before a `=`, an array's included."""
    before = at - 3 if _at(words, at - 1) == "]" and _at(words, at - 2) == "[" else at - 1
    name = _at(words, before)
    return name if name.isidentifier() else None


def _text(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words)
