"""The command that checks the types of one component's units.

Macros, include folders and the language standard decide what is parsed. They are those that
`templates/project/cmake/kbuild.cmake` gives to CMake; flags that only shape code are left out, and
with them all that a device compiler alone knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kbuild.backends.static import TypeCheck
from kbuild.frameworks import FRAMEWORKS
from kbuild.plan import BINDING, Component, VariantPlan

LANGUAGE = "CXX"
_JOINED = ("-D", "-U", "-I")
_SEPARATE = ("-D", "-U", "-I", "-isystem", "-include")
_RELEASE = "NDEBUG"
"""What CMake's build type defines."""
# Warnings are the real compiler's business: a plain one does not know the device's attributes.
_QUIET = ("-fsyntax-only", "-w")


@dataclass(frozen=True)
class Folders:
    """Where one variant's headers are."""

    project: Path
    generated: Path
    """The tree of files that kbuild writes, laid out as the project is."""
    stand_ins: Path
    """Searched last."""
    python: Path
    """Folder of `Python.h`; it need not exist."""
    libraries: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """By the name that `depends` has."""
    device: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """By the name that `TypeCheck.headers` has."""


def arguments(
    plan: VariantPlan, part: Component, check: TypeCheck, folders: Folders
) -> tuple[str, ...]:
    """The compiler's arguments for the component's C++ units, without source and outputs."""
    macros = (_RELEASE, *plan.definitions, *part.definitions, *check.definitions)
    return (
        f"-std=gnu++{plan.cxx_standard}",
        *_QUIET,
        *_maps(part, folders),
        *(f"-D{macro}" for macro in macros),
        *_own(plan, part, folders),
        *_system(part, folders),
        *_kept(dict(part.flags).get(LANGUAGE, ())),
    )


def _maps(part: Component, folders: Folders) -> Iterator[str]:
    """Names instead of places: what is remembered holds for every place."""
    named = {
        "kernel": folders.project,
        "generated": folders.generated,
        "stand-ins": folders.stand_ins,
        **{name: found[0] for name, found in _libraries(part, folders) if found},
    }
    yield from (f"-ffile-prefix-map={folder}=/{name}" for name, folder in named.items())


def _own(plan: VariantPlan, part: Component, folders: Folders) -> Iterator[str]:
    root = (FRAMEWORKS.get(plan.framework).package_root,) if part.name == BINDING else ()
    for name in dict.fromkeys((*root, *part.include)):
        yield f"-I{folders.project / name}"
        if (folders.generated / name).is_dir():
            yield f"-I{folders.generated / name}"


def _system(part: Component, folders: Folders) -> Iterator[str]:
    libraries = [folder for _, found in _libraries(part, folders) for folder in found]
    for folder in (folders.python, *libraries, folders.stand_ins):
        yield from ("-isystem", str(folder))


def _libraries(part: Component, folders: Folders) -> Iterator[tuple[str, tuple[Path, ...]]]:
    yield from ((name, folders.libraries.get(name, ())) for name in part.depends)
    yield from folders.device.items()


def _kept(flags: Sequence[str]) -> Iterator[str]:
    """Of the plan's flags, those that decide what is parsed."""
    words = iter(flags)
    for word in words:
        if word in _SEPARATE:
            yield from (word, next(words, ""))
        elif word.startswith((*_JOINED, "-std=")):
            yield word
