"""Writes `_captured.py`, the module with the captured functions for users of a package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kbuild.plugins.capture.captured_modules import (
    assigned,
    inference_name,
    is_recorded,
    own_outputs,
    parameter_list,
    returned_results,
)
from kbuild.plugins.capture.show import gradient_text

FUNCTIONS_MODULE = "_captured.py"


def captured_source(wrappers: Iterable[Mapping[str, Any]]) -> str:
    """The module with the captured functions, for users of the package."""
    wrappers = [*map(_with_own_names, wrappers)]
    notes = "".join(f"- `{wrapper['schema']}`: {gradient_text(wrapper)}\n" for wrapper in wrappers)
    parts, classes = [_FUNCTIONS_HEAD.format(notes=notes)], dict[tuple[str, ...], str]()
    for wrapper in wrappers:
        own = {}
        for kind, fields in wrapper.get("classes", {}).items():
            if (key := (kind, *fields)) not in classes:
                known = sum(other[0] == kind for other in classes)
                classes[key] = f"{kind}_{known}" if known else kind
                parts.append(f"{classes[key]} = _namedtuple({kind!r}, {list(fields)!r})")
            own[kind] = classes[key]
        name, returned = wrapper["name"], returned_results(wrapper)
        asks = wrapper["forward"].get("asked") or {}
        is_fast = returned is not None and bool(wrapper["backward"]) and not asks
        structure = _structure(wrapper, own)
        if not is_fast and not structure and not wrapper.get("renamed"):
            parts.append(f"{name} = _ops.{name}")
            continue
        arguments = ", ".join(n for n in wrapper["forward"]["arguments"] if n not in asks)
        calls = [("", f"_ops.{name}.default({arguments})")]
        if is_fast and returned is not None:
            recorded = f"_has_transforms() or ({is_recorded(wrapper, '_torch')})"
            calls = [
                (f"if {recorded}:", calls[0][1]),
                ("else:", f"_ops.{inference_name(wrapper, returned)}.default({arguments})"),
            ]
        lines = [f"def {name}({parameter_list(wrapper)}):"]
        for condition, call in calls:
            lines += [f"    {condition}"] if condition else []
            indent = "        " if condition else "    "
            places = enumerate(own_outputs(wrapper))
            values = [f"_{at}" for at, (kind, *_) in places if kind != "none"]
            lines.append(indent + (assigned(values, call) if structure else f"return {call}"))
        lines += [f"    return {structure}"] if structure else []
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts) + "\n"


def _with_own_names(wrapper: Mapping[str, Any]) -> Mapping[str, Any]:
    """A function with the parameters that the author gave it."""
    renamed = wrapper.get("renamed", {})
    if not renamed:
        return wrapper
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, renamed))})(?=[,)=])")
    return {
        **wrapper,
        "schema": pattern.sub(lambda name: renamed[name[1]], wrapper["schema"]),
        "parameters": [[renamed.get(n, n), default] for n, default in wrapper["parameters"]],
        "tensors": [renamed.get(name, name) for name in wrapper["tensors"]],
        "forward": {
            **wrapper["forward"],
            "arguments": [renamed.get(name, name) for name in wrapper["forward"]["arguments"]],
        },
    }


def _structure(wrapper: Mapping[str, Any], classes: Mapping[str, str]) -> str:
    """The function's return expression; empty if the op returns exactly that already."""
    kinds = [kind for kind, *_ in own_outputs(wrapper)]
    plain = ["{0}"] if len(kinds) == 1 else []
    plain += [f"({', '.join(f'{{{at}}}' for at in range(len(kinds)))})"] * (len(kinds) > 1)
    template = wrapper.get("structure", "")
    if not template or (template in plain and ("none" not in kinds or len(kinds) == 1)):
        return ""
    values = ["None" if kind == "none" else f"_{at}" for at, kind in enumerate(kinds)]
    return str(template.format(*values, **classes))


_FUNCTIONS_HEAD = '''\
"""The captured functions. Written by kbuild.

Each calls the op of its name. Where Torch records no gradients, it calls one that knows of none.

{notes}"""

from collections import namedtuple as _namedtuple

import torch as _torch

from ._ops import ops as _ops

_has_transforms = _torch._C._are_functorch_transforms_active'''
