"""Functions of `@gluon.jit`: what they are compiled from, and which GPUs have what they call."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from triton.compiler.code_generator import CodeGenerator
from triton.compiler.errors import CompilationError

from kbuild.dsl.worker.protocol import RefusalError

_LANGUAGE = "triton.experimental.gluon.language."
_LAST = 1000
_NVIDIA: Mapping[str, tuple[int, int]] = {
    "nvidia.hopper.warpgroup": (90, 100), "nvidia.blackwell.tcgen05": (100, 120),
    "nvidia.ampere": (80, _LAST), "nvidia.hopper": (90, _LAST), "nvidia.blackwell": (100, _LAST),
}  # fmt: skip
"""Beginnings of functions' names -> the first capability that has them, and the first again that
has not."""
_DESCRIPTOR = re.compile(r"tensordesc<(?P<dtype>\w+)\[(?P<block>[^]]*)\]>")


def is_gluon(jit: Any) -> bool:
    """Whether it is a function of `@gluon.jit`."""
    return any(base.__name__ == "GluonJITFunction" for base in type(jit).__mro__)


def gluon_source(jit: Any, *call: Any) -> Any:
    """What Triton compiles such a function from."""
    runtime = importlib.import_module("triton.experimental.gluon._runtime")
    return runtime.GluonASTSource(jit, *call)


def descriptor_type(type_: str, given: Mapping[str, Any] | None) -> str:
    """The type of a descriptor with the layout of its blocks in shared memory.

    Args:
        type_: `tensordesc<bf16[64, 128]>`.
        given: arguments of `NVMMASharedLayout`; those of `get_default_for` where there are none.

    Raises:
        RefusalError: there is no such layout.
    """
    match = _DESCRIPTOR.fullmatch(type_)
    assert match is not None  # noqa: S101 - kbuild's own text
    block = [int(size) for size in match["block"].split(",")]
    language = importlib.import_module("triton.experimental.gluon.language")
    dtype = importlib.import_module("triton.language").dtype(match["dtype"])
    layouts, own = language.NVMMASharedLayout, dict(given or {})
    try:
        if "swizzle_byte_width" in own:
            bits = dtype.primitive_bitwidth
            layout = layouts(element_bitwidth=bits, rank=len(block), **own)
        else:
            layout = layouts.get_default_for(block, dtype, **own)
    except (AssertionError, TypeError, ValueError) as error:
        message = f"no `NVMMASharedLayout` of {own} for a block of {block} {dtype}"
        raise RefusalError(f"{message}: {error}" if str(error) else message) from None
    return f"{type_[:-1]},{layout!r}>"


class ForeignCallError(CompilationError):  # type: ignore[misc]
    """A function calls what the GPU that it is compiled for does not have."""

    @property
    def hint(self) -> str:
        """What to do: launch another kernel on such GPUs."""
        return f'launch another kernel there, and this one with `when = "{self.when}"`'

    when = ""
    """The condition of an op for the GPUs that have it."""


@contextmanager
def only_calls_of(backend: str, arch: Any) -> Iterator[None]:
    """While functions are compiled, they may call what a GPU has; assemblers crash on others.

    Args:
        backend: `cuda` or `hip`.
        arch: as Triton has it: 90, `gfx942`.
    """
    original = getattr(CodeGenerator, "call_Function", None)
    if original is None:  # releases before 3.5
        yield
        return

    def called(generator: Any, node: ast.Call, fn: Any, *rest: Any) -> Any:
        module = str(getattr(fn, "__module__", ""))
        if module.startswith(_LANGUAGE):
            name = f"{module.removeprefix(_LANGUAGE)}.{getattr(fn, '__name__', '')}"
            lack, when = _lack(name, backend, arch)
            if lack:
                message = f"`{ast.unparse(node.func)}` {lack}, and the kernel is compiled for "
                named = f"sm_{arch}" if backend == "cuda" else str(arch)
                error = ForeignCallError(generator.jit_fn.src, node, message + named)
                error.when = when
                raise error
        return original(generator, node, fn, *rest)

    with mock.patch.object(CodeGenerator, "call_Function", called):
        yield


def _lack(name: str, backend: str, arch: Any) -> tuple[str, str]:
    """Why a GPU does not have a function, and the condition for those that do; empty if it does."""
    if name.startswith("amd.") and backend == "cuda":
        return "is for GPUs of AMD", "capability() == 0"
    for beginning, (first, end) in _NVIDIA.items() if name.startswith("nvidia.") else ():
        if name.startswith(beginning) and (backend != "cuda" or not first <= arch < end):
            below = "" if end == _LAST else f" and capability() < {end}"
            known = f"{first // 10}.{first % 10} and later" if end == _LAST else f"{first // 10}.x"
            return f"is for compute capability {known}", f"capability() >= {first}{below}"
    return "", ""
