"""Tensors that the steps of a path read and write, and renaming of tensors in steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbuild.plugins.capture.programs import Path
from kbuild.plugins.capture.values import names_of


def with_copies(part: Mapping[str, Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """Contiguous copies that are written to or returned are always copies."""
    copies = {b["name"] for b in part["buffers"] if b.get("aliases")}
    written = {root for step in part["steps"] for root in written_roots(step)}
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
        is_of_names = key == "hints"
        return {
            names.get(k, k) if is_of_names else k: with_sizes(v, names, k) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [with_sizes(item, names) for item in value]
    if isinstance(value, str):
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: names.get(word[0], word[0]), value)
    return value


def names_used(path: Path) -> set[str]:
    """Names in the expressions of a path."""
    names: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if key in ("int", "float", "bool", "offset") and isinstance(item, str):
                    names.update(names_of(item))
                elif key in ("sizes", "strides", "grid") and isinstance(item, list):
                    for text in item:
                        names.update(names_of(text))
                else:
                    visit(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)

    visit(path.steps)
    visit(path.buffers)
    visit(path.outputs)
    for question, _ in path.answers:
        names |= names_of(question)
    return names
