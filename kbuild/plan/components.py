"""Components of a variant (sources, archs, flags, macros), its libraries and its linker flags.

CMake hands compiler flags to the compiler alone. Some of them mean a library as well (`-fopenmp`:
libgomp), which the driver adds only when it gets the same flag while it links.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from kbuild.backends import BACKENDS
from kbuild.backends.base import OTHER_SOURCES, Archs, UnitFlags, compiled_suffixes
from kbuild.plan.context import PlanningContext
from kbuild.plan.plan import BINDING, Component, Source
from kbuild.project.config.load import config_error
from kbuild.project.config.model import KernelSection, TorchSection, TvmFfiSection
from kbuild.system.errors import ConfigError
from kbuild.system.version import Version

_USUAL_INCLUDE = "csrc"
_RELEASE = re.compile(r"_\d[\d_]*$")
_STANDARD = re.compile(r"--?std[=:]")


def components(context: PlanningContext) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    """The components, bindings first, and one sentence per part that is left out."""
    binding = _binding(context)
    # Without sources of its own, the extension is what is generated for kernels in DSLs.
    dsl_kernels = context.project.dsl_kernels_for(context.backend.name)
    parts = [binding] if binding.compiled or not dsl_kernels else []
    notes: list[str] = []
    for name, section in context.project.cxx_kernels_for(context.backend.name).items():
        if not context.backend.applies(section, context.toolkit):
            notes.append(f"kernel.{name} is left out: it asks for a newer {context.backend.title}")
            continue
        archs = _kernel_archs(context, name, section)
        if archs is None:
            notes.append(
                f"kernel.{name} is left out: it has no code for {', '.join(context.archs)}"
            )
            continue
        notes.extend(f"kernel.{name}: {reason}" for reason in (*archs.dropped, *archs.shared))
        parts.append(_kernel(context, name, section, archs))
    notes += [note for part in parts for note in _uncompiled_source_notes(context, part)]
    if not dsl_kernels and not any(part.compiled for part in parts):
        raise _nothing_to_compile(context, notes)
    return tuple(parts), tuple(notes)


def _uncompiled_source_notes(context: PlanningContext, part: Component) -> Iterator[str]:
    """One sentence for sources that no compiler of the backend takes."""
    left = [
        source.path
        for source in part.sources
        if source.language is None and posixpath.splitext(source.path)[1] in OTHER_SOURCES
    ]
    if left:
        named, are = ", ".join(f"`{path}`" for path in left), "is" if len(left) == 1 else "are"
        takes = ", ".join(compiled_suffixes(context.backend))
        where = context.framework.table if part.name == BINDING else f"kernel.{part.name}"
        yield f"{where}: {named} {are} not compiled: {context.backend.title} takes {takes}"


def _nothing_to_compile(context: PlanningContext, notes: Iterable[str]) -> ConfigError:
    reasons = "".join(f"; {note}" for note in notes)
    message = (
        f"no section has a source that is compiled (variant {context.choice.variant}){reasons}"
    )
    hint = f"list a source in `src` of `[{context.framework.table}]` or of a kernel"
    return config_error(context.tree, (context.framework.table, "src"), message, hint)


def _binding(context: PlanningContext) -> Component:
    section = context.project.file.framework_table(context.framework.table)
    assert isinstance(section, (TorchSection, TvmFfiSection))  # noqa: S101 - compiled frameworks
    own = UnitFlags((("CXX", section.cxx_flags),) if section.cxx_flags else ())
    sources = _sources(context.backend.name, tuple(section.src))
    archs = _binding_archs(context, sources)
    return Component(
        name=BINDING,
        sources=sources,
        include=_include(context, section.include),
        definitions=(
            *context.framework.definitions(context.ops_name, context.floor),
            f"{context.framework.name_macro}={context.ops_name}",
        ),
        flags=_merge_flags(
            context.backend.binding_flags(context.toolkit),
            context.backend.arch_flags(archs, context.toolkit) if archs.names else UnitFlags(),
            own,
            _c_flags(sources, section.cxx_flags),
        ),
        archs=archs.names,
        depends=(context.framework.table, *_libraries(context)),
    )


def _c_flags(sources: Sequence[Source], cxx_flags: Sequence[str]) -> UnitFlags:
    """Flags of C sources: those of C++ without the standard; symbols are hidden by default."""
    if not any(source.language == "C" for source in sources):
        return UnitFlags()
    kept = (flag for flag in cxx_flags if not _STANDARD.match(flag))
    return UnitFlags((("C", ("-fvisibility=hidden", *kept)),))


def _binding_archs(context: PlanningContext, sources: Sequence[Source]) -> Archs:
    """The toolkit's own archs if the bindings have device code, which lists no archs of its own."""
    device = set(context.backend.languages) - {"CXX"}
    if any(source.language in device for source in sources):
        return context.backend.archs(context.archs or None, context.toolkit)
    return Archs()


def _kernel(context: PlanningContext, name: str, section: KernelSection, archs: Archs) -> Component:
    sources = [posixpath.normpath(source) for source in section.src]
    include = _include(context, section.include)
    sees_framework = _sees_framework(context, section, sources, include)
    own = context.backend.flags(section, archs, context.toolkit)
    compiled = _sources(context.backend.name, tuple(section.src))
    common = context.backend.binding_flags(context.toolkit) if sees_framework else UnitFlags()
    # The op namespace goes only where it is used: a new id then recompiles nothing else.
    macro = context.framework.name_macro
    uses_name = context.includes.mention(sources, include, macro)
    return Component(
        name=name,
        sources=compiled,
        include=include,
        definitions=(
            (
                *(
                    context.framework.definitions(context.ops_name, context.floor)
                    if sees_framework
                    else ()
                ),
                *((f"{macro}={context.ops_name}",) if uses_name else ()),
            )
        ),
        flags=_merge_flags(common, own, _c_flags(compiled, section.cxx_flags)),
        archs=archs.names,
        depends=_depends(context, section, sees_framework=sees_framework),
    )


def _sees_framework(
    context: PlanningContext, section: KernelSection, sources: Sequence[str], include: Sequence[str]
) -> bool:
    """True if the section asks for Torch in `depends`, or includes its headers.

    Another framework is seen by all, and instead of Torch.
    """
    if context.framework.table != "torch" or "torch" in section.depends:
        return True
    return context.includes.lead_below(sources, include, context.framework.header_folders)


def _libraries(context: PlanningContext, own: Sequence[str] = ()) -> tuple[str, ...]:
    """Libraries that the backend's sections depend on; every unit may include their headers.

    As in Hugging Face's builder, where a library's folders are those of the whole project, also
    when the section that names it is left out. Of a library in several releases, a unit sees the
    one that its section names, or none.
    """
    sections = context.project.cxx_kernels_for(context.backend.name).values()
    named = {name for section in sections for name in section.depends if name != "torch"}
    releases = Counter(map(_library_of, named))
    known = {_library_of(name) for name in own}
    return tuple(
        name
        for name in sorted(named)
        if name in own or (releases[_library_of(name)] == 1 and _library_of(name) not in known)
    )


def _library_of(name: str) -> str:
    """`cutlass` of `cutlass_3_8`."""
    return _RELEASE.sub("", name)


def _depends(
    context: PlanningContext, section: KernelSection, *, sees_framework: bool
) -> tuple[str, ...]:
    """The framework, the section's own libraries, then those of the other sections."""
    own = section.depends
    if sees_framework and context.framework.table not in own:
        own = (context.framework.table, *own)
    if context.framework.table != "torch":
        own = tuple(name for name in own if name != "torch")
    return tuple(dict.fromkeys((*own, *_libraries(context, own))))


def _kernel_archs(context: PlanningContext, name: str, section: KernelSection) -> Archs | None:
    """The section's archs, or those of them that the user asks for; None when none is left."""
    key = context.backend.arch_key
    if key is None:
        return Archs()
    listed = getattr(section, key.replace("-", "_"))
    requested = None if listed is None else tuple(listed)
    try:
        archs = _archs(context.backend.name, requested, context.toolkit)
        chosen: Archs | None = archs
        if context.archs and requested is None:
            chosen = _archs(context.backend.name, context.archs, context.toolkit)
        elif context.archs:
            kept = tuple(
                arch
                for arch in archs.names
                if any(context.backend.arch_serves(arch, wanted) for wanted in context.archs)
            )
            chosen = Archs(kept, archs.dropped) if kept else None
        return context.backend.without_shared(section, chosen, archs) if chosen else None
    except ValueError as error:
        message = f"{error} (variant {context.choice.variant})"
        raise config_error(context.tree, ("kernel", name, key), message) from None


@cache
def _archs(backend: str, requested: tuple[str, ...] | None, toolkit: Version | None) -> Archs:
    """The archs of a section; sections and variants often ask for the same."""
    return BACKENDS.get(backend).archs(requested, toolkit)


@cache
def _sources(backend: str, paths: tuple[str, ...]) -> tuple[Source, ...]:
    """The sources of a section; the same for every variant of its backend."""
    distinct = dict.fromkeys(posixpath.normpath(path) for path in paths)
    language_of = BACKENDS.get(backend).language_of
    return tuple(Source(path, language_of(path)) for path in distinct)


def _include(context: PlanningContext, folders: Sequence[str]) -> tuple[str, ...]:
    """The section's folders; `csrc` as well when there is one, as in Hugging Face's builder."""
    usual = (_USUAL_INCLUDE,) if context.tree.is_dir(_USUAL_INCLUDE) else ()
    return tuple(dict.fromkeys(posixpath.normpath(folder) for folder in (*folders, *usual)))


def _merge_flags(*parts: UnitFlags) -> tuple[tuple[str, tuple[str, ...]], ...]:
    joined: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for language, flags in part.by_language:
            joined[language] = (*joined.get(language, ()), *flags)
    return tuple(joined.items())


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
_SEPARATORS = re.compile(r"[,\s]+")
_APPLE_RUNTIME = "omp"
"""Base name of LLVM's OpenMP runtime, which Torch's wheels for macOS bring."""


@dataclass(frozen=True)
class _HostFlag:
    """A flag as the host's compiler gets it."""

    text: str
    to_front_end: bool = False
    """True if the flag bypassed the driver, which therefore does not know of it."""


def libraries(
    context: PlanningContext, components: Sequence[Component], *, needs_toolkit: bool
) -> tuple[str, ...]:
    """Libraries to link: the framework's, the device runtime's, and those that flags imply.

    Launchers in generated C++ open the device's driver when they are first called.
    """
    device = context.backend.libraries(context.framework.name) if needs_toolkit else ()
    system = context.choice.variant.system
    own: tuple[str, ...] = ()
    if system is not None and system.os == "darwin":
        past = [flag for flag in _host_flags(components) if flag.to_front_end]
        # Apple's driver does not know of a flag that bypassed it, and does not add the runtime.
        own = (_APPLE_RUNTIME,) if any(_OPENMP.fullmatch(flag.text) for flag in past) else ()
    return (*context.framework.libraries(), *own, *device)


def link_flags(context: PlanningContext, components: Sequence[Component]) -> tuple[str, ...]:
    """The backend's flags, and the link parts of the compiler flags, each once, in their order."""
    sections = context.project.cxx_kernels_for(context.backend.name).values()
    built = [section for section in sections if context.backend.applies(section, context.toolkit)]
    own = context.backend.link_flags(built, context.toolkit)
    return (*own, *(flag for flag in driver_flags(components) if flag not in own))


def driver_flags(components: Iterable[Component]) -> tuple[str, ...]:
    """The compiler flags that the driver needs again while it links, each once, in their order."""
    return tuple(dict.fromkeys(flag for part in components for flag in _link_counterparts(part)))


def linking_notes(context: PlanningContext, components: Sequence[Component]) -> tuple[str, ...]:
    """One sentence per flag that has no effect, because only a linker reads it."""
    notes = []
    for part in components:
        ignored = list(dict.fromkeys(_linker_only_flags(part)))
        if ignored:
            where = context.framework.table if part.name == BINDING else f"kernel.{part.name}"
            named = ", ".join(f"`{flag}`" for flag in ignored)
            verb = "has" if len(ignored) == 1 else "have"
            notes.append(
                f"{where}: {named} {verb} no effect: kbuild links the extension, and the flags of "
                "a section are for its compiler"
            )
    return tuple(notes)


def _link_counterparts(part: Component) -> tuple[str, ...]:
    """Compiler flags that the link needs as well; a later `-fno-` cancels an earlier flag."""
    asked: list[str] = []
    for flag in _host_flags([part]):
        negated = _NEGATED.fullmatch(flag.text)
        if negated is not None:
            name = re.compile(rf"-{negated['kind']}{re.escape(negated['name'])}(?:[-=].*)?")
            asked = [before for before in asked if not name.fullmatch(before)]
        elif not flag.to_front_end and _COUNTERPART.fullmatch(flag.text):
            asked.append(flag.text)
    return tuple(asked)


def _linker_only_flags(part: Component) -> Iterator[str]:
    flags = [flag.text for flag in _host_flags([part])]
    for at, flag in enumerate(flags):
        if _LINKER_ONLY.fullmatch(flag):
            yield flag
        elif flag in _WITH_VALUE and at + 1 < len(flags):
            yield f"{flag} {flags[at + 1]}"


def _host_flags(components: Iterable[Component]) -> Iterator[_HostFlag]:
    """Every flag of the components, out of the options that hand it on."""
    for part in components:
        languages = part.languages
        for language, flags in part.flags:
            if language in languages:
                yield from _unwrap_flags(language, flags)


def _unwrap_flags(language: str, flags: Sequence[str]) -> Iterator[_HostFlag]:
    """One language's flags; nvcc takes values after `=` as well, and several at a time."""
    waiting = iter(flags)
    for flag in waiting:
        name, equals, joined = flag.partition("=")
        if name in _TO_HOST:
            text = joined if equals else next(waiting, "")
            inner = _SEPARATORS.split(text) if language == _CUDA else [text]
            yield from (_HostFlag(part) for part in inner if part)
        elif flag in _TO_FRONT_END:
            yield _HostFlag(next(waiting, ""), to_front_end=True)
        # Skip the value: it is not for the host's compiler.
        elif flag in _TO_DEVICE:
            next(waiting, "")
        else:
            yield _HostFlag(flag)
