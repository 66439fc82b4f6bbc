"""Generates code with TileLang without a GPU; another compiler turns it into an object."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kbuild.dsl.worker import device as devices
from kbuild.dsl.worker import torch_stub


class _BlockTorch:
    """Import hook that hides Torch from TVM-FFI, which works without Torch but not with a stub."""

    def find_spec(self, name: str, *_: object) -> None:
        """See `importlib.abc.MetaPathFinder`."""
        if name.partition(".")[0] in {"torch", "torch_c_dlpack_ext"}:
            raise ModuleNotFoundError(name)


if importlib.util.find_spec("torch") is None:
    _none = _BlockTorch()
    sys.meta_path.insert(0, _none)
    # Imported while Torch is hidden; every later import finds it in `sys.modules`.
    import tvm_ffi  # noqa: F401

    sys.meta_path.remove(_none)
    # TileLang, unlike TVM-FFI, cannot be imported without Torch; a stub suffices.
    sys.meta_path.append(torch_stub.StubFinder(("torch", "torch_c_dlpack_ext")))

import tilelang  # type: ignore[import-not-found]  # noqa: E402

from kbuild.dsl.worker.compiler_output import memory_access_of_cxx  # noqa: E402
from kbuild.dsl.worker.object_compiler import ObjectCompiler  # noqa: E402
from kbuild.dsl.worker.protocol import RefusalError  # noqa: E402
from kbuild.dsl.worker.sources import SourceModules  # noqa: E402
from kbuild.dsl.worker.tilelang_codegen import (  # noqa: E402
    CPU,
    EmittedSource,
    compile_object,
    emit_source,
    target_of,
)
from kbuild.dsl.worker.tilelang_functions import TileLangFunction, functions  # noqa: E402
from kbuild.dsl.worker.tilelang_parameters import EntryParameters  # noqa: E402
from kbuild.dsl.worker.tilelang_source import complete_source  # noqa: E402

T = TypeVar("T")
_NAMELESS = "kbuild_nameless"
"""Symbol in code whose own symbol, a digest of the code, is not known yet."""
_HINTS = {
    "no attribute 'lazy_jit'": "write `@tilelang.jit`: since 0.1.8 it does both; older releases "
    "cannot be imported without a GPU driver",
    "Not all tensor from `T.empty` are returned": "return each of them; make any other a "
    "parameter of the kernel and, in build.toml, a "
    "temporary of the op",
    "is not used in any buffer shape or stride": "write it alone as a dimension, or a `T.const` of "
    "its own for each dimension that is computed from it",
    "only supports floating-point inputs": 'convert it first: `T.cast(value, "float32")`',
}
"""Part of a message of the DSL -> advice for the author."""
_NO_VALUE = re.compile(r"Cannot find value for constexpr variable `(\w+)`")


class _TvmDevice:
    """`tvm.cuda(0)`, which `tilelang.carver` asks for properties of a device."""

    def __init__(self, backend: str, index: int = 0) -> None:
        self._backend, self.index = backend, index

    @property
    def exist(self) -> bool:
        return devices.current.ask(f"tvm.{self._backend}().exist").backend == self._backend

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        question = f"tvm.{self._backend}().{name}"
        facts = devices.current.gpu(question).facts
        own = facts["properties"]
        known = {
            "warp_size": facts["warp"],
            "max_shared_memory_per_block": own.get("shared_memory_per_block", facts["shared"]),
            "max_threads_per_block": own.get("max_threads_per_block"),
            "compute_version": ".".join(map(str, facts["capability"])),
        }
        answer = known.get(name)
        return devices.device_dependent(question) if answer is None else answer


tilelang.tvm.runtime.cuda = tilelang.tvm.cuda = lambda index=0: _TvmDevice("cuda", index)
tilelang.tvm.runtime.rocm = tilelang.tvm.rocm = lambda index=0: _TvmDevice("hip", index)


def _auto_target() -> Any:
    """Result of `determine_target("auto")`: the target that is compiled for."""
    device = devices.current.ask('determine_target("auto")')
    if not device.facts:
        raise ValueError("no target is known before a source is imported")
    cuda = f"sm_{device.arch.replace('.', '')}"
    return target_of(cuda if device.backend == "cuda" else device.arch)


importlib.import_module("tilelang.backend.target").__dict__["auto_detect_target"] = _auto_target
for _arch in ("cuda", "cdna"):  # their L2 size differs between devices
    _module = importlib.import_module(f"tilelang.carver.arch.{_arch}")
    _module.__dict__["_get_l2_cache_size_bytes"] = lambda *_: devices.device_dependent(
        "l2_cache_size_bytes"
    )


_IMPORTED = "the source uses a compiled kernel while it is imported"


class _NotCompiled:
    """Result of compiling during an import: any use raises an error."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RefusalError(_IMPORTED, hint="put that under a main guard")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "jit_impl":  # looked up on every object
            raise AttributeError(name)
        raise RefusalError(f"{_IMPORTED}: `{name}`", hint="put that under a main guard")


def _compile(*_: Any, **__: Any) -> Any:
    return _NotCompiled()


def _compile_all(self_or_functions: Any, configs: Any = None, *_: Any, **__: Any) -> Any:
    several = self_or_functions if configs is None else configs
    return [_NotCompiled() for _ in several]


def _no_workspace(*_: Any, **__: Any) -> Any:
    raise RefusalError(
        "`T.alloc_global` is memory that TileLang's own run time allocates",
        hint="make it a tensor of the kernel's parameters and, in build.toml, one of the op's "
        "`temporaries`",
    )


def _without_compiling() -> None:
    """Replace compiling during an import: its kernels would need a GPU and are not used."""
    jit: Any = importlib.import_module("tilelang.jit")  # `tilelang.jit` is the decorator
    tuner: Any = importlib.import_module("tilelang.autotuner.tuner")
    tilelang.compile = jit.compile = _compile
    tilelang.par_compile = jit.par_compile = _compile_all
    jit.JITImpl.compile = jit.JITImpl.__call__ = tuner.AutoTuneImpl.__call__ = _compile
    jit.JITImpl.par_compile = _compile_all
    tilelang.language.alloc_global = _no_workspace


_without_compiling()


class TileLangCompiler(ObjectCompiler):
    """Compiler for TileLang, see `protocol.WorkerCompiler`."""

    distribution = "tilelang"
    version = tilelang.__version__
    what = "TileLang function"
    functions = functions

    def sources(self, request: Mapping[str, Any]) -> SourceModules:
        """Return the sources, imported anew: macros rename their arguments permanently."""
        return self._sources.fresh(request)

    def _functions(self, sources: SourceModules) -> Mapping[str, Any]:
        return _hinted(lambda: super(TileLangCompiler, self)._functions(sources))

    def compile_function(
        self, function: TileLangFunction, request: Mapping[str, Any], sources: SourceModules
    ) -> Mapping[str, Any]:
        """See `ObjectCompiler.compile_function`."""
        emitted = _emitted(function, request, sources)
        parameters = EntryParameters(function, emitted, request)
        text = complete_source(emitted.text, _NAMELESS, emitted.kernels, parameters.entry())
        names = [parameter["name"] for parameter in parameters.image()]
        symbol, is_wanted = self.named(request, f"{text}\n{emitted.flags}")
        if is_wanted:
            source = complete_source(emitted.text, symbol, emitted.kernels, parameters.entry())
            compile_object(source, emitted, request, Path(request["output"]))
        return {
            "convention": "c",
            "loading": "" if request["arch"] == CPU else "function",
            "entry": symbol,
            "parameters": parameters.image(),
            "shared": emitted.shared,
            "threads": emitted.threads,
            "pdl": any(kernel.pdl for kernel in emitted.kernels),
            "divisible": parameters.aligned(),
            **memory_access_of_cxx(emitted.text, names),
        }


def _emitted(
    function: TileLangFunction, request: Mapping[str, Any], sources: SourceModules
) -> EmittedSource:
    """Generate the source; errors get the function's line and advice."""
    try:
        return _hinted(lambda: _explained(sources, lambda: emit_source(function, request)))
    except RefusalError as refusal:
        if unset := _NO_VALUE.search(refusal.message):
            name = unset[1]
            refusal.message = f"nothing gives `{name}`, which is a `T.const`, a value"
            refusal.hint = (
                f'write `T.dynamic("{name}")` in the kernel for one object of every size, or name '
                f"the sizes in build.toml: `constants = {{ {name} = {{ value = DIMENSION, "
                "choices = [1024, 4096] } }`"
            )
            refusal.excerpt = ()
        if not refusal.file or unset:
            refusal.file, refusal.line = function.file, function.line
        free = sorted(function.open - request["constants"].keys())
        if free and not refusal.hint:
            names = ", ".join(f"`{name}`" for name in free)
            refusal.hint = (
                f"{names}: not among the constants in build.toml, so each call decides; if the "
                f"kernel needs a number, write `constants = {{ {free[0]} = ... }}`"
            )
        raise


def _hinted(make: Callable[[], T]) -> T:
    """Call `make`; add advice to a refusal whose cause is known."""
    try:
        return make()
    except RefusalError as refusal:
        hints = (hint for phrase, hint in _HINTS.items() if phrase in refusal.message)
        refusal.hint = refusal.hint or next(hints, "")
        raise


def _explained(sources: SourceModules, make: Callable[[], T]) -> T:
    """Call `make`; turn an exception into a refusal with the author's line."""
    try:
        return make()
    except RefusalError as error:
        raise sources.refusal(error) from error
    except Exception as error:
        refusal = sources.refusal(error)
        first, *rest = [line for line in refusal.message.splitlines() if line.strip()] or [""]
        refusal.message, refusal.excerpt = first, tuple(rest[:20])
        raise refusal from error


Compiler = TileLangCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
