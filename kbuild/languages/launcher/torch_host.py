"""Torch calls a launcher through its dispatcher, as ops of the stable ABI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbuild.generate import templates
from kbuild.languages.launcher.hosts import Host
from kbuild.languages.launcher.text import CXX_TYPES, is_plain, literal, member_of
from kbuild.languages.schema import Argument
from kbuild.languages.spec import OpSpec


class TorchHost(Host):
    """Ops with boxed arguments."""

    name = "torch"
    words = "Torch"
    stem = "torch"
    includes = ("torch/csrc/stable/c/shim.h",)

    def registration(self, *, module: bool) -> str:
        """The Python module, for extensions without bindings of their own."""
        return (
            templates.read("project/registration.h").replace("#pragma once\n", "") if module else ""
        )

    def judge(self, op: OpSpec) -> None:
        """Torch takes every op."""

    def constructor(self, op: OpSpec) -> Iterator[str]:
        """From the stack of a boxed call."""
        yield f"explicit Call_{op.name}(const StableIValue* stack) {{"
        for at, argument in enumerate(op.schema.arguments):
            yield f"  {_taken(argument, f'stack[{at}]')}"
        yield "}"

    def op(self, op: OpSpec) -> Mapping[str, object]:
        """Its schema, its launches, and what happens where no image fits."""
        return {
            "name": op.name,
            "schema": literal(str(op.schema)),
            "launches": [f"{op.name}_{index}" for index in range(len(op.launches))],
            "results": [(name, name in op.may_be_none) for name in op.results],
            "owned": [
                *(member_of(one) for one in op.schema.arguments if not is_plain(one)),
                *(f"t_{one.name}" for one in op.schema.items),
            ],
            "fallback": literal(" ".join(op.toolchain)) if op.fallback == "jit" else "",
        }


def _taken(argument: Argument, raw: str) -> str:
    """Takes an argument from the stack."""
    member, kind = member_of(argument), argument.type
    if kind.is_tensor:
        return f"take({member}, {raw});"
    if kind.is_tensor_list:
        return f"take_tensors(op, {literal(argument.name)}, {member}, t_{argument.name}, {raw});"
    if is_plain(argument):
        return f"{member} = value_of<{CXX_TYPES.get(kind.name, 'Int')}>({raw});"
    optional = str(kind.is_optional).lower()
    told = f"_list<{CXX_TYPES.get(kind.name, 'Int')}>" if kind.is_list else ""
    return f"take{told}(op, {literal(argument.name)}, {member}, {raw}, {optional});"
