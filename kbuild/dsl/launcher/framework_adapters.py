"""How Torch and TVM-FFI call a launcher; everything that a launcher knows of either is here.

A framework has headers under `templates/launcher` that define the same names:
`<stem>_tensor.h`, `<stem>_memory.h`, `<stem>_object.h`, and `<stem>_ops.cpp.j2`, the ops and
how they are found.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from kbuild.dsl.launcher.cxx_text import CXX_TYPES, cxx_string, is_required_number, member_of
from kbuild.ops.fake_kernels import needed_by_shapes
from kbuild.ops.model import OpSpec, Projection
from kbuild.ops.schema.model import SchemaArgument, Type
from kbuild.system import rendering


class FrameworkAdapter(ABC):
    """A framework, as a launcher sees it."""

    name: str
    title: str
    """What its users call it."""
    stem: str
    """Its headers are `<stem>_*.h`."""
    includes: tuple[str, ...]
    """Headers of its own that every launcher includes."""

    def header(self, part: str) -> str:
        """One of the host's headers."""
        return rendering.read(f"launcher/{self.stem}_{part}.h")

    def text(self, **values: Any) -> str:
        """The ops of a launcher, and the end of its source."""
        return rendering.render(f"launcher/{self.stem}_ops.cpp.j2", **values)

    def registration(self, *, module: bool) -> str:  # noqa: ARG002 - not every host has one
        """What comes before everything else."""
        return ""

    @abstractmethod
    def validate(self, op: OpSpec) -> None:
        """Refuse what the host cannot offer.

        Raises:
            ValueError: it cannot.
        """

    @abstractmethod
    def constructor(self, op: OpSpec) -> Iterator[str]:
        """The constructor of `Call_NAME`: it takes the arguments."""

    @abstractmethod
    def op(self, op: OpSpec, returning: Mapping[str, str]) -> Mapping[str, object]:
        """An op's values for `<stem>_ops.cpp.j2`.

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
        """The same for an op that returns some of the results.

        Raises:
            ValueError: there can be no such op.
        """
        raise ValueError(
            f"`{projection.name}` is a projection of an op, which {self.title} does not know"
        )


class TorchAdapter(FrameworkAdapter):
    """Ops with boxed arguments."""

    name = "torch"
    title = "Torch"
    stem = "torch"
    includes = ("torch/csrc/stable/c/shim.h",)

    def registration(self, *, module: bool) -> str:
        """The Python module, for extensions without bindings of their own."""
        text = rendering.read("project/registration.h").replace("#pragma once\n", "")
        return text if module else ""

    def validate(self, op: OpSpec) -> None:
        """Torch takes every op."""

    def constructor(self, op: OpSpec) -> Iterator[str]:
        """From the stack of a boxed call."""
        yield f"explicit Call_{op.name}(const StableIValue* stack) {{"
        for at, argument in enumerate(op.schema.arguments):
            yield f"  {_take_from_stack(argument, f'stack[{at}]')}"
        yield "}"

    def op(self, op: OpSpec, returning: Mapping[str, str]) -> Mapping[str, object]:
        """Its schema, its launches, and what happens where no image fits."""
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
        """The same, with fewer results."""
        if op.fallback == "jit":
            raise ValueError(f"`{projection.name}` cannot fall back on the DSL of `{op.name}`")
        results = [(name, name in op.may_be_none, returning[name]) for name in projection.results]
        schema = cxx_string(str(projection.schema))
        own = {"name": projection.name, "schema": schema, "results": results}
        return {**self.op(op, returning), **own}


def _take_from_stack(argument: SchemaArgument, raw: str) -> str:
    """Takes an argument from the stack."""
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
        """There is no DSL to fall back on where Torch is not needed, and every result is one.

        The runtime does not pass `torch.device` on, which `ops` would get.
        """
        for argument in op.schema.arguments:
            if argument.type.name == "Device":
                raise ValueError(
                    f"`{op.name}` takes the device `{argument.name}`, which TVM-FFI cannot pass"
                )
        if op.returned:
            name = op.returned[0][0]
            raise ValueError(f"`{op.name}` returns `{name}` or None, which TVM-FFI cannot do")
        if op.aten or op.views:
            raise ValueError(f"`{op.name}` has ATen calls or views, which TVM-FFI cannot run")
        if op.fallback == "jit":
            raise ValueError(f'`{op.name}` has `fallback = "jit"`, which TVM-FFI cannot run')

    def constructor(self, op: OpSpec) -> Iterator[str]:
        """From arguments, and results when these are given."""
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
        """Its launches, its results, and a description of both."""
        return {
            "name": op.name,
            "launches": [f"{op.name}_{index}" for index in range(len(op.launches))],
            "results": op.results,
            "many": len(op.results) > 1,
            "asks_device": "sm_count()" in needed_by_shapes(op),
            "metadata": cxx_string(json.dumps({"type_schema": json.dumps(_signature(op))})),
        }


def _take_from_args(argument: SchemaArgument, value: str) -> str:
    """Takes an argument from those of the call."""
    kind, optional = argument.type, str(argument.type.is_optional).lower()
    member = member_of(argument)
    if kind.is_tensor_list:
        return _take_tensors(argument, value)
    function = "take_list" if kind.is_list else "take"
    asked = kind.is_list or kind.name in ("str", "ScalarType")
    more = f", {optional}" if asked else ""
    return f"{function}(op, {cxx_string(argument.name)}, {member}, {value}{more});"


def _signature(op: OpSpec) -> Mapping[str, object]:
    """As the macro `TVM_FFI_DLL_EXPORT_TYPED_FUNC` describes a function with metadata."""
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
