"""What calls a launcher: Torch or TVM-FFI. All that a launcher knows of either is here.

A host has headers of its own under `templates/launcher`, which define the same names, and the text
around the ops:

- `<host>_tensor.h`: `Tensor`, `OptionalTensor`, how arguments are taken, words for devices;
- `<host>_memory.h`: `look_at`, `check_contiguous`, `allocate`, `allocate_bytes`, `current_stream`;
- `<host>_object.h`: what objects of the convention `tvm-ffi` call back;
- `<host>_ops.cpp.j2`: the ops, and how they are found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.generate import templates
from kbuild.languages.spec import OpSpec


class Host(ABC):
    """A framework, as a launcher sees it."""

    name: str
    words: str
    """What its users call it."""
    stem: str
    """Its headers are `<stem>_*.h`."""
    includes: tuple[str, ...]
    """Headers of its own that every launcher includes."""

    def header(self, part: str) -> str:
        """One of the host's headers."""
        return templates.read(f"launcher/{self.stem}_{part}.h")

    def text(self, **values: Any) -> str:
        """The ops of a launcher, and the end of its source."""
        return templates.render(f"launcher/{self.stem}_ops.cpp.j2", **values)

    def registration(self, *, module: bool) -> str:  # noqa: ARG002 - not every host has one
        """What comes before everything else."""
        return ""

    @abstractmethod
    def judge(self, op: OpSpec) -> None:
        """Refuse what the host cannot offer.

        Raises:
            ValueError: it cannot.
        """

    @abstractmethod
    def constructor(self, op: OpSpec) -> Iterator[str]:
        """The constructor of `Call_NAME`: it takes the arguments."""

    @abstractmethod
    def op(self, op: OpSpec) -> Mapping[str, object]:
        """An op's values for `<stem>_ops.cpp.j2`."""
