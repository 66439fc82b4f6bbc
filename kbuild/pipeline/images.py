"""What is said of compiled images: rows of the report, and versions in `metadata.json`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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

    return ImageRow(
        kernel,
        op,
        target,
        images=len(group),
        size=sum(len(one.code) for one in group),
        cached=sum(1 for one in group if one.cached),
        seconds=round(sum(one.seconds for one in group if not one.cached), 3),
        shared=max(one.image.shared for one in group),
        registers=_most(one.image.registers for one in group),
        spills=_most(one.image.spills for one in group),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
