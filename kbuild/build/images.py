"""Device images of kernels in Python DSLs as rows of a report."""

from __future__ import annotations

from dataclasses import dataclass


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
    """What compiling the others took, one after the other."""
    shared: int
    """Bytes of shared memory of a block, of the image that takes most."""
    registers: int | None = None
    """Of the image with most, where the compiler says so."""
    spills: int | None = None
    """Bytes, on AMD registers, that did not fit, of the image with most; see `registers`."""
    local: int | None = None
    """Bytes of local memory of a thread, of the image with most, where machine code says so: what
    did not fit into registers, and arrays."""
