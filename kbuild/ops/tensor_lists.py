"""Lists of tensors: their lengths, and rules of a section for all tensors of a list.

An op has a fixed number of pointers, so `Tensor[2] xs` stands for the tensors `xs[0]` and
`xs[1]`; `xs` in `shapes`, `dtypes`, `contiguous`, `zero` and `fill` means both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.ops.schema.model import Schema, SchemaArgument
from kbuild.ops.scope import NameKind
from kbuild.project.config.file_model import OpSection
from kbuild.project.config.issue import Issue, IssueCollector

_MOST = 64
"""Maximum of tensors in a list."""
_MOST_OPTIONAL = 8
"""Maximum if each tensor may be None: each one doubles the number of images."""
_BASES: dict[str, NameKind] = {
    "Tensor": "tensor",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "ScalarType": "dtype",
    "Device": "device",
}
_ITEMS: dict[str, NameKind] = {"int": "list", "SymInt": "list", "bool": "list", "float": "floats"}
_TABLES = ("shapes", "dtypes", "fill")


def sized(schema: Schema, section: OpSection, place: IssueCollector) -> Schema:
    """Return the schema with a size for each list: its own, or from the last index in the section.

    Lists without a size are errors at `place`, the `schema` key.
    """
    texts = json.dumps(section.model_dump(exclude={"schema_"}), default=str, ensure_ascii=False)
    arguments = tuple(
        _sized(argument, texts, place) if kind_of(argument) == "tensors" else argument
        for argument in schema.arguments
    )
    return replace(schema, arguments=arguments)


def _sized(argument: SchemaArgument, texts: str, place: IssueCollector) -> SchemaArgument:
    name, suffixes = argument.name, argument.type.suffixes
    counts = [len(argument.type.items)]
    counts += [int(at) + 1 for at in re.findall(rf"\b{re.escape(name)}\[(\d{{1,9}})\]", texts)]
    count, most = max(counts), _MOST_OPTIONAL if suffixes[0] == "?" else _MOST
    if not count:
        kind = f"{argument.type.name}{''.join(suffixes[:-1])}"
        hint = f"write `{kind}[2] {name}`, or use `{name}[0]`, `{name}[1]` in `shapes`"
        place.error(f"does not say how many tensors `{name}` has", hint)
    elif counts[0] and count > counts[0]:
        place.error(f"`{argument}` has {counts[0]}, but `{name}[{count - 1}]` is used")
    elif count > most:
        hint = "pass them in several calls, or as one tensor of addresses"
        place.error(f"`{name}` has {count} tensors; an op takes at most {most} in a list", hint)
        count = most
    size = f"[{count}]" if count else "[1]"
    sizes = tuple(size if suffix.startswith("[") else suffix for suffix in suffixes)
    return replace(argument, type=replace(argument.type, suffixes=sizes))


def spread(section: OpSection, schema: Schema) -> OpSection:
    """Return the section, with the rules for a list applied to each of its tensors."""
    items = {
        argument.name: [f"{argument.name}[{at}]" for at in range(len(argument.type.items))]
        for argument in schema.arguments
        if argument.type.is_tensor_list
    }
    if not items:
        return section
    tables = {key: getattr(section, key) for key in _TABLES}
    changes: dict[str, Any] = {
        key: _by_item(table, items, first=key == "dtypes")
        for key, table in tables.items()
        if isinstance(table, Mapping)
    }
    changes["zero"] = _listed(section.zero, items)
    if not isinstance(section.contiguous, bool):
        changes["contiguous"] = _listed(section.contiguous, items)
    return section.model_copy(update=changes)


def _by_item(
    table: Mapping[str, Any], items: Mapping[str, Sequence[str]], *, first: bool
) -> dict[str, Any]:
    """A table by tensor; with `first`, the others of a list are like its first tensor."""
    values_by_name: dict[str, Any] = {}
    for name, value in table.items():
        names = items.get(name, [name])
        for tensor in names:
            is_like = first and tensor != names[0] and isinstance(value, list)
            if tensor not in table:
                values_by_name[tensor] = names[0] if is_like else value
        if name not in items:
            values_by_name[name] = value
    return values_by_name


def _listed(names: Sequence[Any], items: Mapping[str, Sequence[str]]) -> tuple[Any, ...]:
    wanted = (items.get(name, [name]) if isinstance(name, str) else [name] for name in names)
    return tuple(name for each in wanted for name in each)


def relocated(issues: Sequence[Issue], section: OpSection) -> list[Issue]:
    """Move issues about `shapes.xs[0]` to `shapes.xs`, where the section has `xs`; each once."""
    return list(dict.fromkeys(_relocated(issue, section) for issue in issues))


def _relocated(issue: Issue, section: OpSection) -> Issue:
    path = issue.path
    at = next((i for i, key in enumerate(path) if key in _TABLES), len(path)) + 1
    if at >= len(path) or not isinstance(path[at], str):
        return issue
    table, key = getattr(section, str(path[at - 1])), str(path[at])
    whole = key.partition("[")[0]
    if not isinstance(table, Mapping) or key in table or whole not in table:
        return issue
    return replace(issue, path=(*path[:at], whole, *path[at + 1 :]))


def kind_of(argument: SchemaArgument) -> NameKind | None:
    """Kind of an argument in expressions; None if no op can take it."""
    suffixes = argument.type.suffixes[: -1 if argument.type.is_optional else None]
    if not suffixes:
        return _BASES.get(argument.type.name)
    if argument.type.name == "Tensor":
        is_list = suffixes[-1] != "?" and not argument.type.is_optional
        return "tensors" if is_list else None
    return _ITEMS.get(argument.type.name) if len(suffixes) == 1 and suffixes != ("?",) else None
