"""What an argument of a kernel gets: a tensor, an expression, a tuple, a tensor descriptor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from kbuild.config.suggest import one_of, toml_type
from kbuild.languages.expression import Expression
from kbuild.languages.spec.constants import NONE
from kbuild.languages.spec.dialects import Dialect
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Scope
from kbuild.languages.spec.values import Source

_TENSORS = ("tensor", "result", "temporary")
_KEYS = ("tensor", "block", "padding")
_NAME = r"(?P<name>[A-Za-z_]\w*)"
_DEFAULT = re.compile(
    _NAME + r"\s+if\s+(?P=name)\s+is\s+not\s+None\s+else\s+"
    r"(?P<literal>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)",
    re.ASCII,
)
_ITEM = re.compile(_NAME + r"\[(?P<at>-?\d{1,9})\]", re.ASCII)
_MOST_DIMENSIONS = 5
"""Of a tensor that hardware copies by a descriptor."""


def source_of(value: Any, dialect: Dialect, scope: Scope, place: Place) -> Source | None:
    """Where an argument's value comes from; None after an error.

    Args:
        value: as TOML gives it.
        dialect: says whether kernels take tuples and descriptors.
        scope: of the launch, with its constants.
        place: where the value is written.
    """
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
        return _tuple(value, dialect, scope, place)
    if value == NONE:
        if not dialect.structured and not dialect.shaped:
            place.error(f"`{dialect.name}` kernels take no None", "write a function without it")
        return Source("none")
    return _single(value, scope, place)


def _single(value: Any, scope: Scope, place: Place) -> Source | None:  # noqa: PLR0911
    if isinstance(value, bool):
        return Source("bool", expression=scope.expression(str(value), place))
    if isinstance(value, float):
        return Source("float", literal=value)
    if value == NONE:
        return Source("none")
    kind = scope.kinds.get(value) if isinstance(value, str) else None
    if kind in _TENSORS:
        return Source("tensor", value)
    if isinstance(value, str) and (found := _float(value, kind, scope, place)) is not None:
        return found if found.kind == "float" else None
    if kind in ("str", "dtype"):
        hint = f'a kernel takes it as a constant: `{{ value = "{value}", choices = [ ... ] }}`'
        place.error(f"`{value}` is no number", hint)
        return None
    expression = scope.expression(value, place)
    if expression is None:
        return None
    return Source("bool" if scope.is_condition(expression) else "int", expression=expression)


def _float(text: str, kind: str | None, scope: Scope, place: Place) -> Source | None:
    """A float argument, with what it is where it may be None, or an item of a list of floats.

    Returns:
        None where the text is something else; a source of another kind after an error.
    """
    default, item = _DEFAULT.fullmatch(text), _ITEM.fullmatch(text)
    name = default["name"] if default else item["name"] if item else text
    wanted = "floats" if item else "float"
    if scope.kinds.get(name, kind) != wanted:
        return None
    may_be_none = name in scope.optional and name not in scope.given
    if may_be_none and default is None:
        hint = f"say what it is then: `{name} if {name} is not None else 1.0`" if not item else ""
        place.error(f"`{name}` may be None", hint or f'launch with `when = "{name} is not None"`')
        return Source("none")
    if default and name not in scope.optional:
        place.error(f"`{name}` is never None", f"write `{name}`")
        return Source("none")
    literal = float(default["literal"]) if default else None
    return Source("float", name, literal=literal, item=int(item["at"]) if item else None)


def _tuple(items: Any, dialect: Dialect, scope: Scope, place: Place) -> Source | None:
    if not items:
        place.error("is an empty tuple", "name what the kernel gets")
    read = []
    for index, item in enumerate(items):
        where = place.at(index)
        if isinstance(item, (str, int, float)):
            read.append(source_of(item, dialect, scope, where))
        else:
            where.error(f"must be a tensor or an expression, not {toml_type(item)}")
    found = tuple(source for source in read if source is not None)
    return Source("tuple", items=found) if items and len(found) == len(items) else None


def _descriptor(table: Mapping[str, Any], scope: Scope, place: Place) -> Source | None:
    errors = place.errors
    for key in table.keys() - set(_KEYS):
        place.at(key).error("unknown key", one_of(key, _KEYS))
    name = _described(table.get("tensor"), scope, place)
    block = _block(table.get("block"), scope, place.at("block"))
    rule = scope.shapes.get(name)
    rank = rule.rank if rule is not None else None
    if block and rank is not None and rank != len(block):
        place.at("block").error(f"`{name}` has {rank} dimensions, not {len(block)}")
    padding = _padding(table.get("padding", "zero"), place)
    if place.errors > errors:
        return None
    return Source("descriptor", name, block=block, padding=padding)


def _described(value: Any, scope: Scope, place: Place) -> str:
    tensors = scope.tensors()
    if value not in tensors:
        where = place.at("tensor") if value is not None else place
        hint = one_of(str(value), tensors) if value is not None else "e.g. `{ tensor = ... }`"
        where.error(f"a descriptor is of a tensor, not of `{value}`", hint)
        return ""
    if value in scope.optional and value not in scope.given:
        hint = f'describe it in a launch of its own, `when = "has({value})"`'
        place.at("tensor").error(f"`{value}` may be None", hint)
    return str(value)


def _block(values: Any, scope: Scope, place: Place) -> tuple[Expression, ...]:
    if not isinstance(values, (list, tuple)) or not 0 < len(values) <= _MOST_DIMENSIONS:
        hint = 'e.g. `block = ["BLOCK_M", "BLOCK_K"]`'
        place.error(f"lists 1 to {_MOST_DIMENSIONS} sizes", hint)
        return ()
    read = [_size(value, scope, place.at(index)) for index, value in enumerate(values)]
    return tuple(size for size in read if size is not None)


def _size(value: Any, scope: Scope, place: Place) -> Expression | None:
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
        place.error(f"`{size}` is no size")
    return size


def _padding(value: Any, place: Place) -> Literal["zero", "nan"]:
    if value not in ("zero", "nan"):
        place.at("padding").error(f"must be `zero` or `nan`, not `{value}`")
    return "nan" if value == "nan" else "zero"
