"""The schema of an op: names and types of its arguments, and lists of tensors.

An op has a fixed number of pointers, so `Tensor[2] xs` stands for the tensors `xs[0]` and
`xs[1]`; `xs` in `shapes`, `dtypes`, `contiguous`, `zero` and `fill` means both.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.ops.expression.nodes import FUNCTIONS, QUERIES
from kbuild.ops.schema.model import Schema, SchemaArgument
from kbuild.ops.schema.parser import SchemaError, parse_schema
from kbuild.ops.scope import NameKind, OpScope
from kbuild.project.config.file_model import OpSection
from kbuild.project.config.issue import Issue, IssueCollector

_ALTERNATIVES = {
    "Tensor": "write `Tensor?[]`: each of its tensors may be None",
    "Stream": "an op launches on the current stream of its tensors' device",
    "Layout": "Python around the op makes its tensors strided; kernels know no other layout",
    "MemoryFormat": "Python around the op calls `.contiguous(...)`; kernels get the strides",
    "Scalar": "write `float`, `int` or `bool`",
    "complex": "pass its two parts as floats",
    "Generator": "pass a seed and an offset as integers",
}
"""Types that no op takes, alone or in a list -> advice."""
RESERVED = {"torch", *FUNCTIONS, *QUERIES, "and", "or", "not", "if", "else", "True", "False"}
RESULT_NAME = "out"
"""Name of a single result without one; several are `out0`, `out1`, ..."""


def read_schema(text: str, place: IssueCollector) -> Schema | None:
    """Read a schema; None after an error that makes it unusable."""
    try:
        schema = parse_schema(text)
    except SchemaError as error:
        place.error(f"{error.message} (column {error.column})", error.hint)
        return None
    if "::" in schema.name:
        place.error(f"`{schema.name}` has a namespace", "kbuild gives each variant its own")
    if schema.overload:
        place.error("overloads are not supported", "give each op a name of its own")
    tensors = [argument for argument in schema.arguments if argument.type.name == "Tensor"]
    if not any(argument.type.suffixes[:1] != ("?",) for argument in tensors):
        lacks = "has no tensor argument" + (" that is never None" if tensors else "")
        place.error(lacks, "the first one determines the device on which the op runs")
    elif not schema.returns and not schema.mutated:
        hint = "add a result, or mark the tensor that the op writes to: `Tensor(a!) out`"
        place.error("returns nothing and writes to nothing", hint)
    names = [schema.name.rpartition("::")[2], *(a.name for a in schema.arguments)]
    for name in (*names, *result_names(schema)):
        if keyword.iskeyword(name) or name in RESERVED:
            place.error(f"`{name}` cannot be a name here", "it is reserved")
    _validate_types(schema, place)
    return schema


def result_names(schema: Schema) -> tuple[str, ...]:
    """Names of the results, with default names for those without one."""
    numbers = [""] if len(schema.returns) == 1 else range(len(schema.returns))
    named = zip(schema.returns, numbers, strict=True)
    return tuple(result.name or f"{RESULT_NAME}{number}" for result, number in named)


def add_schema_names(schema: Schema, scope: OpScope, place: IssueCollector) -> None:
    """Add the names of arguments and results to the scope."""
    for argument in schema.arguments:
        kind = kind_of(argument)
        if kind is not None:
            scope.add(argument.name, kind, place)
    for argument in schema.items:
        scope.add(argument.name, "tensor", place)
    for name in result_names(schema):
        if name in scope.kinds:
            hint = f"name it in the schema: `-> (Tensor {name}_)`"
            place.error(f"the result is called `{name}`, as an argument is", hint)
        else:
            scope.add(name, "result", place)


def _validate_types(schema: Schema, place: IssueCollector) -> None:
    for argument in schema.arguments:
        if kind_of(argument) is None:
            name, inner = argument.type.name, argument.type.suffixes[:1]
            single = f"{name}{'?' * (inner == ('?',))}"
            hint = _ALTERNATIVES.get(name) or f"write one `{single}` argument for each"
            place.error(f"`{argument.name}` is a `{name}{''.join(argument.type.suffixes)}`", hint)
        if argument.type.name == "Device" and argument.default and argument.default.value:
            hint = f"write `Device? {argument.name}=None`: that of the tensors"
            place.error(f"`{argument}`: no device is known when the op is built", hint)
        if argument.type.is_tensor_list and argument.default:
            hint = "leave it out; a function in Python around the op may have one"
            place.error(f"`{argument}`: Torch takes no default for a list of tensors", hint)
        alias = argument.type.alias
        if alias is not None and (not alias.write or alias.after is not None):
            place.error(f"`{argument}` shares memory with a result", "return a new tensor")
    for result in schema.returns:
        if result.type.alias is not None:
            hint = "`torch.compile` accepts such an op only without results: `-> ()`"
            place.error(f"the result `{result}` is one of the arguments", hint)
        elif not result.type.is_tensor:
            place.error(f"a result is a `{result.type}`", "results are tensors")


_MOST = 64
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
    # As one text, because the index may be in any expression of the section.
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
    # After the error, any size allows the rest of the section to be read.
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
