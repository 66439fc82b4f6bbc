"""What a DSL says of its `[kernel.*]` sections: launch options, grids, autotuning, CPU support."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal

from kbuild.system.registry import Registry

if TYPE_CHECKING:
    from kbuild.ops.declared_types import DeclaredType

OptionKind = Literal["number", "power of two", "flag", "string"]
"""What values a launch option takes; a number is an integer that is not negative."""


class Dialect:
    """The rules by which a section is read; every `kbuild.ops.language.Language` has its own."""

    name: ClassVar[str] = ""
    """What `language` says."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """What `toolchain` has to pin: the DSL's own distribution first."""
    options: ClassVar[Mapping[str, OptionKind]] = MappingProxyType({})
    """Keys of a candidate that are launch options, not constants of the kernel."""
    decorator: ClassVar[str] = ""
    """What makes a Python function a kernel: `@triton.jit`."""
    only_decorated: ClassVar[bool] = False
    """False where a function can be a kernel without it."""
    needs_grid: ClassVar[bool] = True
    """False where the kernel itself says how it is launched."""
    own_candidates: ClassVar[bool] = False
    """True when a kernel may bring its candidates: `configs = "autotune"`."""
    on_cpu: ClassVar[bool] = False
    """True when kernels are compiled for the host's processor, too."""
    structured: ClassVar[bool] = False
    """True when kernels take tuples and tensor descriptors."""
    settled: ClassVar[tuple[str, ...]] = ()
    """Keys of a launch that the kernel says itself; it brings its candidates, too."""
    shaped: ClassVar[bool] = False
    """True when kernels take whole tensors, whose sizes and strides images may assume things of;
    tuples as well."""
    open_constants: ClassVar[bool] = False
    """True when a constant of a kernel may be an argument in its place, if `args` has it."""
    has_jit_fallback: ClassVar[bool] = False
    """True when `fallback = "jit"` can launch kernels with the DSL itself."""

    def unsupported_reason(self, pins: Sequence[str]) -> str | None:
        """Why this toolchain cannot be used; None when it can.

        Args:
            pins: what `toolchain` says: `triton==3.9.0`.
        """
        raise NotImplementedError

    def declared_types(
        self,
        tree: ast.Module,  # noqa: ARG002
        function: ast.FunctionDef,  # noqa: ARG002
    ) -> Iterable[DeclaredType]:
        """The types that a kernel function says of its tensors and numbers, as far as it does.

        Args:
            tree: the module that defines it.
            function: the definition.
        """
        return ()


DIALECTS: Registry[Dialect] = Registry("kbuild.dsl.languages", "kbuild.languages")
"""Every DSL by name; `kbuild.ops.language.LANGUAGES` is the same registry."""
