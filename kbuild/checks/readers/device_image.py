"""One image of device code, images added up by architecture, and the errors of their readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from mmap import mmap
from typing import Any, NamedTuple

from kbuild.system.errors import DamagedFileError


class DeviceCodeError(DamagedFileError):
    """The containers of device code are damaged, or of a form that is not known."""


class CompressedError(DeviceCodeError):
    """There is a container that this Python has no module to unpack."""


@dataclass(frozen=True)
class DeviceImage:
    """One piece of device code."""

    backend: str
    """`cuda`, `rocm` or `xpu`."""
    arch: str
    """The arch in `metadata.json`: `9.0a`, `gfx942`; for SYCL the target, `spir64`."""
    kind: str
    """`machine` code, `ptx`, `ir` (code for link-time optimisation), or `kind N`."""
    size: int
    """Bytes that it takes in the file. In a bundle that is compressed as a whole: its share."""
    container: int
    """Offset in the file of the container: one per compiled source or linked library."""
    compression: str = ""
    """`lz4`, `zstd`, ...; empty when stored as it is."""
    features: tuple[str, ...] = ()
    """Modes of an AMD GPU that it needs: `sramecc+`, `xnack-`."""
    loose: bool = False
    """True when no container holds it: a launcher chooses it, not a GPU runtime."""

    @property
    def target(self) -> str:
        """The arch with the modes, as AMD's tools write it: `gfx942:sramecc+:xnack-`."""
        return ":".join((self.arch, *self.features))


@dataclass(frozen=True)
class DeviceCodeSummary:
    """All images of one kind for one arch, added up."""

    backend: str
    arch: str
    """AMD's features included: `gfx942:sramecc+:xnack-`."""
    kind: str
    images: int
    size: int
    """Bytes in the file."""

    def to_json(self) -> dict[str, Any]:
        """The line as a JSON object."""
        return asdict(self)


def summarize_images(images: Iterable[DeviceImage]) -> tuple[DeviceCodeSummary, ...]:
    """Images added up by arch and kind, in the order in which they first appear."""
    sizes_by_key: dict[_ImageKey, list[int]] = defaultdict(list)
    for image in images:
        sizes_by_key[_ImageKey(image.backend, image.target, image.kind)].append(image.size)
    return tuple(
        DeviceCodeSummary(*key, images=len(sizes), size=sum(sizes))
        for key, sizes in sizes_by_key.items()
    )


class _ImageKey(NamedTuple):
    backend: str
    arch: str
    kind: str


_STEP = 4096


def skip_padding(data: mmap, at: int, stop: int) -> int:
    """The offset of the first byte from `at` on that is not zero; `stop` when there is none."""
    while at < stop:
        piece = data[at : min(at + _STEP, stop)]
        rest = piece.lstrip(b"\0")
        if rest:
            return at + len(piece) - len(rest)
        at += len(piece)
    return stop
