"""Properties of a DSL that decide how its sections are read: launch options, grids, autotuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal

from kbuild.system.registry import Registry

OptionKind = Literal["number", "power of two", "flag", "string"]
"""Kind of a launch option's values; a number is an integer that is not negative."""


class Dialect:
    """The rules for reading sections of a DSL; `kbuild.ops.language.Language` derives from it."""

    name: ClassVar[str] = ""
    """Value of `language` in a section."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Distributions that `toolchain` must pin, the DSL's own first."""
    options: ClassVar[Mapping[str, OptionKind]] = MappingProxyType({})
    """Keys of a candidate that are launch options, not constants of the kernel."""
    decorator: ClassVar[str] = ""
    """Decorator of kernels, such as `@triton.jit`."""
    needs_grid: ClassVar[bool] = True
    """False if the kernel's source determines the grid."""
    own_candidates: ClassVar[bool] = False
    """True if a kernel may define its candidates: `configs = "autotune"`."""
    on_cpu: ClassVar[bool] = False
    """True if kernels are also compiled for the host's processor."""
    structured: ClassVar[bool] = False
    """True if kernels take tuples and tensor descriptors."""
    takes_ops: ClassVar[bool] = True
    """False if ops of kernels are captured alone, so that a section has no `op`."""
    settled: ClassVar[tuple[str, ...]] = ()
    """Keys of a launch that the kernel's source determines; its candidates as well."""
    shaped: ClassVar[bool] = False
    """True if kernels take whole tensors (and tuples), so that images may assume sizes and
    strides."""
    open_constants: ClassVar[bool] = False
    """True if `args` may pass an argument in place of a kernel's constant."""
    has_jit_fallback: ClassVar[bool] = False
    """True if `fallback = "jit"` can launch kernels with the DSL itself."""

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """Return why this toolchain cannot be used; None if it can.

        Args:
            pins: values of `toolchain`, such as `triton==3.9.0`.
        """
        raise NotImplementedError


DIALECTS: Registry[Dialect] = Registry("kbuild.dsl.languages", "kbuild.languages")
"""Every DSL by name; `kbuild.ops.language.LANGUAGES` is the same registry."""
