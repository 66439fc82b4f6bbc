"""The images of a build: a row for each op and target, and their compilers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kbuild.checks.readers.nvidia import read_kernel_resources
from kbuild.ops.image import UnitImage
from kbuild.ops.language import LANGUAGES
from kbuild.plan.plan import AotKernel, VariantPlan
from kbuild.project.licences import metadata_entry

Images: TypeAlias = "tuple[tuple[AotKernel, tuple[UnitImage, ...]], ...]"
"""Every kernel with its images."""


@dataclass(frozen=True)
class ImageRow:
    """All images of one op for one arch, added up."""

    kernel: str
    """The `[kernel.*]` section."""
    op: str
    target: str
    """`sm_90a`, `compute_80` (PTX), `gfx942`."""
    images: int
    size: int
    """Bytes of device code."""
    cached: int
    """Images that were compiled before."""
    seconds: float
    """Seconds of compiling the others, one after the other."""
    shared: int
    """Bytes of shared memory of a block, of the image that takes most."""
    registers: int | None = None
    """Registers of the image with most, where the compiler says so."""
    spills: int | None = None
    """Bytes, on AMD registers, that did not fit, of the image with most; see `registers`."""
    local: int | None = None
    """Bytes of local memory of a thread, of the image with most, where machine code says so: what
    did not fit into registers, and arrays."""


def image_rows(images: Images) -> tuple[ImageRow, ...]:
    """A row for each op and target, in the order of the plan."""
    groups: dict[tuple[str, str, str], list[UnitImage]] = {}
    for kernel, compiled in images:
        for unit_image in compiled:
            key = (kernel.name, unit_image.unit.op, str(unit_image.unit.target))
            groups.setdefault(key, []).append(unit_image)
    return tuple(_row(*key, group) for key, group in groups.items())


def with_image_compilers(plan: VariantPlan, images: Images) -> VariantPlan:
    """The plan with the compilers of the images in its toolchain."""
    versions_by_name: dict[str, set[str]] = {}
    for _, compiled in images:
        for unit_image in compiled:
            for name, version in unit_image.image.compiler.items():
                versions_by_name.setdefault(name, set()).add(version)
    if plan.toolchain is None or not versions_by_name:
        return plan
    listed = (
        (name, ", ".join(sorted(versions))) for name, versions in sorted(versions_by_name.items())
    )
    versions = (*plan.toolchain.versions, *listed, *_licences(images))
    return plan.with_toolchain(replace(plan.toolchain, versions=versions))


def _licences(images: Images) -> Iterator[tuple[str, str]]:
    """Licences of others' code that is linked into the variant."""
    parts_by_name: dict[str, list[str]] = {}
    for kernel, compiled in images:
        if any(unit_image.image.kind == "object" for unit_image in compiled):
            for name, what in LANGUAGES.get(kernel.language).licences(kernel.toolchain).items():
                parts_by_name.setdefault(name, []).append(what)
    for name, parts in sorted(parts_by_name.items()):
        yield metadata_entry(name), " and ".join(sorted(set(parts)))


def _row(kernel: str, op: str, target: str, group: Sequence[UnitImage]) -> ImageRow:
    codes = {unit_image.code: unit_image for unit_image in group}  # candidates may share one
    needs = [resources_of(unit_image) for unit_image in codes.values()]
    return ImageRow(
        kernel,
        op,
        target,
        images=len(group),
        size=sum(map(len, codes)),
        cached=sum(1 for unit_image in group if unit_image.cached),
        seconds=round(sum(unit_image.seconds for unit_image in group if not unit_image.cached), 3),
        shared=max(need.shared for need in needs),
        registers=_max_known(need.registers for need in needs),
        spills=_max_known(unit_image.image.spills for unit_image in group),
        local=_max_known(need.local for need in needs),
    )


@dataclass(frozen=True)
class ImageResources:
    """The most registers, local and shared memory of one image's kernels."""

    registers: int | None
    local: int | None
    shared: int


def resources_of(unit_image: UnitImage) -> ImageResources:
    """Read the resources from the code, or from the compiler if the driver compiles it later."""
    kernels = read_kernel_resources(unit_image.code)
    return ImageResources(
        _max_known([unit_image.image.registers, *(kernel.registers for kernel in kernels)]),
        _max_known(kernel.local for kernel in kernels),
        unit_image.image.shared + max((kernel.shared for kernel in kernels), default=0),
    )


def _max_known(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
