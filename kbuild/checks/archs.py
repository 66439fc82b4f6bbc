"""The GPUs that `metadata.json` names are the GPUs that the binary has code for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kbuild.backends import BACKENDS
from kbuild.checks.base import CHECKS, Finding, LibraryCheck, Output
from kbuild.checks.libraries import (
    LibraryDeviceCode,
    base_name,
    first_names,
    libraries_with_device_code,
    metadata_of,
)
from kbuild.checks.policies import load_data, matches_any
from kbuild.checks.readers.device_image import DeviceImage
from kbuild.checks.readers.elf import (
    UnreadableBinaryError,
    cached_while_unchanged,
    read_elf,
    sound_binary,
)
from kbuild.plan.metadata import METADATA_FILE, Metadata
from kbuild.system.errors import install_command

PTX = "+PTX"
_RUNNABLE_KINDS = ("machine", "ptx")
_MODES = ("sramecc", "xnack")


@dataclass(frozen=True)
class PromisedArchs:
    """The archs that `backend.archs` promises, as (arch, kind) pairs."""

    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, archs: Iterable[str]) -> PromisedArchs:
        """`8.0+PTX` promises machine code and PTX, everything else machine code."""
        return cls(frozenset(pair for arch in archs for pair in _promised(arch)))


def _promised(arch: str) -> Iterator[tuple[str, str]]:
    yield arch.removesuffix(PTX), "machine"
    if arch.endswith(PTX):
        yield arch.removesuffix(PTX), "ptx"


def runnable_images(images: Iterable[DeviceImage], backend: str) -> tuple[DeviceImage, ...]:
    """The images of one backend that a GPU or its driver takes as they are."""
    return tuple(
        image for image in images if image.backend == backend and image.kind in _RUNNABLE_KINDS
    )


def unnamed_images(images: Iterable[DeviceImage], wanted: PromisedArchs) -> tuple[DeviceImage, ...]:
    """Images of archs that are not listed."""
    return tuple(image for image in images if (image.arch, image.kind) not in wanted.pairs)


def missing_archs(images: Iterable[DeviceImage], wanted: PromisedArchs) -> str:
    """Archs that are listed but missing, as text; empty when none is.

    A launcher of kbuild's takes PTX for its own arch, too.
    """
    images = tuple(images)
    there = {(image.arch, image.kind) for image in images}
    there |= {(image.arch, "machine") for image in images if image.loose}
    return _join_archs(wanted.pairs - there)


def archs_limited_by_mode(
    images: Sequence[DeviceImage], wanted: PromisedArchs
) -> Iterator[tuple[str, str]]:
    """AMD archs whose code needs a mode of the GPU, with that mode as text.

    An arch is not limited by `xnack` when code for both settings, or for any, is there.
    """
    for arch in sorted({arch for arch, _ in wanted.pairs}):
        features = [image.features for image in images if image.arch == arch]
        modes = [mode for name in _MODES for mode in _required_modes(name, features)]
        if modes:
            yield f"{arch}", " ".join(modes)


def _required_modes(name: str, features: Sequence[Sequence[str]]) -> Iterator[str]:
    settings = {
        next((feature for feature in each if feature[:-1] == name), "") for each in features
    }
    if len(settings) == 1:
        yield from filter(None, settings)


def list_archs(images: Iterable[DeviceImage]) -> str:
    """`7.5, 8.0 and PTX of 9.0`, each arch once."""
    return _join_archs({(image.target, image.kind) for image in images})


def _join_archs(pairs: Iterable[tuple[str, str]]) -> str:
    titles = {"machine": "", "ptx": "PTX of "}
    names = [
        f"{titles.get(kind, f'{kind} of ')}{arch}" for arch, kind in sorted(pairs, key=_arch_order)
    ]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _arch_order(pair: tuple[str, str]) -> tuple[str, int, str]:
    """Machine code before PTX, archs as people order them: `9.0` before `10.0`."""
    arch, kind = pair
    return (kind, len(arch.partition(".")[0]), arch)


_CONSTANTS = ".rodata"


@cached_while_unchanged
def linked_device_libraries(path: Path) -> tuple[str, ...]:
    """Titles of libraries whose functions are in the file while it needs no shared one of them.

    Found by the names of functions in `data/device_libraries.json`, which symbol tables have; a
    stripped file has them only where the library prints them.
    """
    try:
        with sound_binary("ELF"):
            return tuple(_find_device_libraries(path, read_elf(path).needed))
    except UnreadableBinaryError:
        return ()


def _find_device_libraries(path: Path, needed: tuple[str, ...]) -> Iterator[str]:
    from kbuild.checks.readers.fast_elf import FastElf

    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        places = [
            (
                min(section["sh_offset"], len(data)),
                min(section["sh_offset"] + section["sh_size"], len(data)),
            )
            for section in FastElf(file).iter_sections()
            if section["sh_type"] == "SHT_STRTAB" or section.name.startswith(_CONSTANTS)
        ]
        for title, library in load_data("device_libraries")["libraries"].items():
            shared = any(matches_any(name, tuple(library["shared"])) for name in needed)
            names = [name.encode() for name in library["names"]]
            if not shared and any(data.find(n, *place) >= 0 for n in names for place in places):
                yield title


def _title(backend: str) -> str:
    """The name of a backend's device code in messages."""
    known = BACKENDS.get(backend)
    return known.device_code or known.title


@dataclass(frozen=True)
class _Claim:
    """The archs that the metadata promises, and the library that is expected to have them."""

    backend: str
    archs: tuple[str, ...]
    extension: str


@CHECKS.add
class ArchsCheck(LibraryCheck):
    """Compare the device code in the bytes with `backend.archs`; compiler flags do not count."""

    name = "archs"
    summary = f"The libraries have device code for exactly the archs that `{METADATA_FILE}` names."
    group = "archs"

    def run(self, output: Output) -> Iterator[Finding]:
        """Findings per library first, then on what none of them has."""
        holders = tuple(libraries_with_device_code(output))
        for holder in holders:
            code = holder.code
            if holder.damage:
                hint = "build the variant again"
                yield Finding(self.name, "error", holder.where, holder.damage, hint)
            if code.unread:
                hint = f"`{install_command('backports.zstd')}` installs what unpacks it"
                yield Finding(self.name, "warning", holder.where, code.unread, hint)
            unloadable = tuple(image for image in code.images if image.kind not in _RUNNABLE_KINDS)
            if unloadable:
                what = f"has {list_archs(unloadable)}, which no GPU or driver can load"
                yield Finding(self.name, "info", holder.where, what)
            if code.is_unlinked:
                what = "its CUDA code was compiled with `-rdc=true` and never linked for the device"
                hint = "link with nvcc, or set CUDA_RESOLVE_DEVICE_SYMBOLS on the CMake target"
                yield Finding(self.name, "error", holder.where, what, hint)
        backend, claim = _backend(output), _claim(output)
        if backend is not None:
            yield from self._wrong_backend(holders, backend)
        if claim is None:
            yield from self._listed(holders, backend)
            yield from self._unclaimed(output, holders)
            return
        yield from self._unnamed(holders, claim)
        others = len(tuple(output.libraries())) - len(holders)  # no ELF files: not looked into
        # A missing arch could be in a library that could not be read.
        if not others and all(holder.sound for holder in holders):
            yield from self._missing(holders, claim)

    def _wrong_backend(
        self, holders: Sequence[LibraryDeviceCode], backend: str
    ) -> Iterator[Finding]:
        for holder in holders:
            for other in sorted({image.backend for image in holder.code.images} - {backend}):
                archs = list_archs(image for image in holder.code.images if image.backend == other)
                what = f"has {_title(other)} code for {archs}, but the variant is for {backend}"
                hint = "leave the device sources out of this backend's sections"
                yield Finding(self.name, "error", holder.where, what, hint)

    def _listed(self, holders: Sequence[LibraryDeviceCode], only: str | None) -> Iterator[Finding]:
        for holder in holders:
            for backend in sorted({image.backend for image in holder.code.images}):
                if only not in (None, backend):
                    continue  # an error already
                archs = list_archs(
                    image for image in holder.code.images if image.backend == backend
                )
                what = f"has {_title(backend)} code for {archs}"
                yield Finding(self.name, "info", holder.where, what)

    def _unclaimed(self, output: Output, holders: Sequence[LibraryDeviceCode]) -> Iterator[Finding]:
        metadata = metadata_of(output)
        if metadata is not None and metadata.archs and not _has_readable_archs(metadata):
            title = _title(metadata.backend)
            what = f"`backend.archs` is not checked: kbuild cannot read {title} code"
            yield Finding(self.name, "info", METADATA_FILE, what)
        if metadata is None or metadata.archs or not _has_readable_archs(metadata):
            return
        own = [runnable_images(holder.code.images, metadata.backend) for holder in holders]
        if any(own) or not own:
            what = f"`backend.archs` is missing for a compiled {metadata.backend} variant"
            hint = "list the archs that were compiled: the client compares them with the device"
            yield Finding(self.name, "error", METADATA_FILE, what, hint)

    def _unnamed(self, holders: Sequence[LibraryDeviceCode], claim: _Claim) -> Iterator[Finding]:
        for holder in holders:
            extra = unnamed_images(
                runnable_images(holder.code.images, claim.backend), PromisedArchs.of(claim.archs)
            )
            if not extra:
                continue
            libraries = linked_device_libraries(holder.path)
            what = f"has code for {list_archs(extra)}, which `{METADATA_FILE}` does not name"
            if libraries:
                what += f"; it seems to come from {first_names(list(libraries))}, linked statically"
                hint = "link the shared library that Torch ships, to make the variant smaller"
                yield Finding(self.name, "warning", holder.where, what, hint)
            else:
                hint = "remove the arch from the flags, or from the statically linked library"
                yield Finding(self.name, "error", holder.where, what, hint)

    def _missing(self, holders: Sequence[LibraryDeviceCode], claim: _Claim) -> Iterator[Finding]:
        images = tuple(_of_the_kernel(holders, claim))
        wanted = PromisedArchs.of(claim.archs)
        lost = missing_archs(images, wanted)
        if not any(runnable_images(holder.code.images, claim.backend) for holder in holders):
            yield from self._nothing(holders, claim)
        elif lost:
            what = f"no library has code for {lost}, which `{METADATA_FILE}` names"
            hint = "build again without your own `-gencode` or `--offload-arch` flags"
            yield Finding(self.name, "error", claim.extension, what, hint)
        for arch, modes in archs_limited_by_mode(images, wanted):
            what = f"its code for {arch} runs only where the GPU is set to {modes}"
            hint = f"compile for `{arch}` without modes, or for both settings of each"
            yield Finding(self.name, "warning", claim.extension, what, hint)

    def _nothing(self, holders: Sequence[LibraryDeviceCode], claim: _Claim) -> Iterator[Finding]:
        named = missing_archs((), PromisedArchs.of(claim.archs))
        if any(holder.code.relocatable for holder in holders):
            return  # said already: it waits for the device linker
        if any(holder.code.registers for holder in holders):
            what = f"registers device code, but contains none; {named} is expected"
            hint = "a tool removed the section: do not run `objcopy` or `strip` on it"
            yield Finding(self.name, "error", claim.extension, what, hint)
            return
        what = f"no library has device code, but `{METADATA_FILE}` names {named}"
        hint = f"if the kernel only calls libraries, remove `archs` from {METADATA_FILE}"
        yield Finding(self.name, "warning", claim.extension, what, hint)


def _backend(output: Output) -> str | None:
    if output.variant is not None:
        return output.variant.backend
    metadata = metadata_of(output)
    return metadata.backend if metadata else None


def _has_readable_archs(metadata: Metadata) -> bool:
    backend = BACKENDS.find(metadata.backend)
    return backend is not None and backend.has_readable_archs


def _claim(output: Output) -> _Claim | None:
    """The archs that a variant claims; None without a claim. `metadata` reports missing archs."""
    metadata = metadata_of(output)
    if metadata is None or not metadata.archs or not _has_readable_archs(metadata):
        return None
    if output.alone is not None and base_name(output.alone) != metadata.id:
        return None  # what a library beside the extension has is not what the variant has
    names = [output.name_of(path) for path in output.libraries()]
    own = [name for name in names if base_name(name.rpartition("/")[2]) == metadata.id]
    return _Claim(metadata.backend, metadata.archs, (own or names)[0])


def _of_the_kernel(holders: Iterable[LibraryDeviceCode], claim: _Claim) -> Iterator[DeviceImage]:
    """Code that is not from a library linked statically: that one's archs prove nothing."""
    wanted = PromisedArchs.of(claim.archs)
    for holder in holders:
        images = runnable_images(holder.code.images, claim.backend)
        extra = unnamed_images(images, wanted)
        has_linked_library = bool(extra) and bool(linked_device_libraries(holder.path))
        others = {image.container for image in extra} if has_linked_library else set()
        yield from (image for image in images if image.container not in others)
