"""The GPUs that `metadata.json` names are the GPUs that the binary has code for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbuild.checks.base import CHECKS, Check, Finding, Output
from kbuild.checks.metadata import ARCH_FORMS
from kbuild.checks.readers.archset import (
    Wanted,
    limited,
    listing,
    missing,
    other_kinds,
    own_images,
    unnamed,
)
from kbuild.checks.readers.deviceruntime import static_libraries
from kbuild.checks.readers.image import Image
from kbuild.checks.readers.libraries import (
    Holder,
    base_name,
    device_code,
    has_libraries,
    metadata_of,
    some,
)
from kbuild.metadata import METADATA_FILE

TITLES = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "SYCL"}


@dataclass(frozen=True)
class _Claim:
    """What the metadata says, and which library is expected to keep it."""

    backend: str
    archs: tuple[str, ...]
    extension: str
    """Where a finding on something that is nowhere belongs."""


@CHECKS.add
class Archs(Check):
    """What is in the bytes against `backend.archs`; no compiler flag is believed."""

    name = "archs"
    summary = f"Device code is there for exactly the archs that `{METADATA_FILE}` names."
    group = "archs"

    def applies(self, output: Output) -> bool:
        """Only where there are libraries."""
        return has_libraries(output)

    def run(self, output: Output) -> Iterator[Finding]:
        """Findings per library first, then on what none of them has."""
        holders = tuple(device_code(output))
        for holder in holders:
            yield from self._soundness(holder)
        backend, claim = _backend(output), _claim(output)
        if backend is not None:
            yield from self._foreign(holders, backend)
        if claim is None:
            yield from self._listed(holders, backend)
            yield from self._unclaimed(output, holders)
            return
        yield from self._unnamed(holders, claim)
        others = len(tuple(output.libraries())) - len(holders)  # no ELF files: not looked into
        if not others and all(holder.sound for holder in holders):
            yield from self._missing(holders, claim)

    def _soundness(self, holder: Holder) -> Iterator[Finding]:
        code = holder.code
        if holder.damage:
            hint = "build the variant again"
            yield Finding(self.name, "error", holder.where, holder.damage, hint)
        if code.unread:
            hint = "`pip install 'kbuild[rocm]'` brings what unpacks it"
            yield Finding(self.name, "warning", holder.where, code.unread, hint)
        strange = other_kinds(code.images)
        if strange:
            what = f"has {listing(strange)}, which no GPU or driver takes as it is"
            yield Finding(self.name, "info", holder.where, what)
        if code.relocatable and not any(image.backend == "cuda" for image in code.images):
            what = "its CUDA code was compiled with `-rdc=true` and never linked for the device"
            hint = "link with nvcc, or set CUDA_RESOLVE_DEVICE_SYMBOLS on the CMake target"
            yield Finding(self.name, "error", holder.where, what, hint)

    def _foreign(self, holders: Sequence[Holder], backend: str) -> Iterator[Finding]:
        for holder in holders:
            for other in sorted({image.backend for image in holder.code.images} - {backend}):
                found = listing(image for image in holder.code.images if image.backend == other)
                what = f"has {TITLES[other]} code for {found}, but the variant is for {backend}"
                hint = "leave the device sources out of this backend's sections"
                yield Finding(self.name, "error", holder.where, what, hint)

    def _listed(self, holders: Sequence[Holder], only: str | None) -> Iterator[Finding]:
        for holder in holders:
            for backend in sorted({image.backend for image in holder.code.images}):
                if only not in (None, backend):
                    continue  # an error already
                found = listing(image for image in holder.code.images if image.backend == backend)
                what = f"has {TITLES[backend]} code for {found}"
                yield Finding(self.name, "info", holder.where, what)

    def _unclaimed(self, output: Output, holders: Sequence[Holder]) -> Iterator[Finding]:
        metadata = metadata_of(output)
        if metadata is None or metadata.archs or metadata.backend not in ARCH_FORMS:
            return
        own = [own_images(holder.code.images, metadata.backend) for holder in holders]
        if any(own) or not own:
            what = f"`backend.archs` is missing for a compiled {metadata.backend} variant"
            hint = "list the archs that were compiled: the client compares them with the device"
            yield Finding(self.name, "error", METADATA_FILE, what, hint)

    def _unnamed(self, holders: Sequence[Holder], claim: _Claim) -> Iterator[Finding]:
        for holder in holders:
            extra = unnamed(own_images(holder.code.images, claim.backend), Wanted.of(claim.archs))
            if not extra:
                continue
            libraries = static_libraries(holder.path)
            what = f"has code for {listing(extra)}, which `{METADATA_FILE}` does not name"
            if libraries:
                what += f"; it seems to come from {some(list(libraries))}, linked statically"
                hint = "link the shared library that Torch brings, or leave it: it costs size"
                yield Finding(self.name, "warning", holder.where, what, hint)
            else:
                hint = "take it out of the flags, or out of a library that is linked statically"
                yield Finding(self.name, "error", holder.where, what, hint)

    def _missing(self, holders: Sequence[Holder], claim: _Claim) -> Iterator[Finding]:
        images = tuple(_of_the_kernel(holders, claim))
        wanted = Wanted.of(claim.archs)
        lost = missing(images, wanted)
        if not any(own_images(holder.code.images, claim.backend) for holder in holders):
            yield from self._nothing(holders, claim)
        elif lost:
            what = f"no library has code for {lost}, which `{METADATA_FILE}` names"
            hint = "build again without `-gencode` or `--offload-arch` of your own in the flags"
            yield Finding(self.name, "error", claim.extension, what, hint)
        for arch, modes in limited(images, wanted):
            what = f"its code for {arch} runs only where the GPU is set to {modes}"
            hint = f"compile for `{arch}` without modes, or for both settings of each"
            yield Finding(self.name, "warning", claim.extension, what, hint)

    def _nothing(self, holders: Sequence[Holder], claim: _Claim) -> Iterator[Finding]:
        named = missing((), Wanted.of(claim.archs))
        if any(holder.code.relocatable for holder in holders):
            return  # said already: it waits for the device linker
        if any(holder.code.registers for holder in holders):
            what = f"has no device code at all, though it registers some; {named} should be there"
            hint = "a tool took the section away: do not `objcopy` or `strip` it by hand"
            yield Finding(self.name, "error", claim.extension, what, hint)
            return
        what = f"no library has device code, but `{METADATA_FILE}` names {named}"
        hint = f"fine for a kernel that only calls libraries: leave `archs` out of {METADATA_FILE}"
        yield Finding(self.name, "warning", claim.extension, what, hint)


def _backend(output: Output) -> str | None:
    if output.variant is not None:
        return output.variant.backend
    metadata = metadata_of(output)
    return metadata.backend if metadata else None


def _claim(output: Output) -> _Claim | None:
    """None when nothing is claimed; `metadata` reports archs that should be there."""
    metadata = metadata_of(output)
    if metadata is None or not metadata.archs or metadata.backend not in ARCH_FORMS:
        return None
    if output.alone is not None and base_name(output.alone) != metadata.id:
        return None  # what a library beside the extension has is not what the variant has
    names = [output.name_of(path) for path in output.libraries()]
    own = [name for name in names if base_name(name.rpartition("/")[2]) == metadata.id]
    return _Claim(metadata.backend, metadata.archs, (own or names)[0])


def _of_the_kernel(holders: Iterable[Holder], claim: _Claim) -> Iterator[Image]:
    """Code that is not from a library linked statically: that one's archs prove nothing."""
    wanted = Wanted.of(claim.archs)
    for holder in holders:
        images = own_images(holder.code.images, claim.backend)
        extra = unnamed(images, wanted)
        strange = bool(extra) and bool(static_libraries(holder.path))
        others = {image.container for image in extra} if strange else set()
        yield from (image for image in images if image.container not in others)
