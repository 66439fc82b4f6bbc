"""Types that a kernel's source declares, compared with those of the op, before anything is fetched.

A DSL finds a mismatch when it compiles. What the source says in so many words is known earlier:
`x: T.Tensor[[n], T.float32]`. A type that a parameter or a computation decides is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kbuild.ops.dtypes import DTYPES, dtype_choices
from kbuild.ops.model import ArgumentSource, Launch, OpSpec
from kbuild.project.config.issue import Issue, KeyPath, listed

_WHOLE = ("int", "uint", "bool")
"""How names of dtypes start that hold no fractions."""


@dataclass(frozen=True)
class DeclaredType:
    """A parameter, or a tensor that is returned, whose type the source says."""

    name: str
    dtype: str
    """Torch's name."""
    line: int
    is_tensor: bool
    file: str = ""


def module_values(tree: ast.Module) -> dict[str, ast.expr]:
    """What a module's names stand for that are assigned once: `DTYPE = T.float16`."""
    values: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: found[0] for name, found in values.items() if len(found) == 1}


def dtype_of(node: ast.expr | None, values: Mapping[str, ast.expr]) -> str | None:
    """The dtype that an expression names: `T.float16`, `cutlass.Float16`, `"float16"`."""
    if isinstance(node, ast.Name) and node.id in values:
        node = values[node.id]
    if isinstance(node, ast.Attribute):
        name = node.attr
    elif isinstance(node, ast.Name):
        name = node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value
    else:
        return None
    return name.lower() if name.lower() in DTYPES else None


def find_function(tree: ast.Module, names: Iterable[str]) -> ast.FunctionDef | None:
    """The first of the functions that the module defines."""
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return next((defined[name] for name in names if name in defined), None)


def mismatches(op: OpSpec, launch: Launch, declared: Iterable[DeclaredType]) -> Iterator[Issue]:
    """What the source declares and the op contradicts: one error for each pair of types.

    Args:
        op: the op.
        launch: one of its launches.
        declared: what the launch's function says of its parameters.
    """
    given = dict(launch.args)
    wrong: dict[tuple[str, tuple[str, ...]], tuple[DeclaredType, str]] = {}
    for one in declared:
        source = given[one.name] if one.name in given else _source_by_name(op, one.name)
        if source is None:
            continue
        if one.is_tensor and source.kind in {"tensor", "descriptor"}:
            choices = dtype_choices(source.name, op.dtypes)
            if set(choices) - {one.dtype}:
                wrong.setdefault((one.dtype, choices), (one, source.name))
        elif not one.is_tensor and source.kind == "float" and one.dtype.startswith(_WHOLE):
            yield _lost_fraction(op, launch, one)
    for (_, choices), (one, tensor) in wrong.items():
        yield _wrong_dtype(op, one, choices, tensor)


def _wrong_dtype(op: OpSpec, one: DeclaredType, choices: tuple[str, ...], tensor: str) -> Issue:
    others = [dtype for dtype in choices if dtype != one.dtype]
    may = "is" if len(choices) == 1 else "may be"
    message = (
        f"`{tensor}` {may} {' or '.join(others)}, and `{one.name}` of the kernel is a tensor "
        f"of {one.dtype} ({one.file}:{one.line})"
    )
    if one.dtype in choices:
        hint = f"leave {listed(others)} out here, or make the dtype a parameter of the kernel"
    else:
        hint = f"write `{one.dtype}` here, or another dtype in the kernel"
    return Issue(_dtypes_path(op, tensor), message, hint)


def _dtypes_path(op: OpSpec, tensor: str) -> KeyPath:
    by_tensor = any(rule.tensor == tensor and rule.choices for rule in op.dtypes[1:])
    return (*op.path, "dtypes", *((tensor,) if by_tensor else ()))


def _lost_fraction(op: OpSpec, launch: Launch, one: DeclaredType) -> Issue:
    is_given = one.name in dict(launch.args)
    path = (*launch.path, "args", one.name) if is_given else (*op.path, "schema")
    message = (
        f"`{one.name}` is a float, and the kernel takes {one.dtype}, which would drop its fraction "
        f"({one.file}:{one.line})"
    )
    return Issue(path, message, "declare a float in the kernel, or an `int` in the schema")


def _source_by_name(op: OpSpec, name: str) -> ArgumentSource | None:
    """What a parameter is bound to that has the name of something of the op."""
    if name in {*op.inputs, *op.results, *op.temporaries}:
        return ArgumentSource("tensor", name)
    argument = op.schema.argument(name)
    is_float = argument is not None and argument.type.name == "float" and not argument.type.is_list
    return ArgumentSource("float", name) if is_float else None


def in_file(declared: Iterable[DeclaredType], file: str) -> tuple[DeclaredType, ...]:
    """The same, with the file that they stand in."""
    return tuple(replace(one, file=file) for one in declared)
