"""Calling conventions of Torch and TVM-FFI; nothing else of a launcher depends on the framework.

A framework has templates in `templates/launcher` that define the same names: `<stem>_tensor.h`,
`<stem>_memory.h`, `<stem>_object.h`, and `<stem>_ops.cpp.j2`, which defines the ops and how they
are found.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.dsl.launcher.cxx_text import CXX_TYPES, cxx_string, is_required_number, member_of
from kbuild.ops.fake_kernels import needed_by_shapes
from kbuild.ops.model import OpSpec, Projection
from kbuild.ops.rules import tvm_ffi_issues
from kbuild.ops.schema.model import SchemaArgument, Type
from kbuild.system import rendering


class FrameworkAdapter(ABC):
    """Framework-specific parts of a launcher."""

    name: str
    title: str
    """Name of the framework in messages."""
    stem: str
    """Prefix of the framework's templates: `<stem>_*.h`."""
    includes: tuple[str, ...]
    """Headers of the framework that every launcher includes."""

    def header(self, part: str) -> str:
        """Text of one of the framework's templates."""
        return rendering.read(f"launcher/{self.stem}_{part}.h")

    def text(self, **values: Any) -> str:
        """C++ code that defines the ops, and the end of the source."""
        return rendering.render(f"launcher/{self.stem}_ops.cpp.j2", **values)

    def registration(self, *, module: bool) -> str:  # noqa: ARG002 - not every host has one
        """C++ code at the very beginning of the source."""
        return ""

    @abstractmethod
    def validate(self, op: OpSpec) -> None:
        """Raise ValueError for an op that the framework does not support.

        Raises:
            ValueError: the framework does not support it.
        """

    @abstractmethod
    def constructor(self, op: OpSpec) -> Iterator[str]:
        """Yield the constructor of `Call_NAME`, which reads the arguments."""

    @abstractmethod
    def op(self, op: OpSpec, returning: Mapping[str, str]) -> Mapping[str, object]:
        """Values of an op for the template `<stem>_ops.cpp.j2`.

        Args:
            op: the op.
            returning: result -> statements before it is returned.
        """

    def projection(
        self,
        op: OpSpec,  # noqa: ARG002 - for Torch
        projection: Projection,
        returning: Mapping[str, str],  # noqa: ARG002
    ) -> Mapping[str, object]:
        """Values of an op that returns some of the results.

        Raises:
            ValueError: the framework has no such ops.
        """
        raise ValueError(
            f"`{projection.name}` is a projection of an op, which {self.title} does not know"
        )


class TorchAdapter(FrameworkAdapter):
    """Torch's stable ABI: ops with boxed arguments."""

    name = "torch"
    title = "Torch"
    stem = "torch"
    includes = ("torch/csrc/stable/c/shim.h",)

    def registration(self, *, module: bool) -> str:
        """C++ code of the Python module, for extensions without bindings of their own."""
        # The header becomes part of a source, in which GCC warns of `#pragma once`.
        text = rendering.read("project/registration.h").replace("#pragma once\n", "")
        return text if module else ""

    def validate(self, op: OpSpec) -> None:
        """Torch takes every op."""

    def constructor(self, op: OpSpec) -> Iterator[str]:
        """Yield the constructor that reads arguments from the stack of a boxed call."""
        yield f"explicit Call_{op.name}(const StableIValue* stack) {{"
        for at, argument in enumerate(op.schema.arguments):
            yield f"  {_take_from_stack(argument, f'stack[{at}]')}"
        yield "}"

    def op(self, op: OpSpec, returning: Mapping[str, str]) -> Mapping[str, object]:
        """Values of an op: schema, launches, results, and the toolchain of its fallback."""
        arguments = op.schema.arguments
        return {
            "name": op.name,
            "call": op.name,
            "schema": cxx_string(str(op.schema)),
            "steps": [f"{kind}_{op.name}_{index}" for kind, index in op.steps],
            "results": [(name, name in op.may_be_none, returning[name]) for name in op.results],
            "owned": [
                *(
                    member_of(argument)
                    for argument in arguments
                    if not is_required_number(argument)
                ),
                *(f"t_{tensor.name}" for tensor in op.schema.items),
            ],
            "fallback": cxx_string(" ".join(op.toolchain)) if op.fallback == "jit" else "",
        }

    def projection(
        self, op: OpSpec, projection: Projection, returning: Mapping[str, str]
    ) -> Mapping[str, object]:
        """Values of a projection: those of the op, with its own schema and fewer results."""
        if op.fallback == "jit":
            raise ValueError(f"`{projection.name}` cannot fall back on the DSL of `{op.name}`")
        results = [(name, name in op.may_be_none, returning[name]) for name in projection.results]
        schema = cxx_string(str(projection.schema))
        own = {"name": projection.name, "schema": schema, "results": results}
        return {**self.op(op, returning), **own}


def _take_from_stack(argument: SchemaArgument, raw: str) -> str:
    """Statement that reads an argument from the stack."""
    member, kind = member_of(argument), argument.type
    if kind.is_tensor:
        return f"take({member}, {raw});"
    if kind.is_tensor_list:
        return _take_tensors(argument, raw)
    if is_required_number(argument):
        return f"{member} = value_of<{CXX_TYPES.get(kind.name, 'Int')}>({raw});"
    optional = str(kind.is_optional).lower()
    suffix = f"_list<{CXX_TYPES.get(kind.name, 'Int')}>" if kind.is_list else ""
    return f"take{suffix}(op, {cxx_string(argument.name)}, {member}, {raw}, {optional});"


def _take_tensors(argument: SchemaArgument, value: str) -> str:
    names = f"{cxx_string(argument.name)}, {member_of(argument)}, t_{argument.name}"
    return f"take_tensors(op, {names}, {value});"


_TENSOR = {"type": "ffi.Tensor"}


class TvmFfiAdapter(FrameworkAdapter):
    """Functions that `tvm_ffi.load_module` finds."""

    name = "tvm-ffi"
    title = "TVM-FFI"
    stem = "tvm_ffi"
    includes = ("tvm/ffi/c_api.h", "tvm/ffi/extra/c_env_api.h")

    def validate(self, op: OpSpec) -> None:
        """Raise ValueError for an op that TVM-FFI does not support."""
        for issue in tvm_ffi_issues(op):
            raise ValueError(f"`{op.name}`: {issue.message}")

    def constructor(self, op: OpSpec) -> Iterator[str]:
        """Yield the constructor that reads arguments, and results when the caller passes them."""
        arguments = op.schema.arguments
        count, results = len(arguments), len(op.results)
        allowed = f"count != {count}" + (f" && count != {count + results}" if results else "")
        signature = f"op, {cxx_string(str(op.schema))}, {count}, {results}, count"
        yield f"Call_{op.name}(const TVMFFIAny* args, int32_t count) {{"
        yield f"  if (KBUILD_UNLIKELY({allowed})) wrong_count({signature});"
        for at, argument in enumerate(arguments):
            yield f"  {_take_from_args(argument, f'args[{at}]')}"
        if results:
            yield f"  if (count == {count}) return;"
        for at, name in enumerate(op.results):
            yield f"  take(op, {cxx_string(name)}, t_{name}, args[{count + at}]);"
        yield "}"

    def op(self, op: OpSpec, returning: Mapping[str, str]) -> Mapping[str, object]:  # noqa: ARG002
        """Values of an op: launches, results, and its signature as metadata."""
        return {
            "name": op.name,
            "launches": [f"{op.name}_{index}" for index in range(len(op.launches))],
            "results": op.results,
            "many": len(op.results) > 1,
            "asks_device": "sm_count()" in needed_by_shapes(op),
            # TVM-FFI expects the schema as a JSON text within the JSON object.
            "metadata": cxx_string(json.dumps({"type_schema": json.dumps(_signature(op))})),
        }


def _take_from_args(argument: SchemaArgument, value: str) -> str:
    """Statement that reads an argument from those of the call."""
    kind, optional = argument.type, str(argument.type.is_optional).lower()
    member = member_of(argument)
    if kind.is_tensor_list:
        return _take_tensors(argument, value)
    function = "take_list" if kind.is_list else "take"
    asked = kind.is_list or kind.name in ("str", "ScalarType")
    more = f", {optional}" if asked else ""
    return f"{function}(op, {cxx_string(argument.name)}, {member}, {value}{more});"


def _signature(op: OpSpec) -> Mapping[str, object]:
    """Signature in the format of TVM-FFI's macro `TVM_FFI_DLL_EXPORT_TYPED_FUNC`."""
    returned: Mapping[str, object] = {"type": "None"}
    if op.results:
        many = len(op.results) > 1
        returned = {"type": "ffi.Array", "args": [_TENSOR]} if many else _TENSOR
    parameters = [_kind(argument.type) for argument in op.schema.arguments]
    arguments = {"return": [returned], "params": parameters}
    return {"type": "ffi.Function", "named_args": arguments}


_TYPES = {"float": "float", "bool": "bool", "str": "ffi.String", "ScalarType": "DataType"}


def _kind(kind: Type) -> Mapping[str, object]:
    if kind.is_tensor_list:
        item = {"type": "Optional", "args": [_TENSOR]} if kind.suffixes[0] == "?" else _TENSOR
        return {"type": "ffi.Array", "args": [item]}
    word = "DLTensor*" if kind.is_tensor else _TYPES.get(kind.name, "int")
    plain: Mapping[str, object] = {"type": word}
    if kind.is_list:
        plain = {"type": "ffi.Array", "args": [plain]}
    return {"type": "Optional", "args": [plain]} if kind.is_optional else plain
