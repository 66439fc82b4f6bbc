"""The fake kernel of an op: what `torch.compile` is told about its results."""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.languages.expression import Expression
from kbuild.languages.expression.nodes import Name, Query
from kbuild.languages.schema import Default, Symbol
from kbuild.languages.spec.values import OpSpec, ShapeRule

QUERIES = {
    "numel": "{tensor}.numel()",
    "dim": "{tensor}.dim()",
    "itemsize": "{tensor}.element_size()",
    "has": "({tensor} is not None)",
    "size": "{tensor}.size({axis})",
    "stride": "{tensor}.stride({axis})",
}
REGISTER = "torch.library.register_fake(add_op_namespace_prefix({name!r}))"
"""As `_ops.py` of every variant allows it."""


def fake_source(op: OpSpec, register: str = REGISTER) -> str:
    """Python source of the op's fake kernel; it needs `torch` in scope.

    Checks ranks and dimensions as the launcher does, and makes results by the rules of `shapes`,
    also for symbolic sizes.

    Args:
        op: the op.
        register: the decorator, with `{name!r}` where the op's name belongs.
    """
    head = f"@{register.format(name=op.name)}\ndef _fake_{op.name}({_parameters(op)}):\n"
    body = [*_ranks(op), *sizes_source(op), *_let(op), *_checks(op), _result(op)]
    return head + "".join(f"    {line}\n" for line in body)


def _parameters(op: OpSpec) -> str:
    parts = []
    for argument in op.schema.arguments:
        if argument.keyword_only and "*" not in parts:
            parts.append("*")
        default = f"={_value(argument.default)}" if argument.default is not None else ""
        parts.append(f"{argument.name}{default}")
    return ", ".join(parts)


def _value(default: Default) -> str:
    value = default.value
    return f"torch.{value}" if isinstance(value, Symbol) else repr(value)


def _ranks(op: OpSpec) -> Iterator[str]:
    """Every argument has as many dimensions as its rule."""
    for rule in _inputs(op):
        if rule.like:
            continue
        count = sum(dim is not None for dim in rule.dims)
        sign = ">=" if None in rule.dims else "=="
        words = "at least " if None in rule.dims else ""
        plural = "" if count == 1 else "s"
        condition = f"{rule.tensor}.dim() {sign} {count}"
        message = f"{op.name}: {rule.tensor} must have {words}{count} dimension{plural}"
        if count or sign == "==":
            yield _check(op, rule.tensor, condition, message)


def sizes_source(op: OpSpec) -> Iterator[str]:
    """Lines that give every dimension's name its value, and `...` its shape."""
    for size in op.sizes:
        yield f"{_local(size.name)} = {size.tensor}.size({size.axis})"
    batch = _batch_owner(op)
    if batch is not None:
        yield f"__batch = {batch.tensor}.shape{_batch_slice(batch)}"


def _batch_owner(op: OpSpec) -> ShapeRule | None:
    """The argument that says what `...` is."""
    always = (rule for rule in _inputs(op) if rule.tensor not in op.optional)
    return next((rule for rule in always if None in rule.dims), None)


def _batch_slice(rule: ShapeRule) -> str:
    before = rule.dims.index(None)
    behind = len(rule.dims) - before - 1
    return f"[{before or ''}:{f'-{behind}' if behind else ''}]"


def _let(op: OpSpec) -> Iterator[str]:
    """Only what shapes need: other names may ask for what fake tensors do not have."""
    dims = (dim for rule in op.shapes for dim in rule.dims if dim is not None)
    needed = {name for dim in dims for name in dim.names()}
    for name, expression in reversed(op.let):
        needed |= expression.names() if name in needed else set()
    for name, expression in op.let:
        if name in needed:
            yield f"{_local(name)} = {_python(op, expression)}"


def _checks(op: OpSpec) -> Iterator[str]:
    owner = _batch_owner(op)
    for rule in _inputs(op):
        if rule.like:
            condition = f"{rule.tensor}.shape == {rule.like}.shape"
            message = f"{op.name}: {rule.tensor} must have the shape of {rule.like}"
            yield _check(op, rule.tensor, condition, message)
            continue
        if None in rule.dims and owner is not None and rule.tensor != owner.tensor:
            condition = f"{rule.tensor}.shape{_batch_slice(rule)} == __batch"
            message = (
                f"{op.name}: {rule.tensor} and {owner.tensor} differ in their first dimensions"
            )
            yield _check(op, rule.tensor, condition, message)
        yield from _dim_checks(op, rule)


def _dim_checks(op: OpSpec, rule: ShapeRule) -> Iterator[str]:
    given = {(size.tensor, size.axis) for size in op.sizes}
    for position, dim in enumerate(rule.dims):
        axis = rule.axis(position)
        if dim is None or (rule.tensor, axis) in given:
            continue
        condition = f"{rule.tensor}.size({axis}) == {_python(op, dim)}"
        message = f"{op.name}: dimension {axis} of {rule.tensor} must be {dim}"
        yield _check(op, rule.tensor, condition, message)


def _check(op: OpSpec, tensor: str, condition: str, message: str) -> str:
    guard = f"if {tensor} is not None: " if tensor in op.optional else ""
    return f"{guard}torch._check({condition}, lambda: {message!r})"


def _result(op: OpSpec) -> str:
    values = [empty_source(op, name) for name in op.results]
    if not values:
        return "return None"
    return "return " + (values[0] if len(values) == 1 else f"({', '.join(values)})")


def empty_source(op: OpSpec, name: str) -> str:
    """A result's or a temporary's memory; it needs the lines of `sizes_source`, and `let`."""
    rule = next(rule for rule in op.shapes if rule.tensor == name)
    shape = f"{rule.like}.shape" if rule.like else _shape(op, rule)
    device = next(name for name in op.inputs if name not in op.optional)
    return f"torch.empty({shape}, dtype={_dtype(op, name)}, device={device}.device)"


def _shape(op: OpSpec, rule: ShapeRule) -> str:
    parts = ["*__batch" if dim is None else _python(op, dim) for dim in rule.dims]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dtype(op: OpSpec, name: str) -> str:
    """The dtype of the argument that it follows, or the only one that there is."""
    always = [tensor for tensor in op.inputs if tensor not in op.optional]
    rules = {rule.tensor: rule for rule in op.dtypes}
    rule = rules[name]
    while rule.like and rule.tensor not in always:
        rule = rules[rule.like]
    return f"{rule.tensor}.dtype" if rule.tensor in always else f"torch.{rule.choices[0]}"


def _inputs(op: OpSpec) -> list[ShapeRule]:
    return [rule for rule in op.shapes if rule.tensor in op.inputs]


def _local(name: str) -> str:
    return f"_{name}"


def _python(op: OpSpec, expression: Expression) -> str:
    own = {size.name for size in op.sizes} | {name for name, _ in op.let}
    names = {}
    for leaf in expression.leaves():
        if isinstance(leaf, Name):
            names[leaf.key] = _local(leaf.name) if leaf.name in own else leaf.name
        else:
            names[leaf.key] = _question(leaf)
    return expression.to_python(names)


def _question(query: Query) -> str:
    return QUERIES[query.function].format(tensor=query.tensor, axis=query.axis)
