"""C++ that checks the shapes of a call, and allocates what the rules describe."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.languages.expression import Expression
from kbuild.languages.launcher.dtypes import dtype_of
from kbuild.languages.launcher.text import Names, literal
from kbuild.languages.spec import OpSpec, ShapeRule


def shape_checks(op: OpSpec) -> Iterator[str]:
    """Statements: ranks first, so that everything after them can be read."""
    rules = [rule for rule in op.shapes if rule.tensor in op.inputs]
    for rule in rules:
        yield from _guarded(op, rule.tensor, _rank(rule))
    for rule in rules:
        yield from _guarded(op, rule.tensor, _likeness(rule))
    owner = batch_owner(op)
    for rule in rules:
        if owner is not None and None in rule.dims and rule.tensor != owner.tensor:
            yield from _guarded(op, rule.tensor, _batch(rule, owner))
    for rule in rules:
        yield from _guarded(op, rule.tensor, _dims(op, rule))


def _guarded(op: OpSpec, tensor: str, lines: Iterator[str]) -> Iterator[str]:
    body = list(lines)
    if body and tensor in op.optional:
        yield f"if (t_{tensor}.handle != nullptr) {{"
        yield from (f"  {line}" for line in body)
        yield "}"
    else:
        yield from body


def _rank(rule: ShapeRule) -> Iterator[str]:
    if rule.like:
        return
    count = sum(dim is not None for dim in rule.dims)
    open_ = None in rule.dims
    if count or not open_:
        name = rule.tensor
        yield (
            f"if (KBUILD_UNLIKELY(t_{name}.dim {'<' if open_ else '!='} {count})) "
            f"wrong_rank(op, {literal(name)}, t_{name}, {count}, {str(open_).lower()});"
        )


def _likeness(rule: ShapeRule) -> Iterator[str]:
    a, b = rule.tensor, rule.like
    if b:
        words = literal(" must have the same shape")
        yield (
            f"if (KBUILD_UNLIKELY(!same_shape(t_{a}, t_{b}))) "
            f"wrong_shape(op, {literal(a)}, t_{a}, {literal(b)}, t_{b}, {words});"
        )


def batch_owner(op: OpSpec) -> ShapeRule | None:
    """The argument that says what `...` is."""
    always = (r for r in op.shapes if r.tensor in op.inputs and r.tensor not in op.optional)
    return next((rule for rule in always if None in rule.dims), None)


def _around(rule: ShapeRule) -> tuple[int, int]:
    """Dimensions before and behind `...`."""
    before = rule.dims.index(None)
    return before, len(rule.dims) - before - 1


def _batch(rule: ShapeRule, owner: ShapeRule) -> Iterator[str]:
    a, b = rule.tensor, owner.tensor
    (before_a, behind_a), (before_b, behind_b) = _around(rule), _around(owner)
    count_a = f"t_{a}.dim - {before_a + behind_a}"
    count_b = f"t_{b}.dim - {before_b + behind_b}"
    words = literal(" differ in the dimensions that `...` stands for")
    yield (
        f"if (KBUILD_UNLIKELY({count_a} != {count_b} || !same_dims(t_{a}.sizes + {before_a}, "
        f"t_{b}.sizes + {before_b}, {count_a}))) "
        f"wrong_shape(op, {literal(a)}, t_{a}, {literal(b)}, t_{b}, {words});"
    )


def _dims(op: OpSpec, rule: ShapeRule) -> Iterator[str]:
    given = {(size.tensor, size.axis) for size in op.sizes}
    name = rule.tensor
    for position, dim in enumerate(rule.dims):
        axis = rule.axis(position)
        if dim is None or (name, axis) in given:
            continue
        yield from expected(op, dim)
        yield (
            f"if (KBUILD_UNLIKELY(t_{name}.sizes[{index_of(f't_{name}', axis)}] != wanted)) "
            f"wrong_size(op, {literal(name)}, t_{name}, {axis}, {literal(str(dim))}, wanted);"
        )


def expected(op: OpSpec, dim: Expression) -> Iterator[str]:
    """Statements that set `wanted`."""
    yield f"checked.what = {literal(f'`{op.name}`: `{dim}`')};"
    yield f"wanted = {Names(op).cxx(dim)};"


def index_of(tensor: str, axis: int) -> str:
    """A dimension's index; negative ones are counted from the tensor's end."""
    return str(axis) if axis >= 0 else f"{tensor}.dim - {-axis}"


def allocations(op: OpSpec) -> Iterator[str]:
    """Statements that make results and temporaries, by their rules."""
    device = next(name for name in op.inputs if name not in op.optional)
    for name in (*op.results, *op.temporaries):
        rule = next(rule for rule in op.shapes if rule.tensor == name)
        yield f"if (r_{name}) {{" if name in op.may_be_none else "{"
        yield "  Shape shape;"
        yield from (f"  {line}" for line in _allocated(op, rule))
        dtype = dtype_of(op, name)
        allocate = "allocate" if name in op.results else "allocate_temporary"
        yield f"  ::{allocate}(op, {literal(name)}, t_{name}, shape, {dtype}, t_{device}.device);"
        yield "}"


def _allocated(op: OpSpec, rule: ShapeRule) -> Iterator[str]:
    add = f"shape.add(op, {literal(rule.tensor)}, "
    if rule.like:
        yield f"{add}t_{rule.like}.sizes, t_{rule.like}.sizes + t_{rule.like}.dim);"
    for dim in rule.dims:
        if dim is None:
            owner = batch_owner(op)
            if owner is None:
                raise ValueError(f"nothing says what `...` of `{rule.tensor}` is")
            before, behind = _around(owner)
            sizes = f"t_{owner.tensor}.sizes"
            yield f"{add}{sizes} + {before}, {sizes} + t_{owner.tensor}.dim - {behind});"
        else:
            yield from expected(op, dim)
            yield f"{add}wanted);"
