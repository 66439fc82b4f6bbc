"""The steps of the paths of a function, and all paths merged: each step once, with its paths."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PATH_WALKED = "kbuild walked a path: "
"""Beginning of the line that a worker prints after each path; the rest describes the path."""


class CaptureError(BaseException):
    """The function cannot be written as ops; the message, and the author's line.

    An `except Exception` of the author's must not hide it.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.message, self.place = message, place


@dataclass(frozen=True)
class CapturedArgument:
    """An argument of an op."""

    name: str
    kind: str
    """Type in the schema: `Tensor`, `Tensor?`, `float`, `int`, `bool`, `str`."""
    sizes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    """Dtypes that the table lists for a tensor; a `Configuration` has the one of its calls."""
    default: str = ""


@dataclass(frozen=True)
class Configuration:
    """Facts that hold for a whole run: dtypes, which tensors are given, values of options."""

    dtypes: Mapping[str, str]
    answers: tuple[tuple[str, bool], ...]
    """Questions with their answers, which distinguish the configuration from others."""


@dataclass(frozen=True)
class Path:
    """One path of an op: the forward pass or the backward pass of a run."""

    configuration: Configuration
    answers: tuple[tuple[str, bool], ...]
    """Questions with their answers, in order."""
    steps: Sequence[Mapping[str, Any]]
    buffers: Sequence[Mapping[str, Any]]
    outputs: Sequence[Any]
    hints: Mapping[str, float]
    raises: str = ""
    place: str = ""


@dataclass
class Step:
    """A step of the op."""

    step: Mapping[str, Any]
    """The step with the op's names of tensors, from the first path that has it."""
    variants: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Path -> its own constants and options."""

    @property
    def leaves(self) -> set[int]:
        """Paths that take the step."""
        return set(self.variants)


@dataclass
class Buffer:
    """A tensor that the op makes."""

    name: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    dtypes: dict[int, str] = field(default_factory=dict)
    """Path -> dtype."""
    fill: Any = None
    produced: bool = False
    """A step produces it."""
    aliases: str = ""
    line: str = ""


@dataclass
class Program:
    """All paths of an op."""

    paths: Sequence[Path]
    steps: list[Step] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    outputs: dict[int, list[Any]] = field(default_factory=dict)
    """Path -> its results, with the op's names."""

    def taken(self) -> Iterator[tuple[int, Path]]:
        """Paths that do not end in an error of the author's."""
        return ((at, path) for at, path in enumerate(self.paths) if not path.raises)

    def cast_everywhere(self, position: int) -> None:
        """Copy `x` where `x.to(dtype)` is `x` itself: the result is one tensor on all paths."""
        outputs = self.outputs
        roots = {known[position]["tensor"] for known in outputs.values() if known[position]}
        for step in self.steps:
            if step.step.get("aten") != "_to_copy":
                continue
            (copy,), (value, _, *options) = step.step["results"], step.step["arguments"]
            if not {copy, value["tensor"]} <= roots:
                continue
            for leaf, known in outputs.items():
                own = known[position]
                if own and own["tensor"] == value["tensor"]:
                    arguments = [value, {"dtype": own["dtype"]}, *options]
                    step.variants[leaf] = {**step.step, "arguments": arguments}
                    self.buffers[copy].dtypes[leaf] = own["dtype"]
                    known[position] = {**own, "tensor": copy}

    def has_intermediate_results(self) -> bool:
        """True if a tensor that one path returns exists on another path beside the returned one."""
        for values in zip(*self.outputs.values(), strict=True):
            roots = {value["tensor"] for value in values if value} & self.buffers.keys()
            if any(sum(leaf in self.buffers[r].dtypes for r in roots) > 1 for leaf in self.outputs):
                return True
        return False


def merged(paths: Sequence[Path], inputs: Sequence[str]) -> Program:
    """The paths of an op as one program.

    No buffer has the name of one of `inputs`, the tensor arguments of the op.
    """
    program = _merged(paths, inputs, are_results_apart=False)
    # A result cannot hold two tensors of one path: merge again, with names for results alone.
    if program.has_intermediate_results():
        return _merged(paths, inputs, are_results_apart=True)
    return program


def _merged(paths: Sequence[Path], inputs: Sequence[str], *, are_results_apart: bool) -> Program:
    program = Program(paths)
    names = _BufferNames(
        program.buffers, {*inputs}, _of_several_dtypes(paths), are_results_apart=are_results_apart
    )
    order: list[str] = []
    known: dict[str, Step] = {}
    for leaf, path in program.taken():
        renamed = names.of(leaf, path)
        keys = []
        for step in path.steps:
            own = with_names(step, renamed)
            key = _skeleton(own)
            while key in keys:
                key += "'"  # the same once more
            keys.append(key)
            known.setdefault(key, Step(own)).variants[leaf] = own
        order = _joined(order, keys)
        program.outputs[leaf] = [with_names(output, renamed) for output in path.outputs]
    program.steps = [known[key] for key in order]
    for position in range(min(map(len, program.outputs.values()), default=0)):
        program.cast_everywhere(position)
    return program


def _of_several_dtypes(paths: Sequence[Path]) -> set[str]:
    """Lines whose tensors have other dtypes on other paths with the same dtypes of arguments."""
    dtypes: dict[tuple[str, str], set[frozenset[str]]] = {}
    for path in paths:
        arguments = json.dumps(path.configuration.dtypes, sort_keys=True)
        known: dict[str, set[str]] = {}
        for buffer in path.buffers:
            known.setdefault(buffer["line"], set()).add(buffer["dtype"])
        for line, own in known.items():
            dtypes.setdefault((line, arguments), set()).add(frozenset(own))
    return {line for (line, _), several in dtypes.items() if len(several) > 1}


@dataclass
class _BufferNames:
    """One name for a buffer in all paths: the same line, sizes and strides."""

    buffers: dict[str, Buffer]
    reserved: set[str]
    with_dtype: set[str]
    """Lines whose buffers are told apart by their dtypes as well."""
    are_results_apart: bool
    """True if a result has a name of its own, never shared with a tensor that another path keeps
    inside."""
    keys: dict[str, str] = field(default_factory=dict)

    def of(self, leaf: int, path: Path) -> Mapping[str, str]:
        """Name of a buffer of a path -> its name in the program."""
        renamed: dict[str, str] = {}
        seen: list[str] = []
        for buffer in path.buffers:
            aliases = buffer.get("aliases", "")
            aliases = renamed.get(aliases, aliases)
            shape = [buffer["sizes"], buffer["strides"], buffer.get("fill"), aliases]
            if buffer["line"] in self.with_dtype:
                # The first argument that has the dtype, which another configuration changes.
                dtypes, dtype = path.configuration.dtypes, buffer["dtype"]
                shape.append(next((name for name in dtypes if dtypes[name] == dtype), dtype))
            if self.are_results_apart:
                outputs = enumerate(path.outputs)
                shape.append([at for at, v in outputs if v and v["tensor"] == buffer["name"]])
            key = json.dumps([buffer["line"], *shape])
            # A line in a loop makes several tensors of one shape, which their order tells apart.
            key += f"#{seen.count(key)}"
            seen.append(key.rpartition("#")[0])
            if key not in self.keys:
                name = f"t{len(self.keys)}"
                while name in self.reserved:
                    name = f"t_{name}"
                self.keys[key] = name
                self.buffers[name] = Buffer(
                    name,
                    tuple(buffer["sizes"]),
                    tuple(buffer["strides"]),
                    fill=buffer.get("fill"),
                    produced=bool(buffer.get("produced")),
                    aliases=aliases,
                    line=buffer["line"],
                )
            name = self.keys[key]
            self.buffers[name].dtypes[leaf] = buffer["dtype"]
            renamed[buffer["name"]] = name
        return renamed


def _skeleton(step: Mapping[str, Any]) -> str:
    """Key of a step: all but its line, options, dtypes and constants' values."""
    kept = {
        key: value for key, value in step.items() if key not in ("constants", "options", "line")
    }
    # The values of constants belong to a path, and stay in `Step.variants`.
    if "launch" in step:
        kept["constants"] = sorted(step["constants"])
    return json.dumps(_without_dtypes(kept), sort_keys=True)


def _without_dtypes(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_dtypes(item) for key, item in value.items() if key != "dtype"}
    return [_without_dtypes(item) for item in value] if isinstance(value, list) else value


def _joined(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Merge two sequences, each in its own order.

    Raises:
        CaptureError: they have the same steps in different orders.
    """
    result: list[str] = []
    matcher = difflib.SequenceMatcher(a=first, b=second, autojunk=False)
    for _, start, end, other, other_end in matcher.get_opcodes():
        result += first[start:end]
        # In an equal block, `first` has added the same keys.
        result += [key for key in second[other:other_end] if key not in first[start:end]]
    if len(set(result)) != len(result):
        raise CaptureError("takes the same steps in different orders, which one op cannot have")
    return result


def with_copies(part: Mapping[str, Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """Contiguous copies that are written to or returned are always copies."""
    copies = {b["name"] for b in part["buffers"] if b.get("aliases")}
    written = {root for step in part["steps"] for root in written_roots(step)}
    # `contiguous` may return its argument, which the op would then change or return.
    changed = copies & (written | roots_of(outputs))
    steps = [
        {
            **step,
            "aten": "clone",
            "arguments": [step["arguments"][0], {"string": "contiguous_format"}],
        }
        if step.get("aten") == "contiguous" and {*step["results"]} & changed
        else step
        for step in part["steps"]
    ]
    buffers = [{**b, "aliases": ""} if b["name"] in changed else b for b in part["buffers"]]
    return {"steps": steps, "buffers": buffers}


def written_roots(step: Mapping[str, Any]) -> Iterator[str]:
    """Tensors that a step writes to."""
    if "launch" not in step:
        yield from step["written"]
        return
    # A launch has names of its kernel's parameters, and a call may have passed None for one.
    for name in step["written"]:
        value = step["arguments"].get(name)
        if value and "tensor" in value:
            yield value["tensor"]


def roots_of(value: Any) -> set[str]:
    """Tensors in a part of a run."""
    if isinstance(value, Mapping):
        roots = {value["tensor"]} if "tensor" in value else set()
        return roots.union(*(roots_of(item) for item in value.values()))
    return (
        set().union(*(roots_of(item) for item in value))
        if isinstance(value, (list, tuple))
        else set()
    )


def with_names(value: Any, names: Mapping[str, str]) -> Any:
    """A part of a run with other names of tensors."""
    if isinstance(value, Mapping):
        result = {key: with_names(item, names) for key, item in value.items()}
        for key in ("tensor", "name", "aliases"):
            if isinstance(value.get(key), str):
                result[key] = names.get(value[key], value[key])
        # In a launch, `written` has names of the kernel's parameters, which stay.
        for key in ("results", "written"):
            if "aten" in value and key in value:
                result[key] = [names.get(name, name) for name in value[key]]
        return result
    return (
        [with_names(item, names) for item in value] if isinstance(value, (list, tuple)) else value
    )


_TEXTS = {
    "line", "launch", "file", "aten", "tensor", "dtype", "string", "raises", "place", "name",
    "aliases", "results", "written", "autotune", "decisions", "configuration",
}  # fmt: skip
"""Keys of a run whose values are no expressions."""


def with_sizes(value: Any, names: Mapping[str, str], key: str = "") -> Any:
    """A part of a run with other names of dimensions."""
    if key in _TEXTS:
        return value
    if isinstance(value, Mapping):
        # Hints are the only table whose keys are names of dimensions.
        is_of_names = key == "hints"
        return {
            names.get(k, k) if is_of_names else k: with_sizes(v, names, k) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [with_sizes(item, names) for item in value]
    if isinstance(value, str):
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: names.get(word[0], word[0]), value)
    return value
