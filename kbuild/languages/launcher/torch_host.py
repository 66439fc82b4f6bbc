"""Torch calls a launcher through its dispatcher, as ops of the stable ABI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbuild.generate import templates
from kbuild.languages.launcher.hosts import Host
from kbuild.languages.launcher.text import CXX_TYPES, literal
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
            if argument.type.is_tensor:
                yield f"  take(t_{argument.name}, stack[{at}]);"
            else:
                kind = CXX_TYPES.get(argument.type.name, "Int")
                yield f"  a_{argument.name} = value_of<{kind}>(stack[{at}]);"
        yield "}"

    def op(self, op: OpSpec) -> Mapping[str, object]:
        """Its schema, its launches, and what happens where no image fits."""
        return {
            "name": op.name,
            "schema": literal(str(op.schema)),
            "launches": [f"{op.name}_{index}" for index in range(len(op.launches))],
            "results": op.results,
            "tensors": op.inputs,
            "fallback": literal(" ".join(op.toolchain)) if op.fallback == "jit" else "",
        }
