"""Replaces parts of Triton: the driver, launches, and the compilation of `@gluon.jit` functions."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.compiler import make_backend
from triton.compiler.errors import CompilationError

from kbuild.dsl.worker import device as devices
from kbuild.dsl.worker.protocol import RefusalError

LAUNCHERS: tuple[Any, ...] = (
    triton.runtime.JITFunction,
    triton.runtime.Autotuner,
    triton.runtime.Heuristics,
)
"""Classes whose `run` launches a kernel."""


_SECOND_ASSEMBLER = 100
"""First capability for which the second assembler is used."""


def install() -> None:
    """Install the driver, and make launches raise an error."""
    _forget_key()
    _choose_assembler()
    triton.runtime.driver.set_active(TargetDriver())
    for kind in LAUNCHERS:
        kind.run = refuse_launch


class TargetDriver:
    """Triton's driver, with the answers that hold for every device of the arch."""

    def __init__(self) -> None:
        self.utils = _Utils()

    @staticmethod
    def is_active() -> bool:
        """True if the target is a GPU."""
        return bool(devices.current.ask("driver.active.is_active()").backend)

    def get_current_device(self) -> int:
        """Number of the device."""
        return devices.device_index("driver.active.get_current_device()")

    def get_current_target(self) -> Any:
        """Target for `triton.compile`."""
        facts = devices.current.gpu("driver.active.get_current_target()").facts
        major, minor = facts["capability"]
        arch = facts["arch"] if facts["backend"] == "hip" else major * 10 + minor
        return GPUTarget(facts["backend"], arch, facts["warp"])

    def get_device_interface(self) -> Any:
        """Torch's module for the device."""
        devices.current.some_gpu("driver.active.get_device_interface()")
        return importlib.import_module("torch").cuda

    def get_active_torch_device(self) -> Any:
        """The device as a `torch.device`."""
        devices.current.some_gpu("driver.active.get_active_torch_device()")
        return importlib.import_module("torch").device("cuda", 0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return devices.UnknownValue(f"driver.active.{name}")


_PROPERTIES = (
    "max_shared_mem", "max_num_regs", "multiprocessor_count", "warpSize", "sm_clock_rate",
    "mem_clock_rate", "mem_bus_width", "arch", "cu_count",
)  # fmt: skip


def triton_device_properties() -> dict[str, Any]:
    """Answers of `driver.active.utils.get_device_properties()` that hold for an arch."""
    device = devices.current.gpu("driver.active.utils.get_device_properties()")
    facts = device.facts
    known = {"max_shared_mem": facts["shared"], "warpSize": facts["warp"]}
    registers = facts["properties"].get("regs_per_multiprocessor")
    if registers is not None:
        known["max_num_regs"] = registers
    if device.backend == "hip":
        known["arch"] = device.arch
    names = _PROPERTIES if device.backend == "hip" else _PROPERTIES[:-2]
    question = "get_device_properties()"
    return {name: devices.device_dependent(f"{question}[{name!r}]") for name in names} | known


class _Utils:
    """Functions of `driver.active.utils`."""

    def get_device_properties(self, _: Any = 0) -> Any:
        return triton_device_properties()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return devices.UnknownValue(f"driver.active.utils.{name}")


def refuse_launch(function: Any, *_: Any, **__: Any) -> Any:
    """Replacement for `run`: raise an error, since a build has no GPU."""
    name = getattr(getattr(function, "base_fn", function), "__name__", "a kernel")
    devices.current.refuse(
        f"`{name}` is launched on import, but a build has no GPU",
        hint="launch it in a function that is not called when the kernels' module is imported",
    )


def _forget_key() -> None:
    """Skip Triton's hash of its own files: units have kbuild's keys."""
    from triton.compiler import compiler
    from triton.runtime import autotuner, cache

    for module in (compiler, cache, autotuner):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: str(triton.__version__)


def _choose_assembler() -> None:
    """Take the second assembler from capability 10.0 on, as releases before 3.9 do.

    The first one knows 9.0 and older GPUs, and its code runs with every driver, so that variants
    for CUDA 12 and for CUDA 13 share the images.
    """
    tools: Any = getattr(importlib.import_module("triton.knobs"), "nvidia", None)
    if hasattr(tools, "ptxas_blackwell"):
        compiler: Any = importlib.import_module("triton.backends.nvidia.compiler")
        compiler.get_ptxas = lambda arch: (
            tools.ptxas if arch < _SECOND_ASSEMBLER else tools.ptxas_blackwell
        )


class KnownKernelError(Exception):
    """A compilation was stopped, because other code with the same IR is the same."""


@contextmanager
def stopped_where_known(target: Any, makes: Callable[[str], bool]) -> Iterator[None]:
    """Stop compilations in the block before code is generated, unless `makes` returns True.

    `makes` gets the IR, without locations unless the code contains them, as that of assertions
    does. A compilation that stops raises KnownKernelError.
    """
    # The class is patched, because `triton.compile` makes a backend object of its own.
    backend = type(make_backend(target))
    original = backend.add_stages

    def add_stages(self: Any, stages: dict[str, Any], *rest: Any) -> None:
        original(self, stages, *rest)
        # The first stage only simplifies the IR; the second one gets the IR that decides the code.
        name = [*stages][1]
        generate = stages[name]

        def stage(module: Any, metadata: Any) -> Any:
            ir = module.str_nodebug()
            if not makes(str(module) if "tt.assert" in ir else ir):
                raise KnownKernelError
            return generate(module, metadata)

        stages[name] = stage

    with mock.patch.object(backend, "add_stages", add_stages):
        yield


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
    # Triton checks layouts by assertions.
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
