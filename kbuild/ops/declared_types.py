"""Compares types that a kernel's source declares with those of the op, before any download.

A DSL finds a mismatch when it compiles. Types that the source spells out are known earlier, such as
`x: T.Tensor[[n], T.float32]`. Types that depend on a parameter or a computation are not compared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kbuild.ops.dtypes import DTYPES, dtype_choices
from kbuild.ops.model import ArgumentSource, Launch, OpSpec
from kbuild.project.config.issue import Issue, KeyPath, listed

_WHOLE = ("int", "uint", "bool")
"""Prefixes of dtypes that cannot hold fractions."""


@dataclass(frozen=True)
class DeclaredType:
    """A parameter, or a returned tensor, with a declared type."""

    name: str
    dtype: str
    """Torch's name of the dtype."""
    line: int
    is_tensor: bool
    file: str = ""


def module_values(tree: ast.Module) -> dict[str, ast.expr]:
    """Values of a module's names that are assigned once, such as `DTYPE = T.float16`."""
    values: dict[str, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: assigned[0] for name, assigned in values.items() if len(assigned) == 1}


def dtype_of(node: ast.expr | None, values: Mapping[str, ast.expr]) -> str | None:
    """Dtype that an expression names, such as `T.float16` or `"float16"`; None for others."""
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
    """The definition of the first of `names` in the module; None if there is none."""
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return next((defined[name] for name in names if name in defined), None)


def mismatches(op: OpSpec, launch: Launch, declared: Iterable[DeclaredType]) -> Iterator[Issue]:
    """Yield an error for each pair of a declared type and a different one in the op.

    Args:
        op: the op.
        launch: one of its launches.
        declared: declarations in the launch's function.
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
    """Source that a parameter is bound to by its name alone."""
    if name in {*op.inputs, *op.results, *op.temporaries}:
        return ArgumentSource("tensor", name)
    argument = op.schema.argument(name)
    is_float = argument is not None and argument.type.name == "float" and not argument.type.is_list
    return ArgumentSource("float", name) if is_float else None


def in_file(declared: Iterable[DeclaredType], file: str) -> tuple[DeclaredType, ...]:
    """Return the declarations with the file that contains them."""
    return tuple(replace(one, file=file) for one in declared)
