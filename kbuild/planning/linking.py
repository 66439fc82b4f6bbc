"""How the extension is linked: the libraries, and the flags of the linker's driver.

CMake hands compiler flags to the compiler alone. Some of them mean a library as well (`-fopenmp`:
libgomp), which the driver adds only when it is told the same while it links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbuild.plan import BINDING, Component
from kbuild.planning.desk import Desk

# GCC, "Options Controlling the Kind of Output" and others, say of these that they are for the link
# too; Clang and DPC++ have their own spellings. `-ffast-math` and `-Ofast` are left out on purpose:
# at link they set the whole process's floating point mode when the kernel is loaded.
_COUNTERPART = re.compile(
    r"""
      -f(?:i?openmp|openacc|gnu-tm|split-stack)(?:=.*)? | -fopenmp-targets=.*
    | -ftree-parallelize-loops=.* | -foffload(?:=.*)?
    | -q(?:openmp|mkl|tbb|ipp|ccl|dal|actypes)(?:[-=].*)?
    | -pthreads? | -pg
    | -f(?:no-)?sanitize(?:-[a-z-]+)?=.* | -f(?:no-)?sanitize-link-[a-z+-]+
    | -(?:static|shared)-lib(?:[altu]|hwa)?san
    | -flto(?:[-=].*)? | -fuse-linker-plugin | -ffat-lto-objects
    | --?coverage | -fprofile-(?:arcs|generate(?:=.*)?|use(?:=.*)?|dir=.*|update=.*)
    | -f(?:cs-)?profile-(?:instr-)?(?:generate|use)(?:=.*)?
    | -fxray-[a-z-]+(?:=.*)?
    | -f(?:no-)?sycl-(?:rdc|device-code-split(?:=.*)?|fp64-conv-emu)
    | -ftarget-register-alloc-mode=.*
    """,
    re.VERBOSE,
)
_NEGATED = re.compile(r"-(?P<kind>[fq])no-(?P<name>(?!sanitize|sycl).*)")
# What only a linker reads: a compiler that does not link takes these and does nothing.
_LINKER_ONLY = re.compile(
    r"""
      -Wl,.* | -L.+ | -l(?!ineinfo).+ | -fuse-ld=.* | -rtlib=.* | -unwindlib=.*
    | -(?:static|shared)-(?:libgcc|libstdc\+\+|intel)
    | -(?:static|shared|rdynamic|nostdlib|nodefaultlibs|nostartfiles)
    """,
    re.VERBOSE,
)
_WITH_VALUE = ("-Xlinker", "-z")
"""Options of the linker whose value is the next argument."""
_OPENMP = re.compile(r"-f(?:i)?openmp(?:=.*)?")
_TO_FRONT_END = ("-Xclang", "-Xpreprocessor")
"""Options of clang that hand the next argument on; Apple's clang takes OpenMP in no other way."""
_TO_DEVICE = ("-Xarch_device", "-Xptxas", "-Xcudafe", "-Xfatbin", "-Xnvlink", "-Xassembler")
"""Options whose value the host's compiler never sees."""
_TO_HOST = ("-Xcompiler", "--compiler-options", "-Xarch_host")
"""Options of nvcc and of clang whose value is for the host's compiler."""
_CUDA = "CUDA"
_RELOCATABLE = re.compile(r"(?<!\S)--?(?:rdc|relocatable-device-code)[= ](true|false)\b")
_FOR_DEVICE_LINK = re.compile(r"--?(?:gencode|generate-code)=.+|--?dlto|-lineinfo|-G")
_SEPARATORS = re.compile(r"[,\s]+")
_APPLE_RUNTIME = "omp"
"""Base name of LLVM's OpenMP runtime, which Torch's wheels for macOS bring."""


@dataclass(frozen=True)
class _Given:
    """A flag as the host's compiler gets it."""

    text: str
    to_front_end: bool = False
    """It went past the driver, which therefore does not know of it."""


def libraries(
    desk: Desk, components: Sequence[Component], *, needs_toolkit: bool
) -> tuple[str, ...]:
    """What is linked: the framework, the backend's runtime, what flags mean beyond the driver.

    Launchers in generated C++ open the device's driver when they are first called.
    """
    device = desk.backend.libraries(desk.framework.name) if needs_toolkit else ()
    system = desk.choice.variant.system
    own: tuple[str, ...] = ()
    if system is not None and system.os == "darwin":
        past = [flag for flag in _given(components) if flag.to_front_end]
        own = (_APPLE_RUNTIME,) if any(_OPENMP.fullmatch(flag.text) for flag in past) else ()
    return (*desk.framework.libraries(), *own, *device)


def link_flags(desk: Desk, components: Sequence[Component]) -> tuple[str, ...]:
    """The backend's flags, and the link parts of the compiler flags, each once, in their order."""
    sections = desk.project.kernels_for(desk.backend.name).values()
    built = [section for section in sections if desk.backend.applies(section, desk.toolkit)]
    own = desk.backend.link_flags(built, desk.toolkit)
    return (*own, *(flag for flag in driver_flags(components) if flag not in own))


def driver_flags(components: Iterable[Component]) -> tuple[str, ...]:
    """The compiler flags that the driver needs again while it links, each once, in their order."""
    return tuple(dict.fromkeys(flag for part in components for flag in _counterparts(part)))


def device_link_flags(components: Sequence[Component]) -> tuple[str, ...]:
    """What nvcc links relocatable device code with; none where there is no such code."""
    parts = [dict(part.flags).get(_CUDA, ()) for part in components if _CUDA in part.languages]
    relocatable = [flags for flags in parts if _is_relocatable(flags)]
    kept = (flag for flags in relocatable for flag in flags if _FOR_DEVICE_LINK.fullmatch(flag))
    return tuple(dict.fromkeys(kept))


def _is_relocatable(flags: Sequence[str]) -> bool:
    """The last word counts; nvcc takes a value after `=` or as the next argument."""
    text = " ".join(flags)
    said = _RELOCATABLE.findall(text)
    return bool(said) and said[-1] == "true"


def linking_notes(desk: Desk, components: Sequence[Component]) -> tuple[str, ...]:
    """One sentence per flag that has no effect, because only a linker reads it."""
    notes = []
    for part in components:
        ignored = list(dict.fromkeys(_ignored(part)))
        if ignored:
            where = desk.framework.table if part.name == BINDING else f"kernel.{part.name}"
            named = ", ".join(f"`{flag}`" for flag in ignored)
            verb = "has" if len(ignored) == 1 else "have"
            notes.append(
                f"{where}: {named} {verb} no effect: kbuild links the extension, and the flags of "
                "a section are for its compiler"
            )
    return tuple(notes)


def _counterparts(part: Component) -> tuple[str, ...]:
    """What the driver has to be told again; a later `-fno-` takes back what was before it."""
    asked: list[str] = []
    for flag in _given([part]):
        negated = _NEGATED.fullmatch(flag.text)
        if negated is not None:
            name = re.compile(rf"-{negated['kind']}{re.escape(negated['name'])}(?:[-=].*)?")
            asked = [before for before in asked if not name.fullmatch(before)]
        elif not flag.to_front_end and _COUNTERPART.fullmatch(flag.text):
            asked.append(flag.text)
    return tuple(asked)


def _ignored(part: Component) -> Iterator[str]:
    flags = [flag.text for flag in _given([part])]
    for at, flag in enumerate(flags):
        if _LINKER_ONLY.fullmatch(flag):
            yield flag
        elif flag in _WITH_VALUE and at + 1 < len(flags):
            yield f"{flag} {flags[at + 1]}"


def _given(components: Iterable[Component]) -> Iterator[_Given]:
    """Every flag of the components, out of the options that hand it on."""
    for part in components:
        languages = part.languages
        for language, flags in part.flags:
            if language in languages:
                yield from _unwrapped(language, flags)


def _unwrapped(language: str, flags: Sequence[str]) -> Iterator[_Given]:
    """One language's flags; nvcc takes values after `=` as well, and several at a time."""
    waiting = iter(flags)
    for flag in waiting:
        name, equals, joined = flag.partition("=")
        if name in _TO_HOST:
            text = joined if equals else next(waiting, "")
            inner = _SEPARATORS.split(text) if language == _CUDA else [text]
            yield from (_Given(part) for part in inner if part)
        elif flag in _TO_FRONT_END:
            yield _Given(next(waiting, ""), to_front_end=True)
        elif flag in _TO_DEVICE:
            next(waiting, "")
        else:
            yield _Given(flag)
