"""Runs FlyDSL's compiler without a GPU: its export is joined with functions for the launcher."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from kbuild.dsl.worker import torch_stub

torch_stub.install_stubs()  # FlyDSL imports Torch, for the types of arguments

_CLANG = Path(os.environ["KBUILD_HIPCC"])
_LLVM = _CLANG.parents[1]
# FlyDSL starts `llvm/bin/ld.lld` below this folder for the code of the GPU.
os.environ["ROCM_PATH"] = str(
    _LLVM.parents[1] if _LLVM.parent.name == "lib" else _LLVM.parent  # ROCm 6.2 and later: `lib`
)

import flydsl  # type: ignore[import-not-found]  # noqa: E402
import flydsl.compiler as flyc  # type: ignore[import-not-found]  # noqa: E402
from flydsl.compiler import jit_argument  # noqa: E402
from flydsl.compiler.jit_function import JitFunction  # type: ignore[import-not-found]  # noqa: E402
from flydsl.expr import numeric  # type: ignore[import-not-found]  # noqa: E402
from flydsl.expr.typing import (  # type: ignore[import-not-found]  # noqa: E402
    Constexpr,
    Stream,
    Tensor,
)

from kbuild.dsl.worker.object_compiler import ObjectCompiler, image_type  # noqa: E402
from kbuild.dsl.worker.protocol import RefusalError  # noqa: E402
from kbuild.dsl.worker.sources import SourceModules  # noqa: E402
from kbuild.dsl.worker.torch_types import DTYPES  # noqa: E402

_MOST = 20
"""Maximum of further lines of an error that are shown."""
_NUMBERS = {
    **{f"Int{bits}": ("int", f"i{bits}", f"int{bits}_t") for bits in (8, 16, 32, 64)},
    **{f"Uint{bits}": ("int", f"u{bits}", f"uint{bits}_t") for bits in (8, 16, 32, 64)},
    "Boolean": ("int", "u1", "bool"),
    "Float32": ("float", "fp32", "float"),
    "Float64": ("float", "fp64", "double"),
}
"""Class of a number in FlyDSL -> kind and type in images, type in C."""
_DEFAULTS = {"int": "Int32", "float": "Float32", "bool": "Boolean"}
_CODE_SECTION = ".kbuild_objects"
"""Section of the device code, in which `kbuild check` looks for it."""
_SHIM = """\
#include "object.h"
typedef void *pointer;
extern const char *hipGetErrorString(int);
extern int hipGetLastError(void);
extern int hipModuleLaunchKernel(pointer, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, unsigned, pointer, pointer *, pointer *);
static _Thread_local int status;
static int ended(int now) {{
  if (now > 0) (void)hipGetLastError(); /* or Torch finds it at the next kernel */
  return status = now;
}}
/* FlyDSL's code calls this in place of HIP's function, which refuses empty grids. */
__attribute__((visibility("hidden"))) int {symbol}_start(
    pointer function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
    unsigned shared, pointer stream, pointer *values, pointer *extra) {{
  if (x == 0 || y == 0 || z == 0) return 0;
  return hipModuleLaunchKernel(function, x, y, z, bx, by, bz, shared, stream, values, extra);
}}
const char *{symbol}_error(void) {{
  if (status > 0) return hipGetErrorString(status);
  return status < 0 ? "the kernel's module is not loaded" : "";
}}
int {symbol}_load(void) {{
  const int known = {symbol}_fly__module_init();
  return ended(known != 0 ? known : {symbol}_fly__module_load(-1));
}}
int {symbol}({parameters}) {{
{layouts}  return ended({symbol}_fly_call_auto({arguments}));
}}
"""


class FlyFunction:
    """A function with `@flyc.jit`."""

    def __init__(self, name: str, jit: Any) -> None:
        self.name, self.jit = name, jit
        self.parameters = jit_argument.resolve_signature(jit.func).parameters
        code = jit.func.__code__
        self.file, self.line = code.co_filename, code.co_firstlineno

    def describe(self) -> dict[str, Any]:
        """Name and parameters, without the stream."""
        parameters = [
            {"name": name, "constant": _is_constant(p), "default": p.default is not p.empty}
            for name, p in self.parameters.items()
            if not _is_stream(p)
        ]
        return {"name": self.name, "parameters": parameters}


def _is_constant(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    is_type = bool(jit_argument.is_type_param_annotation(annotation))
    return is_type or bool(Constexpr.is_constexpr_annotation(annotation))


def _is_stream(parameter: inspect.Parameter) -> bool:
    is_stream: bool = parameter.annotation is Stream
    return is_stream


def functions(module: ModuleType, owns: Callable[[str], bool]) -> Mapping[str, FlyFunction]:
    """The functions of a module by name."""
    return {
        name: FlyFunction(name, value)
        for name, value in vars(module).items()
        if isinstance(value, JitFunction) and owns(value.func.__module__)
    }


class FlyArguments:
    """The arguments of `flyc.compile`, and of the C function that the launcher calls."""

    def __init__(self, function: FlyFunction, request: Mapping[str, Any]) -> None:
        self._function = function
        self._constants = request["constants"]
        self._arguments = {argument["name"]: argument for argument in request["arguments"]}
        self.parameters: list[dict[str, str]] = []
        self.divisible: list[str] = []
        self.ones: list[str] = []
        self._declared: list[str] = []
        self._layouts: list[str] = []
        """Definitions of the structures that FlyDSL's function takes beside a tensor."""
        self._passed: list[str] = []
        self.given = dict(self._given())

    def shim(self, symbol: str) -> str:
        """C functions with the launcher's convention, which call those that FlyDSL exports."""
        is_last = not any(map(_is_stream, self._function.parameters.values()))
        return _SHIM.format(
            symbol=symbol,
            parameters=", ".join((*self._declared, "void *stream")),
            layouts="".join(self._layouts).replace("SYMBOL", symbol),
            arguments=", ".join((*self._passed, *(["stream"] if is_last else []))),
        )

    def _given(self) -> Iterator[tuple[str, Any]]:
        for name, parameter in self._function.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise RefusalError(f"`{name}` has no fixed number of values")
            if _is_stream(parameter):
                self._passed.append("stream")
                yield name, Stream(None)
            elif name in self._constants:
                yield name, _constant(self._constants[name])
            elif name in self._arguments:
                make = self._tensor if self._arguments[name]["kind"] == "tensor" else self._number
                yield name, make(name, parameter.annotation)
            elif not _is_constant(parameter):
                raise RefusalError(
                    f"nothing gives `{name}` of `{self._function.name}`",
                    hint="list it in `args`; a default would be a value of each call",
                )

    def _tensor(self, name: str, annotation: Any) -> Any:
        if annotation not in (Tensor, inspect.Parameter.empty):
            raise self._unlike(name, annotation, "a tensor", "declare it as `fx.Tensor`")
        argument = self._arguments[name]
        shape, strides = argument["shape"], argument["strides"]
        if not shape:
            hint = "pass a number, or `contiguous` with a dimension"
            raise RefusalError(f"FlyDSL takes no tensor without dimensions as `{name}`", hint=hint)
        tensor = jit_argument.TorchTensorJitArg(
            _torch_tensor(argument), argument["align"] or None, dynamic_layout=False
        )
        data = self._pass("pointer", "*" + image_type(argument["dtype"]), name, "void *")
        if argument["align"]:
            self.divisible.append(name)
        fields: dict[str, list[str]] = {"shape": [], "stride": []}
        for at, (value, divisor) in enumerate(shape):
            part = f"{name}.numel" if argument["flat"] else f"{name}.shape.{at}"
            if value is None:
                tensor.mark_shape_dynamic(at, divisor)
                fields["shape"].append(self._pass("int", "i32", part, "int32_t ", divisor))
        for at, (value, divisor) in enumerate(strides):
            part = f"{name}.stride.{at}"
            if value is None:
                tensor.mark_stride_dynamic(at, divisor)
                # The strides of compact rows are divisible as their sizes are.
                judged = 1 if argument["contiguous"] else divisor
                fields["stride"].append(self._pass("int", "i64", part, "int64_t ", judged))
            elif not argument["contiguous"]:
                self.ones.append(part)
        self._passed.append(data)
        text = ", ".join(f".{key} = {{{', '.join(v)}}}" for key, v in fields.items() if v)
        if text:
            self._layouts.append(f"  const SYMBOL_fly_{name}_layout_t l{data} = {{{text}}};\n")
            self._passed.append(f"&l{data}")
        return tensor

    def _number(self, name: str, annotation: Any) -> Any:
        kind = self._arguments[name]["kind"]
        is_open = annotation is inspect.Parameter.empty
        word = _DEFAULTS[kind] if is_open else getattr(annotation, "__name__", "")
        known = _NUMBERS.get(word)
        if known is None or not (is_open or getattr(numeric, word) is annotation):
            raise self._unlike(name, annotation, "a number", "declare it as `fx.Float32`, say")
        if kind == "float" and known[0] != "float":
            raise self._unlike(name, annotation, "a float", "declare a float in the kernel")
        self._passed.append(self._pass(known[0], known[1], name, f"{known[2]} "))
        return getattr(numeric, word)(1)

    def _pass(self, kind: str, type_: str, name: str, c_type: str, divisor: int = 1) -> str:
        """Add a parameter; return its name in C."""
        variable = f"a{len(self.parameters)}"
        self.parameters.append({"kind": kind, "type": type_, "name": name})
        self._declared.append(f"{c_type}{variable}")
        if divisor > 1:
            self.divisible.append(name)
        return variable

    def _unlike(self, name: str, annotation: Any, given: str, hint: str) -> RefusalError:
        word = getattr(annotation, "__name__", str(annotation))
        what = f"`{name}` of `{self._function.name}` is declared as {word}, and build.toml passes"
        return RefusalError(f"{what} {given}", hint=hint)


def _torch_tensor(argument: Mapping[str, Any]) -> Any:
    """Stand-in for a tensor of Torch, on the CPU: FlyDSL compiles for it and launches nothing."""
    shape, strides = ([value or 1 for value, _ in argument[key]] for key in ("shape", "strides"))
    return SimpleNamespace(
        shape=shape,
        stride=lambda: strides,
        dtype=getattr(jit_argument.torch, argument["dtype"]),
        element_size=lambda: DTYPES[argument["dtype"]],
        device=SimpleNamespace(type="cpu"),
    )


def _constant(value: Any) -> Any:
    """A constant as the author's function takes it; FlyDSL's dtypes are classes."""
    if not isinstance(value, dict):
        return tuple(map(_constant, value)) if isinstance(value, list) else value
    names = {"bfloat16": "BFloat16", "bool": "Boolean"}
    dtype = getattr(numeric, names.get(value["dtype"], value["dtype"].capitalize()), None)
    if dtype is None:
        raise RefusalError(f"kbuild knows no name of {value['dtype']} in FlyDSL")
    return dtype


class FlyDslCompiler(ObjectCompiler):
    """Compiler for FlyDSL, see `protocol.WorkerCompiler`."""

    distribution = "flydsl"
    version = flydsl.__version__.partition("+")[0]
    what = "@flyc.jit"
    functions = functions

    def compile_function(
        self, function: FlyFunction, request: Mapping[str, Any], sources: SourceModules
    ) -> Mapping[str, Any]:
        """See `ObjectCompiler.compile_function`."""
        try:
            arguments = FlyArguments(function, request)
            compiled = flyc.compile(function.jit, **arguments.given)
            # The lowered module contains the device code. Before it is compiled, FlyDSL does not
            # show it.
            text = compiled._get_aot_compiled()._ir_text  # noqa: SLF001
            symbol, is_wanted = self.named(request, text + arguments.shim("entry"))
            if is_wanted:
                _export(compiled, symbol, arguments.shim(symbol), Path(request["output"]))
        except Exception as error:
            raise _explained(error, function, sources) from error
        return {
            "convention": "c",
            "loading": "function",
            "entry": symbol,
            "parameters": arguments.parameters,
            "divisible": sorted(arguments.divisible),
            "ones": sorted(arguments.ones),
        }


def _export(compiled: Any, symbol: str, shim: str, output: Path) -> None:
    """Write one object with FlyDSL's export and the shim."""
    folder = output.parent
    compiled.export_to_c(str(folder), "object", f"{symbol}_fly")
    (folder / "shim.c").write_text(shim, "utf-8")
    # The runtime's lines are those of its authors' machine.
    _run(
        *("objcopy", "--strip-debug", f"--rename-section=.rodata={_CODE_SECTION}"),
        *(f"--redefine-sym=hipModuleLaunchKernel={symbol}_start", "object.o"),
        folder=folder,
    )
    _run(
        *(str(_CLANG), "-x", "c", "-O2", "-fPIC", "-w", "-r", "-nostdlib", "shim.c"),
        *("-x", "none", "object.o", "-o", "joined.o"),
        folder=folder,
    )
    (folder / "joined.o").replace(output)
    for name in ("object.o", "object.h", "shim.c"):
        (folder / name).unlink()


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(  # noqa: TID251 - in a worker, which has no Runner
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        refusal = RefusalError(f"{Path(command[0]).name} refuses FlyDSL's object")
        refusal.excerpt = tuple(done.stderr.splitlines()[:_MOST])
        raise refusal


def _explained(error: Exception, function: FlyFunction, sources: SourceModules) -> RefusalError:
    """The refusal at the author's innermost line, or at the function's first one."""
    refusal = sources.refusal(error)
    first, *rest = [line for line in refusal.message.splitlines() if line.strip()]
    if not isinstance(error, RefusalError):
        refusal.message, refusal.excerpt = first, tuple(rest[:_MOST])
    records: Sequence[Any] = getattr(error, "diagnostics", ())
    frames = [frame for record in records for frame in record.chain]
    own = [frame for frame in frames if sources.device.is_author(frame.filename)]
    if own:
        refusal.file, refusal.line = own[0].filename, own[0].line
    if not refusal.file:
        refusal.file, refusal.line = sources.relative(function.file), function.line
    if "lld" in first and not refusal.hint:
        refusal.hint = f"{_LLVM / 'bin/ld.lld'} links the device code; LLVM 19 and later can"
    return refusal


Compiler = FlyDslCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
