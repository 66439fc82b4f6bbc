"""Functions that only a section defines which is left out of a variant, and that others call.

The linker lets an extension have names that nobody defines, and its loading fails on them. What the
text of the sources shows is said before any of them is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kbuild.checks.base import Finding, Severity
from kbuild.checks.readers.cxx import read_code
from kbuild.checks.readers.functions import FunctionMention, Functions, functions_of

CHECK = "undefined"
"""The check that would find it in the built extension."""


@dataclass(frozen=True)
class LeftOut:
    """A section that is not part of a variant."""

    place: str
    """Where it is in build.toml: `kernel.sm80`."""
    reason: str
    files: Mapping[str, str]
    """Text by name, of its sources."""


@dataclass(frozen=True)
class Macros:
    """What every unit of a variant says of macros."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]

    def functions(self, text: str) -> Functions:
        """The functions of one file."""
        return functions_of(read_code(text, *self.defined, undefined=self.undefined))


def check_left_out(
    units: Mapping[str, str], headers: Mapping[str, str], left: list[LeftOut], macros: Macros
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
    defined = {one.name for file in kept.values() for one in file.defined}
    declared = {one.name for file in kept.values() for one in file.declared}
    in_macros = {name for file in kept.values() for name in file.in_macros}
    lost = {
        name: place
        for name, place in _lost(left, macros, defined, declared)
        if name.rpartition("::")[2] not in in_macros
    }
    return [
        _finding(name, used, *lost[target])
        for name in units
        for used, target in _uses(kept[name], lost, defined)
    ]


def _lost(
    left: list[LeftOut], macros: Macros, defined: set[str], declared: set[str]
) -> Iterator[tuple[str, tuple[LeftOut, str]]]:
    """Name -> the section that defines it, and where, for what no file of the variant does."""
    for section in left:
        for file, text in section.files.items():
            for one in macros.functions(text).defined:
                if not one.is_own and one.name not in defined and one.name in declared:
                    yield one.name, (section, f"{file}:{one.line}")


def _uses(
    file: Functions, lost: Mapping[str, object], defined: set[str]
) -> Iterator[tuple[FunctionMention, str]]:
    """The first use of each lost function, one that is certain before one that is not."""
    found: dict[str, FunctionMention] = {}
    bases = {name.rpartition("::")[2] for name in lost}
    for used in file.used:
        if used.base not in bases or any(used.means(name) for name in defined):
            continue
        for target in (name for name in lost if used.means(name)):
            known = found.get(target)
            if known is None or (known.maybe and not used.maybe):
                found[target] = used
    yield from ((used, target) for target, used in found.items())


def _finding(file: str, used: FunctionMention, section: LeftOut, place: str) -> Finding:
    verb = "may use" if used.maybe else "uses"
    what = (
        f"{verb} `{used.name}`, which only {section.place} defines ({place}), and that is left "
        f"out: {section.reason}"
    )
    hint = (
        "build for what that section has code for as well, or leave the use out where a macro of "
        "your own says so"
    )
    severity: Severity = "warning" if used.maybe else "error"
    return Finding(CHECK, severity, f"{file}:{used.line}", what, hint)
