"""The bindings and the `[kernel.*]` sections as components: sources, archs, flags, macros."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from kbuild.backends import BACKENDS
from kbuild.backends.base import OTHER_SOURCES, Archs, UnitFlags, compiled_suffixes
from kbuild.config.model import KernelSection, TorchSection, TvmFfiSection
from kbuild.errors import ConfigError, Problem
from kbuild.plan import BINDING, Component, Source
from kbuild.planning.desk import Desk
from kbuild.project import BUILD_FILE
from kbuild.version import Version

_USUAL_INCLUDE = "csrc"
_RELEASE = re.compile(r"_\d[\d_]*$")


def components(desk: Desk) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    """The components, bindings first, and one sentence per part that is left out."""
    binding = _binding(desk)
    # Without sources of its own, the extension is what is generated for kernels in DSLs.
    foreign = desk.project.dsl_kernels_for(desk.backend.name)
    parts = [binding] if binding.compiled or not foreign else []
    notes: list[str] = []
    for name, section in desk.project.kernels_for(desk.backend.name).items():
        if not desk.backend.applies(section, desk.toolkit):
            notes.append(f"kernel.{name} is left out: it asks for a newer {desk.backend.title}")
            continue
        archs = _kernel_archs(desk, name, section)
        if archs is None:
            notes.append(f"kernel.{name} is left out: it has no code for {', '.join(desk.archs)}")
            continue
        notes.extend(f"kernel.{name}: {reason}" for reason in (*archs.dropped, *archs.shared))
        parts.append(_kernel(desk, name, section, archs))
    notes += [note for part in parts for note in _overlooked(desk, part)]
    if not foreign and not any(part.compiled for part in parts):
        raise _nothing_to_compile(desk, notes)
    return tuple(parts), tuple(notes)


def _overlooked(desk: Desk, part: Component) -> Iterator[str]:
    """One sentence for sources that no compiler of the backend takes."""
    left = [
        source.path
        for source in part.sources
        if source.language is None and posixpath.splitext(source.path)[1] in OTHER_SOURCES
    ]
    if left:
        named, are = ", ".join(f"`{path}`" for path in left), "is" if len(left) == 1 else "are"
        takes = ", ".join(compiled_suffixes(desk.backend))
        where = _place(desk, part.name)
        yield f"{where}: {named} {are} not compiled: {desk.backend.title} takes {takes}"


def _nothing_to_compile(desk: Desk, notes: Iterable[str]) -> ConfigError:
    reasons = "".join(f"; {note}" for note in notes)
    words = f"no section has a source that is compiled (variant {desk.choice.variant}){reasons}"
    hint = f"list a source in `src` of `[{desk.framework.table}]` or of a kernel"
    return ConfigError([Problem(BUILD_FILE, 0, f"{desk.framework.table}.src", words, hint)])


def _place(desk: Desk, name: str) -> str:
    return desk.framework.table if name == BINDING else f"kernel.{name}"


def _binding(desk: Desk) -> Component:
    section = desk.project.file.framework_table(desk.framework.table)
    assert isinstance(section, (TorchSection, TvmFfiSection))  # noqa: S101 - compiled frameworks
    own = UnitFlags((("CXX", section.cxx_flags),) if section.cxx_flags else ())
    sources = _sources(desk.backend.name, tuple(section.src))
    archs = _binding_archs(desk, sources)
    return Component(
        name=BINDING,
        sources=sources,
        include=_include(desk, section.include),
        definitions=(
            *desk.framework.definitions(desk.ops_name, desk.floor),
            f"{desk.framework.name_macro}={desk.ops_name}",
        ),
        flags=_joined(
            desk.backend.binding_flags(desk.toolkit),
            desk.backend.arch_flags(archs, desk.toolkit) if archs.names else UnitFlags(),
            own,
        ),
        archs=archs.names,
        depends=(desk.framework.table, *_libraries(desk)),
    )


def _binding_archs(desk: Desk, sources: Sequence[Source]) -> Archs:
    """The toolkit's own archs when the bindings hold device code, which has no list of its own."""
    device = set(desk.backend.languages) - {"CXX"}
    if any(source.language in device for source in sources):
        return desk.backend.archs(desk.archs or None, desk.toolkit)
    return Archs()


def _kernel(desk: Desk, name: str, section: KernelSection, archs: Archs) -> Component:
    sources = [posixpath.normpath(source) for source in section.src]
    include = _include(desk, section.include)
    sees_framework = _sees_framework(desk, section, sources, include)
    own = desk.backend.flags(section, archs, desk.toolkit)
    common = desk.backend.binding_flags(desk.toolkit) if sees_framework else UnitFlags()
    return Component(
        name=name,
        sources=_sources(desk.backend.name, tuple(section.src)),
        include=include,
        definitions=_kernel_definitions(desk, sources, include, sees_framework=sees_framework),
        flags=_joined(common, own),
        archs=archs.names,
        depends=_depends(desk, section, sees_framework=sees_framework),
    )


def _sees_framework(
    desk: Desk, section: KernelSection, sources: Sequence[str], include: Sequence[str]
) -> bool:
    """Torch is seen by sections that ask for it, in `depends` or by including its headers.

    Another framework is seen by all, and instead of Torch.
    """
    if desk.framework.table != "torch" or "torch" in section.depends:
        return True
    return desk.includes.lead_below(sources, include, desk.framework.header_folders)


def _libraries(desk: Desk, own: Sequence[str] = ()) -> tuple[str, ...]:
    """What the backend's sections depend on: each library's headers are for every unit.

    As in Hugging Face's builder, where a library's folders are those of the whole project, also
    when the section that names it is left out. Of a library in several releases, a unit sees the
    one that its section names, or none.

    Args:
        desk: the variant's.
        own: what the section of the units names.
    """
    sections = desk.project.kernels_for(desk.backend.name).values()
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


def _depends(desk: Desk, section: KernelSection, *, sees_framework: bool) -> tuple[str, ...]:
    """The framework, the section's own libraries, then those of the other sections."""
    own = section.depends
    if sees_framework and desk.framework.table not in own:
        own = (desk.framework.table, *own)
    if desk.framework.table != "torch":
        own = tuple(name for name in own if name != "torch")
    return tuple(dict.fromkeys((*own, *_libraries(desk, own))))


def _kernel_definitions(
    desk: Desk, sources: Sequence[str], include: Sequence[str], *, sees_framework: bool
) -> tuple[str, ...]:
    """The op namespace goes only where it is used: a new id then recompiles nothing else."""
    macro = desk.framework.name_macro
    uses_name = desk.includes.mention(sources, include, macro)
    return (
        *(desk.framework.definitions(desk.ops_name, desk.floor) if sees_framework else ()),
        *((f"{macro}={desk.ops_name}",) if uses_name else ()),
    )


def _kernel_archs(desk: Desk, name: str, section: KernelSection) -> Archs | None:
    """The section's archs, or those of them that the user asks for; None when none is left."""
    key = desk.backend.arch_key
    if key is None:
        return Archs()
    listed = getattr(section, key.replace("-", "_"))
    requested = None if listed is None else tuple(listed)
    try:
        found = _archs(desk.backend.name, requested, desk.toolkit)
        chosen: Archs | None = found
        if desk.archs and requested is None:
            chosen = _archs(desk.backend.name, desk.archs, desk.toolkit)
        elif desk.archs:
            chosen = _asked_for(desk, found)
        return desk.backend.grouped(section, chosen, found) if chosen else None
    except ValueError as error:
        where = f"kernel.{name}.{key}"
        problem = Problem(BUILD_FILE, 0, where, f"{error} (variant {desk.choice.variant})")
        raise ConfigError([problem]) from None


@cache
def _archs(backend: str, requested: tuple[str, ...] | None, toolkit: Version | None) -> Archs:
    """The archs of a section; sections and variants often ask for the same."""
    return BACKENDS.get(backend).archs(requested, toolkit)


def _asked_for(desk: Desk, archs: Archs) -> Archs | None:
    kept = tuple(
        arch
        for arch in archs.names
        if any(desk.backend.arch_serves(arch, wanted) for wanted in desk.archs)
    )
    return Archs(kept, archs.dropped) if kept else None


@cache
def _sources(backend: str, paths: tuple[str, ...]) -> tuple[Source, ...]:
    """The sources of a section; the same for every variant of its backend."""
    distinct = dict.fromkeys(posixpath.normpath(path) for path in paths)
    language_of = BACKENDS.get(backend).language_of
    return tuple(Source(path, language_of(path)) for path in distinct)


def _include(desk: Desk, folders: Sequence[str]) -> tuple[str, ...]:
    """The section's folders; `csrc` as well when there is one, as in Hugging Face's builder."""
    usual = (_USUAL_INCLUDE,) if desk.tree.is_dir(_USUAL_INCLUDE) else ()
    return tuple(dict.fromkeys(posixpath.normpath(folder) for folder in (*folders, *usual)))


def _joined(*parts: UnitFlags) -> tuple[tuple[str, tuple[str, ...]], ...]:
    joined: dict[str, tuple[str, ...]] = {}
    for part in parts:
        for language, flags in part.by_language:
            joined[language] = (*joined.get(language, ()), *flags)
    return tuple(joined.items())
