"""Archs that are named against archs that are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kbuild.checks.readers.image import Image

PTX = "+PTX"
_RUNS = ("machine", "ptx")
_MODES = ("sramecc", "xnack")


@dataclass(frozen=True)
class Wanted:
    """What `backend.archs` promises, as (arch, kind) pairs."""

    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, archs: Iterable[str]) -> Wanted:
        """`8.0+PTX` promises machine code and PTX, everything else machine code."""
        return cls(frozenset(pair for arch in archs for pair in _promised(arch)))


def _promised(arch: str) -> Iterator[tuple[str, str]]:
    yield arch.removesuffix(PTX), "machine"
    if arch.endswith(PTX):
        yield arch.removesuffix(PTX), "ptx"


def own_images(images: Iterable[Image], backend: str) -> tuple[Image, ...]:
    """Those of one backend that a GPU or its driver takes as they are."""
    return tuple(image for image in images if image.backend == backend and image.kind in _RUNS)


def other_kinds(images: Iterable[Image]) -> tuple[Image, ...]:
    """Those that something has still to compile or link, or of a kind that is not known."""
    return tuple(image for image in images if image.kind not in _RUNS)


def unnamed(images: Iterable[Image], wanted: Wanted) -> tuple[Image, ...]:
    """Images that nobody promised."""
    return tuple(image for image in images if (image.arch, image.kind) not in wanted.pairs)


def missing(images: Iterable[Image], wanted: Wanted) -> str:
    """What was promised and is not there, in words; empty when all is.

    A launcher of kbuild's takes PTX for its own arch, too.
    """
    images = tuple(images)
    there = {(image.arch, image.kind) for image in images}
    there |= {(image.arch, "machine") for image in images if image.loose}
    return _words(wanted.pairs - there)


def limited(images: Sequence[Image], wanted: Wanted) -> Iterator[tuple[str, str]]:
    """AMD archs whose code needs a mode of the GPU, and that mode in words.

    An arch is not limited by `xnack` when code for both settings, or for any, is there.
    """
    for arch in sorted({arch for arch, _ in wanted.pairs}):
        features = [image.features for image in images if image.arch == arch]
        modes = [mode for name in _MODES for mode in _demanded(name, features)]
        if modes:
            yield f"{arch}", " ".join(modes)


def _demanded(name: str, features: Sequence[Sequence[str]]) -> Iterator[str]:
    settings = {
        next((feature for feature in each if feature[:-1] == name), "") for each in features
    }
    if len(settings) == 1:
        yield from filter(None, settings)


def listing(images: Iterable[Image]) -> str:
    """`7.5, 8.0 and PTX of 9.0`, each arch once."""
    return _words({(image.target, image.kind) for image in images})


def _words(pairs: Iterable[tuple[str, str]]) -> str:
    titles = {"machine": "", "ptx": "PTX of "}
    words = [f"{titles.get(kind, f'{kind} of ')}{arch}" for arch, kind in sorted(pairs, key=_order)]
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _order(pair: tuple[str, str]) -> tuple[str, int, str]:
    """Machine code before PTX, archs as people order them: `9.0` before `10.0`."""
    arch, kind = pair
    return (kind, len(arch.partition(".")[0]), arch)
