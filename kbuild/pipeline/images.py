"""What is said of compiled images: rows of the report, and versions in `metadata.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kbuild.licences import entry_of
from kbuild.plan import VariantPlan

if TYPE_CHECKING:
    from kbuild.build.images import ImageRow
    from kbuild.languages.compiled import Compiled
    from kbuild.languages.produce import Images


def image_rows(images: Images) -> tuple[ImageRow, ...]:
    """A row for each op and target, in the order of the plan."""
    groups: dict[tuple[str, str, str], list[Compiled]] = {}
    for kernel, compiled in images:
        for one in compiled:
            key = (kernel.name, one.unit.op, str(one.unit.target))
            groups.setdefault(key, []).append(one)
    return tuple(_row(*key, group) for key, group in groups.items())


def with_compilers(made: VariantPlan, images: Images) -> VariantPlan:
    """The plan whose toolchain says as well what compiled the images."""
    found: dict[str, set[str]] = {}
    for _, compiled in images:
        for one in compiled:
            for name, version in one.image.compiler.items():
                found.setdefault(name, set()).add(version)
    if made.toolchain is None or not found:
        return made
    listed = ((name, ", ".join(sorted(versions))) for name, versions in sorted(found.items()))
    versions = (*made.toolchain.versions, *listed, *_licences(images))
    return made.with_toolchain(replace(made.toolchain, versions=versions))


def _licences(images: Images) -> Iterator[tuple[str, str]]:
    """Others' code that is linked into the variant."""
    from kbuild.languages.base import LANGUAGES

    found: dict[str, list[str]] = {}
    for kernel, compiled in images:
        if any(one.image.kind == "object" for one in compiled):
            for name, what in LANGUAGES.get(kernel.language).licences(kernel.toolchain).items():
                found.setdefault(name, []).append(what)
    for name, parts in sorted(found.items()):
        yield entry_of(name), " and ".join(sorted(set(parts)))


def _row(kernel: str, op: str, target: str, group: Sequence[Compiled]) -> ImageRow:
    from kbuild.build.images import ImageRow

    codes = {one.code: one for one in group}  # candidates may share one
    needs = [_needs(one) for one in codes.values()]
    return ImageRow(
        kernel,
        op,
        target,
        images=len(group),
        size=sum(map(len, codes)),
        cached=sum(1 for one in group if one.cached),
        seconds=round(sum(one.seconds for one in group if not one.cached), 3),
        shared=max(one.shared for one in needs),
        registers=_most(one.registers for one in needs),
        spills=_most(one.image.spills for one in group),
        local=_most(one.local for one in needs),
    )


@dataclass(frozen=True)
class _Needs:
    """What one image takes, of its kernels the most."""

    registers: int | None
    local: int | None
    shared: int


def _needs(one: Compiled) -> _Needs:
    """The code says more than the compiler, unless the driver makes it."""
    from kbuild.checks.readers.resources import resources

    found = resources(one.code)
    return _Needs(
        _most([one.image.registers, *(kernel.registers for kernel in found)]),
        _most(kernel.local for kernel in found),
        one.image.shared + max((kernel.shared for kernel in found), default=0),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
