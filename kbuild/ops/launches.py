"""Reads one launch of a kernel function: argument sources, constants, candidates, grid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbuild.ops.candidates import (
    AUTOTUNE,
    apply_keep,
    constant_names,
    non_integer_names,
    optional_names,
    read_candidates,
    read_keep,
)
from kbuild.ops.constants import NONE, is_number, read_constants
from kbuild.ops.dialects import Dialect
from kbuild.ops.expression import Expression
from kbuild.ops.scope import OpScope
from kbuild.ops.steps import ArgumentSource, Launch
from kbuild.project.config.file_model import LaunchKeys, LaunchSection, OpSection
from kbuild.project.config.issue import IssueCollector, one_of, toml_type

_TENSORS = ("tensor", "result", "temporary", "view")
_KEYS = ("tensor", "block", "padding", "layout")
_SWIZZLES = (0, 32, 64, 128)
_LAYOUT_KEYS = ("swizzle_byte_width", "transposed", "fp4_padded")
"""Arguments of Gluon's `NVMMASharedLayout`; the others follow from the block and the dtype."""
_NAME_PATTERN = r"(?P<name>[A-Za-z_]\w*)"
_DEFAULT = re.compile(
    _NAME_PATTERN + r"\s+if\s+(?P=name)\s+is\s+not\s+None\s+else\s+"
    r"(?P<literal>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)",
    re.ASCII,
)
_ITEM = re.compile(_NAME_PATTERN + r"\[(?P<at>-?\d{1,9})\]", re.ASCII)
_MOST_ALIGNED = 3
"""Maximum of aligned images of one launch, as in the launcher's `kTiers`."""
_MOST_DIMENSIONS = 5
"""Maximum of dimensions of a tensor with a descriptor, which is the hardware's."""


def read_argument_source(
    value: Any, dialect: Dialect, scope: OpScope, place: IssueCollector
) -> ArgumentSource | None:
    """Read the source of an argument from TOML; None after an error at `place`."""
    if isinstance(value, str) and scope.kinds.get(value) == "tensors":
        value = scope.items(value)
    is_tuple = isinstance(value, (list, tuple))
    able = dialect.structured or (is_tuple and dialect.shaped)
    if (is_tuple or isinstance(value, dict)) and not able:
        what = "a descriptor" if isinstance(value, dict) else "a tuple"
        place.error(f"`{dialect.name}` kernels take no such argument: {what}")
        return None
    if isinstance(value, dict):
        return _descriptor(value, scope, place)
    if is_tuple:
        if not value:
            place.error("is an empty tuple", "list what the kernel takes")
        read = []
        for index, item in enumerate(value):
            where = place.at(index)
            if isinstance(item, (str, int, float)):
                read.append(read_argument_source(item, dialect, scope, where))
            else:
                where.error(f"must be a tensor or an expression, not {toml_type(item)}")
        sources = tuple(source for source in read if source is not None)
        is_whole = bool(value) and len(sources) == len(value)
        return ArgumentSource("tuple", items=sources) if is_whole else None
    if value == NONE:
        if not dialect.structured and not dialect.shaped:
            place.error(f"`{dialect.name}` kernels take no None", "write a function without it")
        return ArgumentSource("none")
    return read_number(value, scope, place)


def read_number(  # noqa: PLR0911
    value: Any, scope: OpScope, place: IssueCollector
) -> ArgumentSource | None:
    """Read a tensor, a number or None; return None after an error.

    Args:
        value: TOML value: a string, a number or a boolean.
        scope: where names are looked up.
        place: where the value is written.
    """
    if isinstance(value, bool):
        return ArgumentSource("bool", expression=scope.expression(str(value), place))
    if isinstance(value, float):
        return ArgumentSource("float", literal=value)
    if value == NONE:
        return ArgumentSource("none")
    kind = scope.kinds.get(value) if isinstance(value, str) else None
    if kind in _TENSORS:
        return ArgumentSource("tensor", value)
    if isinstance(value, str) and (source := _float(value, kind, scope, place)) is not None:
        return source if source.kind == "float" else None
    if kind in ("str", "dtype"):
        hint = f'a kernel takes it as a constant: `{{ value = "{value}", choices = [ ... ] }}`'
        place.error(f"`{value}` is not a number", hint)
        return None
    errors = place.errors
    if isinstance(value, str) and (formula := scope.floating(value, place)) is not None:
        return ArgumentSource("float", formula=formula)
    # After an error as a float, reading it as an integer would report a second one.
    expression = scope.expression(value, place) if place.errors == errors else None
    if expression is None:
        return None
    is_bool = scope.is_condition(expression)
    return ArgumentSource("bool" if is_bool else "int", expression=expression)


def _float(
    text: str, kind: str | None, scope: OpScope, place: IssueCollector
) -> ArgumentSource | None:
    """Read a float argument, with its value for None, or an item of a list of floats.

    Returns:
        None if the text is something else; a source of another kind after an error.
    """
    default, item = _DEFAULT.fullmatch(text), _ITEM.fullmatch(text)
    name = default["name"] if default else item["name"] if item else text
    wanted = "floats" if item else "float"
    if scope.kinds.get(name, kind) != wanted:
        return None
    may_be_none = name in scope.loose
    if may_be_none and default is None:
        hint = f"give a value for None: `{name} if {name} is not None else 1.0`" if not item else ""
        place.error(f"`{name}` may be None", hint or f'launch with `when = "{name} is not None"`')
        return ArgumentSource("none")
    if default and name not in scope.optional:
        place.error(f"`{name}` is never None", f"write `{name}`")
        return ArgumentSource("none")
    literal = float(default["literal"]) if default else None
    return ArgumentSource("float", name, literal=literal, item=int(item["at"]) if item else None)


def _descriptor(
    table: Mapping[str, Any], scope: OpScope, place: IssueCollector
) -> ArgumentSource | None:
    errors = place.errors
    for key in table.keys() - set(_KEYS):
        place.at(key).error("unknown key", one_of(key, _KEYS))
    name = _described(table.get("tensor"), scope, place)
    block = _block(table.get("block"), scope, place.at("block"))
    rule = scope.shapes.get(name)
    rank = rule.rank if rule is not None else None
    if block and rank is not None and rank != len(block):
        place.at("block").error(f"`{name}` has {rank} dimensions, not {len(block)}")
    padding = table.get("padding", "zero")
    if padding not in ("zero", "nan"):
        place.at("padding").error(f"must be `zero` or `nan`, not `{padding}`")
    layout = _layout(table.get("layout", {}), place.at("layout"))
    if place.errors > errors:
        return None
    return ArgumentSource("descriptor", name, block=block, padding=padding, layout=layout)


def _layout(value: Any, place: IssueCollector) -> tuple[tuple[str, int | bool], ...]:
    """Layout of a descriptor's blocks in shared memory; empty for the default."""
    if not isinstance(value, dict):
        place.error(f"must be a table, not {toml_type(value)}", "e.g. `{ transposed = true }`")
        return ()
    for key, given in value.items():
        if key not in _LAYOUT_KEYS:
            place.at(key).error("unknown key", one_of(key, _LAYOUT_KEYS))
        elif key != "swizzle_byte_width" and not isinstance(given, bool):
            place.at(key).error(f"must be true or false, not {toml_type(given)}")
        elif key == "swizzle_byte_width" and (isinstance(given, bool) or given not in _SWIZZLES):
            place.at(key).error(f"must be one of {', '.join(map(str, _SWIZZLES))}, not `{given}`")
    return tuple(sorted(value.items()))


def _described(value: Any, scope: OpScope, place: IssueCollector) -> str:
    tensors = scope.tensors()
    if value not in tensors:
        where = place.at("tensor") if value is not None else place
        hint = one_of(str(value), tensors) if value is not None else "e.g. `{ tensor = ... }`"
        where.error(f"a descriptor needs a tensor, not `{value}`", hint)
        return ""
    if value in scope.loose:
        hint = f'use it in a separate launch, `when = "has({value})"`'
        place.at("tensor").error(f"`{value}` may be None", hint)
    return str(value)


def _block(values: Any, scope: OpScope, place: IssueCollector) -> tuple[Expression, ...]:
    if not isinstance(values, (list, tuple)) or not 0 < len(values) <= _MOST_DIMENSIONS:
        hint = 'e.g. `block = ["BLOCK_M", "BLOCK_K"]`'
        place.error(f"lists 1 to {_MOST_DIMENSIONS} sizes", hint)
        return ()
    read = [_size(value, scope, place.at(index)) for index, value in enumerate(values)]
    return tuple(size for size in read if size is not None)


def _size(value: Any, scope: OpScope, place: IssueCollector) -> Expression | None:
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        place.error(f"must be a constant of the kernel or a number, not {toml_type(value)}")
        return None
    size = scope.expression(value, place)
    if size is None:
        return None
    for leaf in size.leaves():
        if scope.kinds.get(leaf.key, "constant" if scope.is_open else "") != "constant":
            message = f"`{size}`: `{leaf.key}` is not a constant (column {leaf.column})"
            place.error(message, "a block's size is known when the kernel is compiled")
    if size.constant is not None and size.constant <= 0:
        place.error(f"`{size}` is not a size")
    return size


_MAX_GRID_AXES = 3


def read_launches(
    op: OpSection, name: str, dialect: Dialect, scope: OpScope, place: IssueCollector
) -> tuple[Launch, ...]:
    """Read the launches of an op, in order; errors are added to `place`, the op."""
    if not op.launch:
        return (_launch(op, (name, f"{name}_kernel"), dialect, scope, place),)
    for key in LaunchKeys.model_fields:
        if getattr(op, key) != LaunchKeys.model_fields[key].default:
            hint = "each launch has its own"
            place.at(key).error("belongs in the `launch` tables", hint)
    launches = []
    for index, section in enumerate(op.launch):
        if section.aten is not None:
            continue
        where = place.at("launch", index)
        if section.function is None:
            where.error("has no `function`", "with several launches, name each one's")
        for key in ("arguments", "results"):
            if getattr(section, key):
                where.at(key).error("belongs to a call of ATen", 'name it: `aten = "..."`')
        launches.append(_launch(section, (), dialect, scope, where))
    if not launches:
        place.at("launch").error("launches no kernel", "write a function in Python instead")
    return tuple(launches)


def _launch(
    keys: OpSection | LaunchSection,
    functions: tuple[str, ...],
    dialect: Dialect,
    outer: OpScope,
    place: IssueCollector,
) -> Launch:
    is_open = keys.configs == AUTOTUNE or bool(dialect.settled)
    for key in dialect.settled:
        if getattr(keys, key) not in (LaunchKeys.model_fields[key].default, AUTOTUNE):
            message = f"`{dialect.name}` kernels set this in their source"
            place.at(key).error(message, "remove it here, and change the kernel's source")
    text = keys.when if isinstance(keys, LaunchSection) else None
    when = read_condition(text, outer, place.at("when"))
    tuned = constant_names(keys, dialect)
    non_integers = non_integer_names(keys)
    outer = outer.where(when)
    scope = outer.inside(tuned, place.at("configs"), non_integers=non_integers, is_open=is_open)
    # A constant that a candidate sets to None has to be tested before it is used.
    scope = replace(scope, optional={*scope.optional, *optional_names(keys)})
    candidates = read_candidates(keys, dialect, scope, place)
    keep = read_keep(keys.keep, candidates, dialect, scope, place.at("keep"))
    constants = read_constants(keys.constants, scope, place.at("constants"))
    non_integers = [constant.name for constant in constants if not is_number(constant)]
    loose = is_open and not dialect.settled
    scope = scope.inside(
        _own_constants(keys.constants),
        place.at("constants"),
        non_integers=non_integers,
        is_open=loose,
    )
    for name, value in keys.constants.items():
        if isinstance(value, (list, tuple)) and not dialect.shaped:
            where = place.at("constants", name)
            where.error(f"`{dialect.name}` kernels take no tuple as a constant")
    for name in keys.args.keys() & {*tuned, *keys.constants}:
        place.at("args", name).error(f"`{name}` is a constant as well", "keep one of the two")
    args = place.at("args")
    read = [
        (name, read_argument_source(value, dialect, scope, args.at(name)))
        for name, value in keys.args.items()
    ]
    if keys.function is not None and not keys.function.isidentifier():
        place.at("function").error(f"`{keys.function}` is not the name of a function")
    return Launch(
        path=place.path,
        functions=functions if keys.function is None else (keys.function,),
        args=tuple((name, source) for name, source in read if source is not None),
        constants=constants,
        candidates=apply_keep(candidates, keep, place.at("keep")),
        autotune=is_open,
        grid=_grid(keys.grid, dialect, scope, place),
        divisible=_assumed(keys.divisible, place.at("divisible")),
        ones=_unique(keys.ones, place.at("ones")),
        int64=_unique(keys.int64, place.at("int64")),
        when=when,
        keep=keep if is_open else (),
    )


def read_condition(text: str | None, scope: OpScope, place: IssueCollector) -> Expression | None:
    """Read the `when` of a launch; it is an error at `place` if it is the same in every call."""
    if text is None:
        return None
    condition = scope.condition(text, place)
    if condition is not None and condition.constant is not None:
        holds = "always holds" if condition.constant else "never holds"
        place.error(f"`{condition}` {holds}", "remove it" if condition.constant else "")
    return condition


def _own_constants(constants: Mapping[str, Any]) -> list[str]:
    """Constants that are not a dimension of the same name: `N = { value = "N", ... }`."""
    values = {name: v.get("value") if isinstance(v, dict) else v for name, v in constants.items()}
    return [
        name
        for name, value in values.items()
        if value != name and name.isidentifier() and not isinstance(value, (list, tuple))
    ]


def _grid(
    values: Sequence[str | int], dialect: Dialect, scope: OpScope, place: IssueCollector
) -> tuple[Expression, ...]:
    where = place.at("grid")
    if not values and dialect.needs_grid:
        hint = 'e.g. `grid = ["cdiv(N, BLOCK)"]`'
        place.error("has no `grid`, which gives the number of blocks", hint)
    if len(values) > _MAX_GRID_AXES:
        where.error(f"has {len(values)} dimensions", f"a grid has at most {_MAX_GRID_AXES}")
    read = [scope.expression(value, where.at(index)) for index, value in enumerate(values)]
    for index, expression in enumerate(read):
        if expression is not None and (expression.constant or 1) < 0:
            where.at(index).error(f"`{expression}` is negative")
    return tuple(expression for expression in read if expression is not None)


def _assumed(
    values: Sequence[str | Sequence[str]], place: IssueCollector
) -> tuple[tuple[str, ...], ...]:
    """Return the names in `divisible` for each aligned image."""
    lists = [(at, value) for at, value in enumerate(values) if not isinstance(value, str)]
    names = [value for value in values if isinstance(value, str)]
    if not lists:
        return (_unique(names, place),)
    if names or len(lists) > _MOST_ALIGNED:
        place.error(f"must be a list of names, or of up to {_MOST_ALIGNED} lists of names")
    every = [_unique(value, place.at(at)) for at, value in lists]
    for at, assumed in enumerate(every[1:], 1):
        if {*every[at - 1]} <= {*assumed}:
            place.at(at).error("assumes all that the list before it does", "remove it")
    return tuple(every)


def _unique(names: Sequence[str], place: IssueCollector) -> tuple[str, ...]:
    for index, name in enumerate(names):
        if name in names[:index]:
            place.at(index).error(f"`{name}` is listed twice", "keep one of them")
    return tuple(dict.fromkeys(names))
