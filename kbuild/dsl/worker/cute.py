"""Runs CuTe DSL's compiler without a GPU; one process compiles for one arch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

_ROOTS = ("nvidia_cutlass_dsl/dsl_packages", "nvidia_cutlass_dsl/python_packages")
"""Folders of `cutlass`; they are in a `.pth` file, which this interpreter ignores."""
sys.path[1:1] = [
    str(path) for path in (Path(sys.path[0], root) for root in _ROOTS) if path.is_dir()
]

import cutlass  # type: ignore[import-not-found]  # noqa: E402
import tvm_ffi  # noqa: E402, F401 - it copes without Torch alone
from cutlass import cute  # noqa: E402
from cutlass.cute import runtime  # type: ignore[import-not-found]  # noqa: E402
from cutlass.cutlass_dsl.cutlass import CutlassBaseDSL  # type: ignore[import-not-found]  # noqa: E402

from kbuild.dsl.worker import device as devices  # noqa: E402
from kbuild.dsl.worker import torch_stub  # noqa: E402
from kbuild.dsl.worker.cute_compilation import (  # noqa: E402
    CuteArguments,
    CuteFunction,
    dynamic_shared,
    functions,
    make_portable,
)
from kbuild.dsl.worker.object_compiler import ObjectCompiler  # noqa: E402
from kbuild.dsl.worker.protocol import RefusalError  # noqa: E402
from kbuild.dsl.worker.sources import REMOVED_MODULES, SourceModules  # noqa: E402

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_LINE = re.compile(r"\s*error: (.+)")
"""Message of an error, which follows a line with only its kind."""
_MOST = 20
"""Maximum of further lines of an error that are shown."""


class CuteCompiler(ObjectCompiler):
    """Compiler for CuTe DSL, see `protocol.WorkerCompiler`."""

    distribution = "nvidia-cutlass-dsl"
    version = cutlass.__version__
    what = "@cute.jit"
    functions = functions

    def __init__(self) -> None:
        super().__init__()
        torch_stub.install_stubs()
        _answer_imports()

    def compile_function(
        self, function: CuteFunction, request: Mapping[str, Any], sources: SourceModules
    ) -> Mapping[str, Any]:
        """See `ObjectCompiler.compile_function`."""
        arguments = CuteArguments(function, request)
        emit = request.get("emit", "tvm-ffi")
        with intercept_compile(lambda text: self.named(request, text)) as kernel:
            options = {"options": "--enable-tvm-ffi"} if emit == "tvm-ffi" else {}
            given = arguments.given(env_stream=bool(options))
            compiled = compile_unless_known(given, options, sources)
        shared, load_functions = 0, tuple[str, ...]()
        if compiled is not None:
            shared = dynamic_shared(compiled)
            make_portable(compiled, is_wrapped=emit == "c")
            _EMIT[emit](compiled, kernel.symbol, Path(request["output"]))
            load_functions = _load_functions(Path(request["output"]), kernel.symbol)
        return {
            "convention": emit,
            "entry": _ENTRIES[emit].format(kernel.symbol),
            "parameters": arguments.parameters(),
            "shared": shared,
            "loading": "library" if load_functions else "",
            "load_functions": load_functions,
            "divisible": sorted(arguments.divisible),
            "ones": sorted(arguments.ones),
        }


def write_tvm_ffi(compiled: Any, symbol: str, output: Path) -> None:
    """Write an object with one function of TVM-FFI."""
    file = output.with_name("object.o")
    compiled.export_to_c(str(file), function_name=symbol)
    file.replace(output)


def _c(compiled: Any, symbol: str, output: Path) -> None:
    """Write the header's length in a line, the header and the object, as one file."""
    compiled.export_to_c(str(output.parent), "object", symbol)
    header, code = (output.with_name(name) for name in ("object.h", "object.o"))
    text = header.read_bytes()
    output.write_bytes(b"%d\n%s%s" % (len(text), text, code.read_bytes()))
    header.unlink()
    code.unlink()


def _load_functions(output: Path, symbol: str) -> tuple[str, ...]:
    """The two functions that a launcher can replace; see `KernelImage.load_functions`."""
    code = output.read_bytes()
    init, load = names = tuple(
        f"__cute_internal_{symbol}_{name}" for name in ("cuda_init", "cuda_load_to_device")
    )
    return names if f"\0{init}\0".encode() in code and f"\0{load}\0".encode() in code else ()


REMOVED_MODULES["cutlass.cute.cuda"] = "write `import cuda.bindings.driver as cuda`"

_OF_DEVICES = (
    *("get_max_active_clusters", "get_l2_cache_size_in_bytes", "get_device_multiprocessor_count"),
)
"""Methods of `cutlass.utils.HardwareInfo` that ask the driver."""


def _answer_imports() -> None:
    """Let sources compile, load and export during their import; the results are placeholders.

    Only the functions in `build.toml` are compiled.
    """
    kind: Any = type(cute.compile)
    kind.__call__ = _unknown_at_import(kind.__call__, "cute.compile()")
    for name in ("load_module", "from_dlpack"):
        original = getattr(runtime, name, None)
        answering = _unknown_at_import(original, f"{name}()")
        # Other modules of the DSL have imported the function by name.
        for module in list(sys.modules.values()):
            if original is not None and getattr(module, "__dict__", {}).get(name) is original:
                setattr(module, name, answering)
    hardware: Any = cutlass.utils.HardwareInfo
    # The original asks the driver, which a machine that builds need not have.
    hardware.__init__ = lambda *_, **__: None
    for name in _OF_DEVICES:
        question = f"HardwareInfo().{name}()"
        setattr(
            hardware,
            name,
            # `partial` keeps this question; a closure would see the last one of the loop.
            partial(lambda asked, *_, **__: devices.device_dependent(asked), question),
        )


def _unknown_at_import(original: Any, path: str) -> Any:
    def answering(*args: Any, **kwargs: Any) -> Any:
        if devices.current.importing:
            return devices.UnknownValue(path)
        return original(*args, **kwargs)

    return answering


_STORE = re.compile(r"Type mismatch, store .* to Tensor with element type")
_EMIT = {"tvm-ffi": write_tvm_ffi, "c": _c}
_ENTRIES = {"tvm-ffi": "__tvm_ffi_{}", "c": "cute_dsl_{}_wrapper"}


class _AlreadyCompiledError(Exception):
    """The kernel has been compiled already."""


@dataclass
class _KernelSymbol:
    """Symbol of a kernel, which is known once its text is."""

    symbol: str = ""


@contextmanager
def intercept_compile(name: Callable[[str], tuple[str, bool]]) -> Iterator[_KernelSymbol]:
    """Call `name` with a kernel's text during its compilation, for its symbol and a decision.

    The text is the traced module without locations, which do not change the code.
    """
    kernel, compile_ = _KernelSymbol(), CutlassBaseDSL.compile_and_cache

    def asking(dsl: Any, module: Any, *args: Any, **options: Any) -> Any:
        kernel.symbol, is_wanted = name(module.operation.get_asm(enable_debug_info=False))
        if not is_wanted:
            raise _AlreadyCompiledError
        return compile_(dsl, module, *args, **options)

    CutlassBaseDSL.compile_and_cache = asking
    try:
        yield kernel
    finally:
        CutlassBaseDSL.compile_and_cache = compile_


def compile_unless_known(
    given: Sequence[Any], options: Mapping[str, Any], sources: SourceModules
) -> Any:
    """Compile, inside of `intercept_compile`; None if the kernel was compiled before.

    Raises:
        RefusalError: the DSL cannot compile it.
    """
    try:
        return cute.compile(*given, **options)
    except RefusalError:
        raise
    except Exception as error:
        if any(isinstance(cause, _AlreadyCompiledError) for cause in _chain(error)):
            return None
        raise _explain_error(error, sources) from error


def _explain_error(error: BaseException, sources: SourceModules) -> RefusalError:
    """Return the refusal at the author's innermost line; the DSL wraps errors several times."""
    chain = list(_chain(error))
    refusals = [sources.refusal(cause) for cause in chain]
    placed = [refusal for refusal in refusals if refusal.line]
    best = placed[-1] if placed else refusals[-1]
    lines = [line for line in _COLOURS.sub("", str(best.message)).splitlines() if line.strip()]
    messages = [match[1] for line in lines if (match := _ERROR_LINE.match(line))]
    best.message = (messages or lines or [type(error).__name__])[0].strip()
    best.excerpt = tuple(line for line in lines[1:] if not _ERROR_LINE.match(line))[:_MOST]
    if not best.hint and _STORE.search(best.message):
        best.hint = "convert it: `value.to(out.element_type)`; or leave the dtype out of `dtypes`"
    return best


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


Compiler = CuteCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
