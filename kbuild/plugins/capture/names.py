"""Names in ops: those of parameters that mean something else there, and of generated kernels."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kbuild.ops.arguments import RESERVED
from kbuild.plugins.capture.description import Declaration
from kbuild.plugins.capture.values import BATCH, ROWS

_WRAPPER_NAMES = {"ctx", "ops", ROWS, *BATCH}
"""Names of the Python around an op, and of dimensions of `...`."""
_GENERATED = re.compile(r"grad_\d+|saved\d+|needs_\w+")
"""Names that backward ops have."""


def op_names(declaration: Declaration) -> dict[str, str]:
    """Parameters whose names mean something else in an op -> what they are called there."""
    own = {name for name, d in declaration.arguments.items() if "value" not in d}
    names = {}
    for name in sorted(own):
        is_gradient = name.startswith("d_") and name.removeprefix("d_") in own
        if name in RESERVED or name in _WRAPPER_NAMES or _GENERATED.fullmatch(name) or is_gradient:
            names[name] = next(
                f"{name}{'_' * n}" for n in range(1, 9) if f"{name}{'_' * n}" not in own
            )
    return names


def with_names(declaration: Declaration, names: Mapping[str, str]) -> Declaration:
    """A declaration with other names of parameters."""
    arguments = {}
    for name, described in declaration.arguments.items():
        dtypes = described.get("dtypes")
        of_other = {"dtypes": names[dtypes]} if isinstance(dtypes, str) and dtypes in names else {}
        arguments[names.get(name, name)] = {**described, **of_other}
    defaults = {names.get(name, name): text for name, text in declaration.defaults.items()}
    return replace(declaration, arguments=arguments, defaults=defaults)


def with_own_kernels(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer with names of their own for generated kernels, which may be of one application."""
    owners: dict[str, str] = {}
    texts: dict[str, str] = {}
    names: dict[str, dict[str, str]] = {}
    for number, (file, text) in enumerate(answer.get("kernels", {}).items()):
        own = {getattr(node, "name", "") for node in ast.parse(text).body} - {""}
        others = {n: f"{n}_{number}" for n in sorted(own) if owners.setdefault(n, text) != text}
        names[file], texts[file] = others, text
        for name, other in others.items():
            texts[file] = re.sub(rf"\b{name}\b", other, texts[file])
    if not any(names.values()):
        return answer

    def renamed(step: Mapping[str, Any]) -> Mapping[str, Any]:
        if "launch" not in step:
            return step
        return {**step, "launch": names[step["file"]].get(step["launch"], step["launch"])}

    def with_steps(trace: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**trace, "steps": [*map(renamed, trace["steps"])]}

    runs = [{**run, "traces": [*map(with_steps, run["traces"])]} for run in answer["runs"]]
    samples = [{**one, "trace": with_steps(one["trace"])} for one in answer.get("samples", ())]
    return {**answer, "runs": runs, "samples": samples, "kernels": texts}
