"""Maps the parameters of the generated function to values of a call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tilelang  # type: ignore[import-not-found]

from kbuild.dsl.worker.object_compiler import image_type
from kbuild.dsl.worker.protocol import RefusalError
from kbuild.dsl.worker.tilelang_codegen import EmittedSource, runtime_of
from kbuild.dsl.worker.tilelang_functions import TileLangFunction
from kbuild.dsl.worker.tilelang_source import DimensionCheck, EntryFunction

_CALL = re.compile(r"\bint(?:32_t)? call\((?P<list>[^)]*)\)\s*\{")
_STREAMS = ("cudaStream_t", "hipStream_t")
_INTEGERS = {"int32": "int32_t", "int64": "int64_t", "uint32": "uint32_t", "uint64": "uint64_t"}
_INTEGERS |= {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16)}
_FLOATS = {"float64": ("fp64", "double")}


@dataclass(frozen=True)
class EntryArgument:
    """An argument that the launcher passes."""

    name: str
    """Name such as `A`, `A.shape.0`, `alpha`."""
    kind: str
    type: str
    """Type in the names of images."""
    cxx: str


class EntryParameters:
    """The parameters of one object's C function."""

    def __init__(
        self, function: TileLangFunction, emitted: EmittedSource, request: Mapping[str, Any]
    ) -> None:
        self._function, self._request = function, request
        self._runtime = runtime_of(request["arch"])
        self._given = {argument["name"]: argument for argument in request["arguments"]}
        self._values: list[EntryArgument] = []
        self._checks: list[DimensionCheck] = []
        self._first: dict[str, tuple[str, str]] = {}
        self._arguments = list(self._filled(emitted))

    def image(self) -> list[dict[str, str]]:
        """JSON objects of the arguments that the launcher passes, in order."""
        return [{"kind": v.kind, "type": v.type, "name": v.name} for v in self._values]

    def aligned(self) -> list[str]:
        """Tensors whose addresses must be divisible by 16; none on the CPU."""
        if not self._runtime:
            return []
        return sorted(value.name for value in self._values if value.kind == "pointer")

    def entry(self) -> EntryFunction:
        """The function in C++."""
        types = tuple(value.cxx for value in self._values)
        return EntryFunction(types, tuple(self._arguments), tuple(self._checks), self._runtime)

    def _filled(self, emitted: EmittedSource) -> Iterator[str]:
        tensors, scalars = self._sorted(emitted.program)
        expressions = {}
        for name, (parameter, buffer) in tensors.items():
            expressions[name] = self._pointer(parameter, buffer)
        for own, (name, variable) in scalars.items():
            expressions[own] = self._scalar(name, variable)
            self._first[own] = (expressions[own], "")  # a number argument may also be a dimension
        for parameter, buffer in tensors.values():
            self._shape(parameter, buffer)
        for kind, name in _declared(emitted.text):
            if name in tensors:
                yield f"static_cast<{kind}>({expressions[name]})"
            elif name in scalars:
                yield expressions[name]
            elif name in self._first:
                yield self._first[name][0]
            else:
                raise RefusalError(f"`{self._function.name}`: the source of `{name}` is unknown")

    def _sorted(
        self, program: Any
    ) -> tuple[dict[str, tuple[str, Any]], dict[str, tuple[str, Any]]]:
        """Tensors and numbers by their names in the code, which macros may change."""
        wanted = self._function.taken(self._request["constants"])
        if len(program.params) != len(wanted):
            raise RefusalError(
                f"`{self._function.name}` has {len(program.params)} parameters when it is "
                f"compiled, and its source says {len(wanted)}: {', '.join(wanted)}",
                hint="return each tensor of `T.empty` under the name it was assigned to",
            )
        tensors, scalars = {}, {}
        for name, parameter in zip(wanted, program.params, strict=True):
            buffer = program.buffer_map.get(parameter, None)
            if buffer is None and name not in self._function.arguments:
                continue  # a dimension, whose value comes from its tensor
            if buffer is None:
                scalars[parameter.name] = (name, parameter)
            else:
                # TileLang's `call` names pointers after their data on GPUs, and after buffers on
                # the CPU.
                own = buffer.data.name if self._runtime else buffer.name
                tensors[own] = (name, buffer)
        return tensors, scalars

    def _add(self, value: EntryArgument) -> str:
        self._values.append(value)
        return f"a{len(self._values) - 1}"

    def _pointer(self, name: str, buffer: Any) -> str:
        argument = self._given.get(name)
        if argument is None or argument["kind"] != "tensor":
            raise RefusalError(f"`{name}` of `{self._function.name}` is a tensor")
        dtype, wanted = str(buffer.dtype), argument["dtype"]
        if dtype != wanted:
            raise RefusalError(
                f"`{name}` of `{self._function.name}` is a tensor of {dtype} in the kernel, but "
                f"of {wanted} in build.toml",
                file=self._function.file,
                line=self._function.line,
                hint=f"write {dtype} in `dtypes`, or make the dtype a parameter of the kernel: "
                f'`constants = {{ dtype = {{ dtype = "{name}" }} }}`',
            )
        return self._add(EntryArgument(name, "pointer", f"*{image_type(dtype)}", "void*"))

    def _scalar(self, name: str, variable: Any) -> str:
        dtype, argument = str(variable.dtype), self._given.get(name)
        if argument is None:
            default = self._function.defaults.get(name)
            if default is None:
                raise RefusalError(f"`{self._function.name}` has no value for `{name}`")
            return str(int(default)) if "int" in dtype or dtype == "bool" else repr(float(default))
        if argument["kind"] == "tensor":
            raise RefusalError(f"`{name}` of `{self._function.name}` is a number, not a tensor")
        if argument["kind"] == "float" and "float" not in dtype:
            raise RefusalError(
                f"`{name}` of `{self._function.name}` is a number of {dtype}, which would drop the "
                "fraction of a float",
                file=self._function.file,
                line=self._function.line,
                hint="declare a float in the kernel, or an `int` in the schema",
            )
        if "float" in dtype:
            kind, cxx = _FLOATS.get(dtype, ("fp32", "float"))
            return self._add(EntryArgument(name, "float", kind, cxx))
        if dtype == "bool":
            return self._add(EntryArgument(name, "int", "u1", "bool"))
        if dtype not in _INTEGERS:
            raise RefusalError(f"`{name}` of `{self._function.name}` is a number of {dtype}")
        kind = f"{'u' if dtype.startswith('u') else 'i'}{dtype.lstrip('uint')}"
        return self._add(EntryArgument(name, "int", kind, _INTEGERS[dtype]))

    def _shape(self, name: str, buffer: Any) -> None:
        argument = self._given[name]
        dims = argument["dims"]
        if dims is not None and len(dims) != len(buffer.shape):
            raise RefusalError(
                f"`{name}` of `{self._function.name}` has {len(buffer.shape)} dimensions, but "
                f"{len(dims)} in build.toml"
            )
        if dims is None:
            # Pass a tensor of any shape as one with a single dimension.
            if len(buffer.shape) != 1:
                raise RefusalError(
                    f"`{self._function.name}`: the number of dimensions of `{name}` is unknown",
                    hint="write them in `shapes`; a kernel that takes one dimension accepts any "
                    "tensor",
                )
            self._dimension(f"{name}.numel", f"{name}.numel()", buffer.shape[0], "")
        for axis, size in enumerate(buffer.shape if dims is not None else ()):
            self._dimension(f"{name}.shape.{axis}", f"{name}.shape[{axis}]", size, dims[axis])
        if _is_compact(buffer):
            if not argument["contiguous"]:
                raise RefusalError(
                    f"`{name}` of `{self._function.name}` must be contiguous",
                    hint=f'write `contiguous = ["{name}"]`, or make it a `T.StridedTensor`',
                )
            return
        for axis, stride in enumerate(buffer.strides):
            self._dimension(f"{name}.stride.{axis}", f"{name}.stride({axis})", stride, "")

    def _dimension(self, name: str, title: str, size: Any, dimension: str) -> None:
        """Pass the value of a dynamic dimension; check fixed and repeated ones."""
        if hasattr(size, "name"):
            kind, cxx = ("i64", "int64_t") if str(size.dtype) == "int64" else ("i32", "int32_t")
            known = self._first.get(size.name)
            # Sizes with one name in the op need no check here: the launcher has compared them.
            if known is None or not dimension or dimension != known[1]:
                mine = self._add(EntryArgument(name, "int", kind, cxx))
                self._first.setdefault(size.name, (mine, dimension))
                if known is not None:
                    self._checks.append(DimensionCheck(mine, known[0], title))
        elif not hasattr(size, "value"):
            raise RefusalError(
                f"`{title}` of `{self._function.name}` is {size}, but a dimension must be a "
                "number or a separate variable",
                hint="name the dimension with another `T.dynamic`",
            )
        # The launcher has compared a size that `shapes` fixes to this number.
        elif dimension != str(int(size)):
            mine = self._add(EntryArgument(name, "int", "i64", "int64_t"))
            self._checks.append(DimensionCheck(mine, str(int(size)), title))


def _is_compact(buffer: Any) -> bool:
    """True if the strides are those of a contiguous tensor of this shape."""
    if not len(buffer.strides):
        return True
    analyzer, wanted = tilelang.tvm.arith.Analyzer(), 1
    for size, stride in reversed(list(zip(buffer.shape, buffer.strides, strict=True))):
        if not analyzer.can_prove_equal(stride, wanted):
            return False
        wanted = wanted * size
    return True


def _declared(text: str) -> Iterator[tuple[str, str]]:
    """Yield type and name of each parameter of `call`, except the stream."""
    match = _CALL.search(text)
    if match is None:
        raise RefusalError("TileLang wrote no function `call`")
    for declaration in filter(None, (part.strip() for part in match["list"].split(","))):
        kind, _, name = declaration.replace("*", "* ").rpartition(" ")
        if not kind.startswith(_STREAMS):
            yield kind.replace("__restrict__", "").strip(), name
