"""A captured function: its ops, and what the Python that joins them needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbuild.ops.dialects import DIALECTS
from kbuild.ops.section import DslSection, read_section
from kbuild.plan.plan import AotKernel
from kbuild.plugins.capture.description import kernels_file
from kbuild.plugins.capture.languages import captured_language
from kbuild.plugins.capture.questions import PREFIX, asked_by

_KERNEL_TABLES = ("args", "constants", "configs")
"""Keys of a launch whose tables have names of the kernel."""
_ARGUMENTS = ("argument", "either")
"""Kinds of values that are arguments, in some calls at least."""


@dataclass(frozen=True)
class CapturedOp:
    """An op, and where its arguments and results belong."""

    name: str
    section: Mapping[str, Any]
    shapes: Mapping[str, Sequence[str]]
    """Shapes of the results, in the names of the runs."""
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]
    """Origin of each of the function's values: `result` and its name, `argument` and its name, or
    `none`; or `either` with a result, the argument that is returned in calls without it, and the
    condition in Python under which it is the result, if that is not None in the other calls."""

    def to_json(self) -> dict[str, Any]:
        """The entry of the op in the description of its wrapper."""
        asked = [name for name in self.arguments if name.startswith(PREFIX)]
        return {
            "name": self.name,
            "arguments": list(self.arguments),
            "results": list(self.results),
            "outputs": [list(pair) for pair in self.outputs],
            **({"asked": {name: asked_by(name)[1] for name in asked}} if asked else {}),
        }


@dataclass(frozen=True)
class CapturedWrapper:
    """A function with its ops."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    """Parameters of the Python function: name and default, empty without one."""
    forward: CapturedOp
    backward: CapturedOp | None
    saved: tuple[str, ...]
    """Results of the forward op that only the backward op uses."""
    all_parameters: tuple[str, ...]
    """All parameters of the Python function, also those that are not arguments of the op."""
    tensors: tuple[str, ...]
    """Parameters that are tensors."""
    outputs: tuple[str, ...]
    """Names of the function's values."""
    sizes: Mapping[str, tuple[str, int]]
    """Arguments of the backward op that are sizes of tensors of the forward op."""
    without_gradient: tuple[str, ...] = ()
    """Results of the forward op that the author marked as not differentiable."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """Result of the forward op -> the argument that it is copied to, and that is returned."""
    structure: str = ""
    """Python expression that the function returns, with a placeholder for each value."""
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Named tuples of the structure -> their fields."""
    refused_gradients: tuple[str, ...] = ()
    """Parameters with a gradient that is not captured: calls that record it are refused."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Argument of the ops -> the parameter of the function, where it has another name."""
    kernels: str = ""
    """Source of the kernels, where a DSL has written them."""

    def to_json(self) -> dict[str, Any]:
        """The wrapper as `captured/*.json` stores it."""
        forward = self._inner(_distinct(self.forward, is_plain=self._is_plain))
        backward = _distinct(self.backward) if self.backward else None
        ops = [op.section for op in (forward, backward) if op is not None]
        return {
            "name": self.name,
            "schema": self.schema,
            "parameters": [list(pair) for pair in self.parameters],
            "all_parameters": list(self.all_parameters),
            "tensors": list(self.tensors),
            "outputs": list(self.outputs),
            "without_gradient": list(self.without_gradient),
            "copied": dict(self.copied),
            "structure": self.structure,
            "classes": {name: list(fields) for name, fields in self.classes.items()},
            "refused_gradients": list(self.refused_gradients),
            "renamed": dict(self.renamed),
            "forward": forward.to_json(),
            "backward": {**backward.to_json(), "sizes": dict(self.sizes)} if backward else None,
            "ops": ops,
        }

    def _inner(self, forward: CapturedOp) -> CapturedOp:
        """The forward op with another name, where the op that users call asks for arguments."""
        asks = any(name.startswith(PREFIX) for name in forward.arguments)
        if not asks or forward.name != self.name:
            return forward
        name = f"_{self.name}_asked"
        schema = name + forward.section["schema"].removeprefix(self.name)
        return replace(forward, name=name, section={**forward.section, "schema": schema})

    @property
    def _is_plain(self) -> bool:
        """True if the op returns exactly the function's values, each once and none an argument."""
        own = [place for place in self.forward.outputs[: len(self.outputs)] if place[0] != "none"]
        return all(place[0] == "result" for place in own) and len({*own}) == len(own)

    @property
    def schema(self) -> str:
        """Schema of the op that users call."""
        own = str(self.forward.section["schema"]).partition("(")[2].rpartition(" -> ")[0]
        # Users do not pass what is asked for at each call.
        own = re.sub(rf"(, )?\w+ {PREFIX}\w+=[^,)]+", "", own)
        given = self.forward.outputs[: len(self.outputs)]
        maybe = self.forward.section.get("returned", {})
        copied = set(self.copied.values())
        # The op's schema has used the first letters for arguments that it writes to.
        letters = iter("abcdefghijklmnopqrstuvwxyz"[own.count("!)") :])
        for name in dict.fromkeys((*copied, *(_argument(n) for n in given if n[0] in _ARGUMENTS))):
            alias = f"({next(letters)}{'!' * (name in copied)})"
            own = re.sub(rf"\bTensor(\??) {name}\b", rf"Tensor{alias}\1 {name}", own)
        values = []
        for kind, *names in given:
            if kind == "none":
                continue
            if kind == "result" and names[0] not in self.copied:
                values.append(f"Tensor{'?' * (names[0] in maybe)}")
                continue
            argument = self.copied[names[0]] if kind == "result" else _argument((kind, *names))
            alias, optional = re.findall(rf"Tensor(\(\w!?\))(\??) {argument}\b", own)[0]
            values.append(f"Tensor{alias}{optional * (kind == 'argument')}")
        result = values[0] if len(values) == 1 else f"({', '.join(values)})"
        return f"{self.name}({own} -> {result}"


def _argument(place: Sequence[str]) -> str:
    """The argument that a value is in some calls."""
    return place[1] if place[0] == "argument" else place[2]


def _distinct(op: CapturedOp, *, is_plain: bool = True) -> CapturedOp:
    """The op with other names for arguments that constants of its kernels are called like.

    It is then not the op that users call, whose arguments are those of the function. Nor is it
    where it does not return what the function does.
    """
    launches = [step for step in op.section["launch"] if "function" in step]
    rows = [row for step in launches for row in step.get("configs", ()) if isinstance(row, dict)]
    constants = {name for step in launches for name in step.get("constants", ())}
    shared = (constants | {name for row in rows for name in row}) & {*op.arguments}
    if not shared and (is_plain or op.name.startswith("_")):
        return op
    name = op.name if op.name.startswith("_") else f"_{op.name}_forward"
    section = dict(op.section)
    if shared:
        pattern = re.compile(rf"\b(?<!\.)({'|'.join(map(re.escape, sorted(shared)))})\b(?!')")
        section = _with_arguments(section, pattern)
    section["schema"] = name + section["schema"][section["schema"].index("(") :]
    return replace(op, name=name, section=section)


def _with_arguments(value: Any, pattern: re.Pattern[str], *, keeps_keys: bool = False) -> Any:
    """A section with `name_argument` in its expressions for each `name` of the pattern."""
    if isinstance(value, dict):
        return {
            key if keeps_keys else pattern.sub(r"\1_argument", key): _with_arguments(
                inner, pattern, keeps_keys=key in _KERNEL_TABLES or keeps_keys
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_arguments(inner, pattern, keeps_keys=keeps_keys) for inner in value]
    return pattern.sub(r"\1_argument", value) if isinstance(value, str) else value


def captured_kernel(
    kernel: str, section: DslSection, ops: Sequence[Mapping[str, Any]], name: str
) -> AotKernel:
    """The kernel that a build makes of a function of the section `kernel`, for one arch."""
    captured_as = captured_language(section.language).captured_as
    table = {**section.table, "src": [*section.sources], "op": [*ops]}
    if captured_as not in ("", section.language):
        needed = DIALECTS.get(captured_as).distributions
        pins = [pin for pin in section.toolchain if pin.partition("==")[0] in needed]
        table |= {"language": captured_as, "toolchain": pins}
        table["src"] = [kernels_file(kernel, name)]
    return AotKernel(read_section(f"{kernel}_{name}", table, origin=name), ("sm_90",), "cuda13")
