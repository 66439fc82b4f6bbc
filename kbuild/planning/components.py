"""The bindings and the `[kernel.*]` sections as components: sources, archs, flags, macros."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from kbuild.backends.base import Archs, UnitFlags
from kbuild.config.model import KernelSection, TorchSection, TvmFfiSection
from kbuild.errors import ConfigError, Problem
from kbuild.includes import mentions, reachable
from kbuild.plan import BINDING, Component, Source
from kbuild.planning.desk import Desk
from kbuild.project import BUILD_FILE

_USUAL_INCLUDE = "csrc"


def components(desk: Desk) -> tuple[tuple[Component, ...], tuple[str, ...]]:
    """The components, bindings first, and one sentence per part that is left out."""
    binding = _binding(desk)
    # Without sources of its own, the extension is what is generated for kernels in DSLs.
    foreign = desk.project.dsl_kernels_for(desk.backend.name)
    parts = [binding] if binding.sources or not foreign else []
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
    return tuple(parts), tuple(notes)


def _binding(desk: Desk) -> Component:
    section = desk.project.file.framework_table(desk.framework.table)
    assert isinstance(section, (TorchSection, TvmFfiSection))  # noqa: S101 - compiled frameworks
    own = UnitFlags((("CXX", section.cxx_flags),) if section.cxx_flags else ())
    sources = _sources(desk, section.src)
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
        depends=(desk.framework.table,),
    )


def _binding_archs(desk: Desk, sources: Sequence[Source]) -> Archs:
    """The toolkit's own archs when the bindings hold device code, which has no list of its own."""
    device = set(desk.backend.languages) - {"CXX"}
    if any(source.language in device for source in sources):
        return desk.backend.archs(desk.archs or None, desk.toolkit)
    return Archs()


def _kernel(desk: Desk, name: str, section: KernelSection, archs: Archs) -> Component:
    sees_torch = "torch" in section.depends or desk.framework.table != "torch"
    own = desk.backend.flags(section, archs, desk.toolkit)
    common = desk.backend.binding_flags(desk.toolkit) if sees_torch else UnitFlags()
    return Component(
        name=name,
        sources=_sources(desk, section.src),
        include=_include(desk, section.include),
        definitions=_kernel_definitions(desk, section, sees_framework=sees_torch),
        flags=_joined(common, own),
        archs=archs.names,
        depends=_depends(desk, section),
    )


def _depends(desk: Desk, section: KernelSection) -> tuple[str, ...]:
    """Torch is seen by those that ask for it; another framework by all, and instead of Torch."""
    if desk.framework.table == "torch":
        return section.depends
    return (desk.framework.table, *(name for name in section.depends if name != "torch"))


def _kernel_definitions(
    desk: Desk, section: KernelSection, *, sees_framework: bool
) -> tuple[str, ...]:
    """The op namespace goes only where it is used: a new id then recompiles nothing else."""
    macro = desk.framework.name_macro
    files = {
        path for source in section.src for path in reachable(desk.tree, source, section.include)
    }
    uses_name = mentions(desk.tree, files, macro)
    return (
        *(desk.framework.definitions(desk.ops_name, desk.floor) if sees_framework else ()),
        *((f"{macro}={desk.ops_name}",) if uses_name else ()),
    )


def _kernel_archs(desk: Desk, name: str, section: KernelSection) -> Archs | None:
    """The section's archs, or those of them that the user asks for; None when none is left."""
    key = desk.backend.arch_key
    if key is None:
        return Archs()
    requested = getattr(section, key.replace("-", "_"))
    try:
        found = desk.backend.archs(requested, desk.toolkit)
        chosen: Archs | None = found
        if desk.archs and requested is None:
            chosen = desk.backend.archs(desk.archs, desk.toolkit)
        elif desk.archs:
            chosen = _asked_for(desk, found)
        return desk.backend.grouped(section, chosen, found) if chosen else None
    except ValueError as error:
        where = f"kernel.{name}.{key}"
        problem = Problem(BUILD_FILE, 0, where, f"{error} (variant {desk.choice.variant})")
        raise ConfigError([problem]) from None


def _asked_for(desk: Desk, archs: Archs) -> Archs | None:
    kept = tuple(
        arch
        for arch in archs.names
        if any(desk.backend.arch_serves(arch, wanted) for wanted in desk.archs)
    )
    return Archs(kept, archs.dropped) if kept else None


def _sources(desk: Desk, paths: Iterable[str]) -> tuple[Source, ...]:
    distinct = dict.fromkeys(posixpath.normpath(path) for path in paths)
    return tuple(Source(path, desk.backend.language_of(path)) for path in distinct)


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
