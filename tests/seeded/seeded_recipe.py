"""How a seeded variant is described: the good one, and what a case changes about it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kbuild.checks import CheckLimits

CPU = platform.machine()
ID = "_relu_cpu_0a1b2c3"
FILE = f"{ID}.abi3.so"
PLAIN = f"torch213-cxx11-cpu-{CPU}-linux"
STABLE = f"torch-stable-abi211-cpu-{CPU}-linux"
CUDA = f"torch213-cxx11-cu130-{CPU}-linux"
ROCM = f"torch213-cxx11-rocm72-{CPU}-linux"
MACOS = "torch213-cpu-aarch64-darwin"
TVM_FFI = f"tvm-ffi01-cpu-{CPU}-linux"

BINDING = '#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'
FUNCTION = """\
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_relu() { return 0; }
"""
INIT = """\
import torch

from ._ops import add_op_namespace_prefix


@torch.library.custom_op(add_op_namespace_prefix("relu"), mutates_args=())
def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0)
"""


@dataclass(frozen=True)
class Stub:
    """A library that is there for the linker alone: its name, and what it offers."""

    soname: str
    symbols: tuple[str, ...] = ()
    version: str = ""
    """Version that its symbols have, `GLIBC_2.38`; empty for none."""
    unused: bool = False
    """True when it is to be needed although nothing is taken from it."""


@dataclass(frozen=True)
class Recipe:
    """A variant from nothing; the defaults make a good one."""

    variant: str = PLAIN
    source: str = ""
    """C++ that is compiled with the binding."""
    binding: str = BINDING
    boxed: str = ""
    """C++ with boxed functions, whose object lies in a build tree beside the variant."""
    flags: tuple[str, ...] = ()
    stubs: tuple[Stub, ...] = ()
    sections: Mapping[str, bytes] = field(default_factory=dict)
    """Sections that the library carries: device code."""
    linker: Literal["", "lld"] = ""
    strip: bool = False
    library: bytes | None = None
    """The library as it is, where nothing is compiled."""
    edit: Callable[[bytes], bytes] | None = None
    """Changes the library's bytes."""
    file: str = FILE
    """What the library is named."""
    python: Mapping[str, str] = field(default_factory=dict)
    """Further Python files, or others instead of the good ones."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `kbuild.plan.metadata.Metadata` that differ from the good ones."""
    spoil: Callable[[Path], None] | None = None
    """Changes the folder after its digest was taken."""


@dataclass(frozen=True)
class Case:
    """One thing that is wrong, and who has to find it."""

    name: str
    wrong: str
    """What was done, as a table says it."""
    check: str
    word: str
    """What a finding of that check says."""
    recipe: Recipe | None
    """None for a project's sources, see `sources`."""
    also: tuple[str, ...] = ()
    """Other checks that rightly report the same thing."""
    limits: CheckLimits = field(default_factory=CheckLimits)
    sources: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """File of the example `relu` -> text in it, and what it is replaced by."""

    loaded: bool = False
    """True when the variant must be loaded to find it, whatever check reports it."""

    @property
    def loads(self) -> bool:
        """True when the check that finds it needs a Python with Torch and the client."""
        return self.loaded or self.check in {"load", "metadata-client"}


def calling(*names: str) -> str:
    """C++ that takes C functions from elsewhere."""
    text = "".join(f'extern "C" void {name}();\n' for name in names)
    called = " ".join(f"{name}();" for name in names)
    return f"{text}__attribute__((used)) static void seeded() {{ {called} }}\n"


GOOD: Mapping[str, Recipe] = {
    "cpu": Recipe(),
    "stable": Recipe(variant=STABLE),
    "tvm-ffi": Recipe(
        variant=TVM_FFI,
        binding=FUNCTION,
        file=f"{ID}.so",
        python={"__init__.py": "from ._ops import ops\n\nrelu = ops.relu\n"},
    ),
}
"""Good variants that compile here; those with device code and of other systems are beside the
cases that break them."""


def on(recipe: Recipe, **changes: Any) -> Recipe:
    """A good variant with something changed."""
    return replace(recipe, **changes)
