"""Runs TileLang's code generator for one function, and a compiler for the finished source."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilelang  # type: ignore[import-not-found]
import tilelang.language as tl  # type: ignore[import-not-found]
from tilelang.backend.target import determine_target  # type: ignore[import-not-found]
from tilelang.jit.adapter.wrapper import TLWrapper  # type: ignore[import-not-found]

from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.tilelang_functions import TileLangFunction
from kbuild.dsl.worker.tilelang_source import DeviceKernel

CPU = "cpu"
_KERNELS_ON_CPU = 1
_FAST_MATH = "tl.enable_fast_math"
_REGISTERS = "tl.ptxas_register_usage_level"
_FLAGS = "tl.device_compile_flags"
_CALL_ON_CPU = re.compile(r"int32_t call\([^)]*\) \{\s*return (?P<kernel>\w+)\([^)]*\);")


@dataclass(frozen=True)
class EmittedSource:
    """Source of one kernel for one target."""

    text: str
    program: Any
    """The `PrimFunc` of the kernel."""
    kernels: tuple[DeviceKernel, ...]
    threads: int
    shared: int
    """Bytes of dynamic shared memory."""
    flags: tuple[str, ...]


def emit_source(function: TileLangFunction, request: Mapping[str, Any]) -> EmittedSource:
    """Generate TileLang's source for one unit.

    Raises:
        RefusalError: TileLang cannot generate it.
    """
    arch = request["arch"]
    target = determine_target(target_of(arch), return_object=True)
    program = _program(function, request, target)
    configs = {str(k): v for k, v in dict(_attribute(program, "tilelang_pass_configs", {})).items()}
    own = _jit_attribute(function, "pass_configs")
    configs |= {str(getattr(k, "value", k)): v for k, v in own.items()}
    with tilelang.tvm.transform.PassContext(opt_level=3, config=configs), target:
        lowered = tilelang.lower(program, target=target)
    if any(
        "l2_persistent_map" in host_function.attrs
        for host_function in lowered.host_mod.functions.values()
    ):
        raise RefusalError(
            f"`{function.name}` keeps tensors in the L2 cache, which is set for all kernels of a "
            "device, and in sizes of the GPU that it is compiled on",
            hint="remove `T.annotate_l2_hit_ratio`",
        )
    device = lowered.device_mod.functions
    kernels = tuple(
        DeviceKernel(symbol.name_hint, pdl="has_cuda_pdl_sync" in kernel.attrs)
        for symbol, kernel in device.items()
    )
    if arch == CPU and len(kernels) > _KERNELS_ON_CPU:
        what = f"{len(kernels)} kernels; a launch on the CPU calls one"
        raise RefusalError(f"`{function.name}` has {what}")
    wrapper = TLWrapper(target)
    module = tilelang.tvm.IRModule({program.attrs["global_symbol"]: program})
    wrapper.assign_optimized_module(module)
    wrapper.assign_pass_configs(configs)
    wrapper.assign_host_module(lowered.host_mod)
    wrapper.assign_device_module(lowered.device_mod)
    text = _wrapped(wrapper, lowered.kernel_source, arch)
    facts = _launch_facts(device.values())
    return EmittedSource(text, program, kernels, *facts, _flags(function, program, configs))


def runtime_of(arch: str) -> str:
    """Runtime of an arch: `cuda`, `hip`, or empty for the CPU."""
    return "" if arch == CPU else "hip" if arch.startswith("gfx") else "cuda"


def target_of(arch: str) -> str | dict[str, str]:
    """Arch in the form of the DSL."""
    runtime = runtime_of(arch)
    return {"kind": runtime, "mcpu" if runtime == "hip" else "arch": arch} if runtime else "c"


def _program(function: TileLangFunction, request: Mapping[str, Any], target: Any) -> Any:
    function.validate()
    constants = {name: _value(function, name, v) for name, v in request["constants"].items()}
    if function.is_program:
        return function.jit
    with target:
        if not hasattr(function.jit, "get_tir"):
            return function.jit(**_with_dynamic_sizes(function, constants))
        if function.is_eager:
            constants = _with_dynamic_sizes(function, constants)
            # A `T.const` that is passed to a macro gets the name of the macro's parameter: undo it.
            function.jit.initialize_jit_mode(**constants)
            bound = function.jit.func._argument_binder.bind((), dict(constants))  # noqa: SLF001 - of a pinned release
            template = function.jit.func._build_tir_template(**bound.compile_kwargs)  # noqa: SLF001
            for variable, (tensor, what, axis, _) in (template.matcher or {}).items():
                template.matcher[variable] = (tensor, what, axis, variable.orig_name)
            function.jit.func.p1_cache[bound.p1_key] = template
            return function.jit.get_tir(**constants)
        return function.jit.get_tir(**_with_dynamic_sizes(function, constants))


def _with_dynamic_sizes(function: TileLangFunction, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Add a dynamic dimension for each size that has no constant."""
    free = {name: tl.dynamic(name) for name in sorted(function.open) if name not in constants}
    return {**free, **constants}


def _value(function: TileLangFunction, name: str, value: Any) -> Any:
    """Convert a constant for the author's function; candidates name dtypes and macros."""
    parameter = function.parameters.get(name)
    default = parameter.default if parameter is not None else None
    if isinstance(value, str) and (meant := function.named(name, value)) is not None:
        return meant
    if isinstance(value, dict):
        return value["dtype"] if type(default) is str else tl.dtype(value["dtype"])
    return tl.dtype(value) if isinstance(value, str) and isinstance(default, tl.dtype) else value


def _jit_attribute(function: TileLangFunction, name: str) -> Any:
    return getattr(function.jit, name, None) or {}


def _attribute(program: Any, name: str, default: Any) -> Any:
    return (program.attrs or {}).get(name, default)


def _flags(function: TileLangFunction, program: Any, configs: Mapping[str, Any]) -> tuple[str, ...]:
    own, extra = _jit_attribute(function, "compile_flags"), configs.get(_FLAGS) or ()
    flags: list[str] = []
    for some in (own, _attribute(program, "tilelang_compile_flags", ()), extra):
        flags += some.split() if isinstance(some, str) else map(str, some)
    if configs.get(_FAST_MATH):
        flags.append("--use_fast_math")
    if configs.get(_REGISTERS) is not None:
        flags.append(f"--ptxas-options=--register-usage-level={int(configs[_REGISTERS])}")
    return tuple(flags)


def _wrapped(wrapper: Any, source: str, arch: str) -> str:
    try:
        text: str = wrapper.wrap(source)
    except AssertionError as error:
        message = str(error)
        if not message.startswith("Unsupported dtype"):
            raise
        kind, dtype = "the CPU" if arch == CPU else arch, message.rsplit(maxsplit=1)[-1]
        raise RefusalError(f"TileLang's code for {kind} has no {dtype}") from error
    return _called_as_declared(text) if arch == CPU else text


def _called_as_declared(text: str) -> str:
    """Fix the call on the CPU: TileLang omits strides, and passes numbers that are sizes twice."""
    call = _CALL_ON_CPU.search(text)
    if call is None:
        raise RefusalError("TileLang wrote no function `call`")
    declared = re.search(rf"\b{call['kernel']}\((?P<list>[^)]*)\) \{{", text)
    listed = declared["list"] if declared is not None else ""
    parameters = (parameter.split()[-1:] for parameter in listed.split(","))
    names = ", ".join(name.lstrip("*") for parameter in parameters for name in parameter)
    new = f"int32_t call({listed}) {{\n  return {call['kernel']}({names});"
    return text[: call.start()] + new + text[call.end() :]


def _launch_facts(kernels: Sequence[Any]) -> tuple[int, int]:
    """Threads of the largest block, and the most bytes of shared memory."""
    threads, shared = [1], [0]
    for kernel in kernels:
        extent = kernel.attrs.get("thread_extent", {})
        threads.append(math.prod(int(v) for tag, v in extent.items() if "threadIdx" in tag))
        if "dyn_shared_memory_buf" in kernel.attrs:
            shared.append(int(kernel.attrs["dyn_shared_memory_buf"]))
    return max(threads), max(shared)


_NVCC, _HIPCC, _CXX = "KBUILD_NVCC", "KBUILD_HIPCC", "KBUILD_CXX"
_LINES = 12
_SOURCE = "object"


def compile_object(
    source: str, emitted: EmittedSource, request: Mapping[str, Any], output: Path
) -> None:
    """Compile `source` to the object file `output`.

    Raises:
        RefusalError: the compiler rejects it.
    """
    folder = output.parent / "tilelang"
    # `-keep` leaves nvcc's intermediate files here, and this unit must not find earlier ones.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    arch = request["arch"]
    which, suffix, command = {"": _HOST, "hip": _AMD, "cuda": _NVIDIA}[runtime_of(arch)]
    name = f"{_SOURCE}.{suffix}"
    (folder / name).write_text(source, "utf-8")
    argv = command(name, emitted, arch)
    if command is _hip:
        # TileLang's headers include rocWMMA without using it; an empty header suffices.
        (folder / "rocwmma").mkdir()
        text = "#pragma once\n#include <hip/hip_bfloat16.h>\n"
        (folder / "rocwmma" / "rocwmma.hpp").write_text(text, "utf-8")
        argv.append(f"-cuid={hashlib.sha256(source.encode()).hexdigest()[:16]}")
    done = subprocess.run(  # noqa: TID251 - in a worker, which has no Runner
        argv, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0 or not (folder / f"{_SOURCE}.o").is_file():
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        what = (
            f"the {which} compiler rejects the code that TileLang generated for "
            f"`{request['function']}`"
        )
        refusal = RefusalError(f"{what} ({arch})")
        refusal.excerpt = tuple(lines[:_LINES])
        raise refusal
    (folder / f"{_SOURCE}.o").replace(output)


def _nvcc(name: str, emitted: EmittedSource, arch: str) -> list[str]:
    """Command of nvcc; `-keep` makes symbols independent of the process number."""
    number = arch.removeprefix("sm_")
    return [
        os.environ[_NVCC], "-std=c++20", "-O3", "-w", "-c", name, "-o", f"{_SOURCE}.o",
        "-gencode", f"arch=compute_{number},code=sm_{number}",
        "-ccbin", os.environ[_CXX], "-Xcompiler", "-fPIC,-fvisibility=hidden",
        "-keep", "-keep-dir", ".", *_includes(), *emitted.flags,
    ]  # fmt: skip


def _hip(name: str, emitted: EmittedSource, arch: str) -> list[str]:
    """Command of hipcc without `-cuid`, whose default would depend on the folder."""
    compiler = Path(os.environ[_HIPCC])
    return [
        str(compiler), "-x", "hip", "-std=c++17", "-O3", "-w", "-c", name, "-o", f"{_SOURCE}.o",
        f"--offload-arch={arch}", f"--rocm-path={_rocm(compiler)}",
        "-fPIC", "-fvisibility=hidden", "-I.", *_includes(), *emitted.flags,
    ]  # fmt: skip


def _rocm(compiler: Path) -> Path:
    """Root of the ROCm installation of a `[lib/]llvm/bin/clang++`."""
    folder = compiler.parents[2]
    return folder.parent if folder.name == "lib" else folder


def _cxx(name: str, _emitted: EmittedSource, _arch: str) -> list[str]:
    return [
        os.environ[_CXX], "-std=c++17", "-O3", "-w", "-fPIC", "-fvisibility=hidden", "-c", name,
        "-o", f"{_SOURCE}.o", "-ffp-contract=off", *_includes(),
    ]  # fmt: skip


def _includes() -> list[str]:
    """Options for the DSL's headers."""
    root = Path(tilelang.__file__).parent
    return [f"-I{root / 'src'}", f"-I{root / '3rdparty' / 'cutlass' / 'include'}"]


_HOST, _AMD, _NVIDIA = ("C++", "cpp", _cxx), ("HIP", "hip", _hip), ("CUDA", "cu", _nvcc)
"""Language, file suffix and command, by compiler."""
