"""Runs cuTile's compiler without a GPU: its export writes TileIR, tileiras makes a cubin of it."""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    KernelSignature,
    ScalarConstraint,
    export_kernel,
)

from kbuild.dsl.worker import torch_stub
from kbuild.dsl.worker.compiler_output import parameter_sizes_of_cubin
from kbuild.dsl.worker.object_compiler import image_type
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.sources import SourceCompiler, SourceModules

_DRIVER = 13000
"""Oldest driver, as it counts itself, that launches these images."""
_MOST = 20
"""Maximum of further lines of an error that are shown."""
_SCALARS = {"int": "i{}", "float": "fp{}", "bool": "u1"}
_PLACE = re.compile(
    r'loc\((?:[^)]*?\[)?"(?P<file>[^"]+)":(?P<line>\d+):\d+\]?\): error: (?P<text>.*)'
)


class CutileKernel:
    """A kernel of a source."""

    def __init__(self, name: str, kernel: Any) -> None:
        self.name, self.kernel = name, kernel
        function = kernel._annotated_function  # noqa: SLF001 - parameters have no public door
        self.symbol, self._code = function.pyfunc.__name__, function.pyfunc.__code__
        self.parameters = function.pysig.parameters
        self.annotations = dict(zip(self.parameters, function.parameter_annotations, strict=True))

    def describe(self) -> dict[str, Any]:
        """Name and parameters."""
        parameters = [
            {
                "name": name,
                "constant": _is_constant(self.annotations[name]),
                "default": parameter.default is not parameter.empty,
            }
            for name, parameter in self.parameters.items()
        ]
        return {"name": self.name, "parameters": parameters}

    def placed(self, refusal: RefusalError, sources: SourceModules) -> RefusalError:
        """The refusal at the kernel's first line, unless it has a place."""
        if not refusal.file:
            refusal.file = sources.relative(self._code.co_filename)
            refusal.line = self._code.co_firstlineno
        return refusal


def _is_constant(annotation: Any) -> bool:
    if annotation.KIND == "leaf":
        return bool(annotation.constant)
    items = getattr(annotation, "items", None) or (annotation.each,)
    return all(map(_is_constant, items))


class KernelCall:
    """A constraint for each parameter of the kernel, from all that is known of a unit's calls."""

    def __init__(self, kernel: CutileKernel, request: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self._arguments = {argument["name"]: argument for argument in request["arguments"]}
        self._constants = request["constants"]
        self._groups = _alias_groups(request["arguments"])
        self._divisible: list[str] = []
        self._ones: list[str] = []
        self._parameters: list[dict[str, str]] = []
        """Parameters of the compiled function, in order."""

    def signature(self) -> Any:
        """The signature for cuTile; `facts` can be called after it."""
        constraints = [self._constraint(name) for name in self._kernel.parameters]
        # Parameters are the same as those of the first version, which takes no sizes as constants.
        convention = CallingConvention.cutile_python_v2()
        return KernelSignature(constraints, convention, symbol=self._kernel.symbol)

    def _constraint(self, name: str) -> Any:
        if name in self._constants:
            return _constant(self._constants[name])
        argument = self._arguments.get(name)
        if argument is None:
            return self._kernel.parameters[name].default
        if argument["kind"] == "tensor":
            return self._array(name, argument)
        bits = argument["bits"]
        scalar = self._kernel.annotations[name].scalar
        if scalar is not None:
            bits = scalar.dtype.bitwidth
        self._pass(_SCALARS[argument["kind"]].format(bits), name)
        return ScalarConstraint(
            ct.bool_ if argument["kind"] == "bool" else getattr(ct, f"{argument['kind']}{bits}")
        )

    def _array(self, name: str, argument: Mapping[str, Any]) -> Any:
        dtype, declared = _dtype(argument["dtype"]), self._kernel.annotations[name].array
        bits = declared.index_dtype.bitwidth if declared is not None else argument["bits"]
        self._pass("*" + image_type(argument["dtype"]), name)
        if argument["align"]:
            self._divisible.append(name)
        for at, (constant, divisor) in enumerate(argument["shape"]):
            part = f"{name}.numel" if argument["flat"] else f"{name}.shape.{at}"
            # The op has checked the sizes that are constants.
            self._pass(f"i{bits}", part, divisor if constant is None else 1)
        for at, (constant, divisor) in enumerate(argument["strides"]):
            # The compiled code does not read a stride that is a constant: any number will do.
            part = f"{name}.numel" if argument["flat"] else f"{name}.stride.{at}"
            # The strides of compact rows follow from the sizes.
            self._pass(f"i{bits}", part, 1 if argument["contiguous"] else divisor)
            if constant is not None and not argument["contiguous"]:
                self._ones.append(part)
        return ArrayConstraint(
            dtype,
            len(argument["shape"]),
            index_dtype=getattr(ct, f"int{bits}"),
            stride_lower_bound_incl=0,
            alias_groups=self._groups[name],
            # Tensors of the caller may be expanded.
            may_alias_internally=not argument["contiguous"],
            shape_constant=[constant for constant, _ in argument["shape"]],
            shape_divisible_by=[divisor for _, divisor in argument["shape"]],
            stride_constant=[constant for constant, _ in argument["strides"]],
            stride_divisible_by=[divisor for _, divisor in argument["strides"]],
            base_addr_divisible_by=argument["align"] or max(1, dtype.bitwidth // 8),
        )

    def _pass(self, type_: str, name: str, divisor: int = 1) -> None:
        kind = {"*": "pointer", "f": "float"}.get(type_[0], "int")
        self._parameters.append({"kind": kind, "type": type_, "name": name})
        if divisor > 1:
            self._divisible.append(name)

    def facts(self, code: bytes) -> dict[str, Any]:
        """The image's facts for the launcher.

        Raises:
            RefusalError: the function has other parameters than the launcher would pass.
        """
        expected = [_size(parameter["type"]) for parameter in self._parameters]
        actual = parameter_sizes_of_cubin(code, self._kernel.symbol)
        if actual != expected:
            raise RefusalError(
                f"the compiled function has parameters of {actual} bytes, not of {expected}",
                hint="please report this: a launcher would pass the wrong values",
            )
        return {
            "kind": "cubin",
            "entry": self._kernel.symbol,
            "parameters": self._parameters,
            "shared": 0,
            # The driver starts as many threads, and clusters, as the code was compiled for.
            "threads": 1,
            "cluster": [1, 1, 1],
            "tensor_maps": [],
            "constants": self._constants,
            "divisible": self._divisible,
            "ones": self._ones,
            "driver": _DRIVER,
        }


def _alias_groups(arguments: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """A group for each pair of arguments that may overlap, by argument."""
    return {
        argument["name"]: [
            "&".join(sorted((argument["name"], other))) for other in argument["aliases"]
        ]
        for argument in arguments
        if argument["kind"] == "tensor"
    }


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        hint = "the kernel has it from an array: `out.dtype`"
        raise RefusalError("cuTile takes no dtype as a constant", hint=hint)
    return tuple(map(_constant, value)) if isinstance(value, list) else value


def _dtype(name: str) -> Any:
    dtype = getattr(ct, "bool_" if name == "bool" else name, None)
    if dtype is None:
        raise RefusalError(f"cuTile has no dtype {name}", hint="leave it out of `dtypes`")
    return dtype


def _size(type_: str) -> int:
    """Bytes of a parameter."""
    bits = int(re.sub(r"\D", "", type_)) if type_[0] != "*" else 64
    return max(1, bits // 8)


class CutileCompiler(SourceCompiler):
    """Compiler for cuTile, see `protocol.WorkerCompiler`."""

    def __init__(self) -> None:
        super().__init__()
        torch_stub.install_stubs()

    def compile(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `protocol.WorkerCompiler`."""
        sources = self._sources.get(request)
        kernel = self._functions(sources).get(request["function"])
        if kernel is None:
            raise RefusalError(f"there is no kernel function `{request['function']}`")
        try:
            return _compiled(kernel, request)
        except RefusalError as refusal:
            raise kernel.placed(refusal, sources) from refusal
        except Exception as error:
            raise kernel.placed(_explained(error, sources), sources) from error

    def _functions(self, sources: SourceModules) -> Mapping[str, CutileKernel]:
        """Kernels of the first source, and those of other sources with other names."""
        modules = (*reversed(sources.imported_with_main()), sources.main())
        return {
            name: CutileKernel(name, value)
            for module in modules
            for name, value in vars(module).items()
            if isinstance(value, ct.kernel) and sources.owns(value._pyfunc.__module__)  # noqa: SLF001
        }


def _compiled(kernel: CutileKernel, request: Mapping[str, Any]) -> Mapping[str, Any]:
    call, arch, tile_ir = KernelCall(kernel, request), request["arch"].rstrip("a"), io.BytesIO()
    hinted = kernel.kernel.replace_hints(**request["options"])
    form = "tileir_bytecode"
    export_kernel(hinted, [call.signature()], tile_ir, gpu_code=arch, output_format=form)
    level = hinted._compiler_options.opt_level_for_target(arch)  # noqa: SLF001
    return call.facts(_assembled(tile_ir.getvalue(), Path(request["output"]), arch, level))


def _assembled(tile_ir: bytes, output: Path, arch: str, level: int) -> bytes:
    """Write a cubin without lines of the source, which would hold paths of this machine."""
    file = output.with_name("kernel.tileirbc")
    file.write_bytes(tile_ir)
    command = [os.environ["KBUILD_TILEIRAS"], str(file), "-o", str(output), f"-O{level}"]
    done = subprocess.run(  # noqa: TID251 - in a worker, which has no Runner
        [*command, "--gpu-name", arch], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        place = next(filter(None, map(_PLACE.search, lines)), None)
        refusal = RefusalError("tileiras cannot compile this")
        if place is not None:
            refusal = RefusalError(place["text"], file=place["file"], line=int(place["line"]))
        refusal.excerpt = tuple(lines[:_MOST])
        raise refusal
    return output.read_bytes()


def _explained(error: Exception, sources: SourceModules) -> RefusalError:
    """Refusal at the author's innermost line, if the error has one."""
    # Those of cuTile show the source in their text, besides the message.
    message = str(getattr(error, "message", f"{type(error).__name__}: {error}"))
    first, *rest = message.strip().splitlines() or [type(error).__name__]
    refusal = RefusalError(first)
    refusal.excerpt = tuple(rest[:_MOST])
    place = getattr(error, "loc", None)
    while place is not None and not sources.device.is_author(place.filename):
        place = place.call_site
    if place is not None:
        refusal.file, refusal.line = place.filename, place.line
    return refusal


Compiler = CutileCompiler
"""The class that `kbuild.dsl.worker` instantiates."""
