"""Functions of `@gluon.jit`: their sources, descriptor layouts, and calls that a GPU lacks."""

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
"""Prefix of a function's name -> first capability that has it, and first later one that lacks
it."""
_DESCRIPTOR = re.compile(r"tensordesc<(?P<dtype>\w+)\[(?P<block>[^]]*)\]>")


def is_gluon(jit: Any) -> bool:
    """True for a function of `@gluon.jit`."""
    return any(base.__name__ == "GluonJITFunction" for base in type(jit).__mro__)


def gluon_source(jit: Any, *call: Any) -> Any:
    """Return the source object that Triton compiles such a function from."""
    runtime = importlib.import_module("triton.experimental.gluon._runtime")
    return runtime.GluonASTSource(jit, *call)


def descriptor_type(type_: str, given: Mapping[str, Any] | None) -> str:
    """Return the type of a descriptor with its layout in shared memory.

    Args:
        type_: `tensordesc<bf16[64, 128]>`.
        given: arguments of `NVMMASharedLayout`; without them, those of `get_default_for`.

    Raises:
        RefusalError: the layout is impossible.
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
    """A kernel calls a function that the target GPU does not have."""

    @property
    def hint(self) -> str:
        """Advice for the author: launch another kernel on such GPUs."""
        return f'launch another kernel there, and this one with `when = "{self.when}"`'

    when = ""
    """Condition of an op for the GPUs that have the function."""


@contextmanager
def only_calls_of(backend: str, arch: Any) -> Iterator[None]:
    """Reject calls that a GPU lacks during compilation in the block; assemblers crash on them.

    Args:
        backend: `cuda` or `hip`.
        arch: Triton's value: 90, `gfx942`.
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
    """Reason why a GPU lacks a function, and a condition for GPUs with it; empty if it has it."""
    if name.startswith("amd.") and backend == "cuda":
        return "is for GPUs of AMD", "capability() == 0"
    for beginning, (first, end) in _NVIDIA.items() if name.startswith("nvidia.") else ():
        if name.startswith(beginning) and (backend != "cuda" or not first <= arch < end):
            below = "" if end == _LAST else f" and capability() < {end}"
            known = f"{first // 10}.{first % 10} and later" if end == _LAST else f"{first // 10}.x"
            return f"is for compute capability {known}", f"capability() >= {first}{below}"
    return "", ""
