"""TVM-FFI calls a launcher through functions of C, one for each op.

Such a function takes all arguments of the op's schema in their order, keyword-only ones as well,
and returns new results; or it takes the results behind the arguments, made by the caller, and
returns None.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from kbuild.languages.launcher.hosts import Host
from kbuild.languages.launcher.text import literal, member_of
from kbuild.languages.schema import Argument, Type
from kbuild.languages.spec import OpSpec
from kbuild.languages.spec.fake import needed_by_shapes

_TENSOR = {"type": "ffi.Tensor"}
_VIEW = {"type": "DLTensor*"}


class TvmFfiHost(Host):
    """Functions that `tvm_ffi.load_module` finds."""

    name = "tvm-ffi"
    words = "TVM-FFI"
    stem = "tvm_ffi"
    includes = ("tvm/ffi/c_api.h", "tvm/ffi/extra/c_env_api.h")

    def judge(self, op: OpSpec) -> None:
        """There is no DSL to fall back on where Torch is not needed, and every result is one.

        The runtime does not pass `torch.device` on, which `ops` would get.
        """
        for argument in op.schema.arguments:
            if argument.type.name == "Device":
                raise ValueError(f"`{op.name}` takes the device `{argument.name}`; TVM-FFI cannot")
        if op.returned:
            name = op.returned[0][0]
            raise ValueError(f"`{op.name}` returns `{name}` or None, which TVM-FFI cannot do")
        if op.fallback == "jit":
            raise ValueError(f'`{op.name}` has `fallback = "jit"`, which TVM-FFI cannot run')

    def constructor(self, op: OpSpec) -> Iterator[str]:
        """From arguments, and results when these are given."""
        arguments = op.schema.arguments
        count, results = len(arguments), len(op.results)
        allowed = f"count != {count}" + (f" && count != {count + results}" if results else "")
        signature = f"op, {literal(str(op.schema))}, {count}, {results}, count"
        yield f"Call_{op.name}(const TVMFFIAny* args, int32_t count) {{"
        yield f"  if (KBUILD_UNLIKELY({allowed})) wrong_count({signature});"
        for at, argument in enumerate(arguments):
            yield f"  {_taken(argument, f'args[{at}]')}"
        if results:
            yield f"  if (count == {count}) return;"
        for at, name in enumerate(op.results):
            yield f"  take(op, {literal(name)}, t_{name}, args[{count + at}]);"
        yield "}"

    def op(self, op: OpSpec) -> Mapping[str, object]:
        """Its launches, its results, and a description of both."""
        return {
            "name": op.name,
            "launches": [f"{op.name}_{index}" for index in range(len(op.launches))],
            "results": op.results,
            "many": len(op.results) > 1,
            "asks_device": "sm_count()" in needed_by_shapes(op),
            "metadata": literal(json.dumps({"type_schema": json.dumps(_signature(op))})),
        }


def _taken(argument: Argument, given: str) -> str:
    """Takes an argument from those of the call."""
    kind, optional = argument.type, str(argument.type.is_optional).lower()
    member = member_of(argument)
    if kind.is_tensor_list:
        return f"take_tensors(op, {literal(argument.name)}, {member}, t_{argument.name}, {given});"
    function = "take_list" if kind.is_list else "take"
    asked = kind.is_list or kind.name in ("str", "ScalarType")
    more = f", {optional}" if asked else ""
    return f"{function}(op, {literal(argument.name)}, {member}, {given}{more});"


def _signature(op: OpSpec) -> Mapping[str, object]:
    """As the macro `TVM_FFI_DLL_EXPORT_TYPED_FUNC` describes a function with metadata."""
    returned: Mapping[str, object] = {"type": "None"}
    if op.results:
        many = len(op.results) > 1
        returned = {"type": "ffi.Array", "args": [_TENSOR]} if many else _TENSOR
    parameters = [_kind(argument.type) for argument in op.schema.arguments]
    return {
        "type": "ffi.Function",
        "named_args": {"return": [returned], "params": parameters},
    }


_TYPES = {"float": "float", "bool": "bool", "str": "ffi.String", "ScalarType": "DataType"}


def _kind(kind: Type) -> Mapping[str, object]:
    if kind.is_tensor_list:
        item = {"type": "Optional", "args": [_TENSOR]} if kind.suffixes[0] == "?" else _TENSOR
        return {"type": "ffi.Array", "args": [item]}
    plain: Mapping[str, object] = (
        _VIEW if kind.is_tensor else {"type": _TYPES.get(kind.name, "int")}
    )
    if kind.is_list:
        plain = {"type": "ffi.Array", "args": [plain]}
    return {"type": "Optional", "args": [plain]} if kind.is_optional else plain
