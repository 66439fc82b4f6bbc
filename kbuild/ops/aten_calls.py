"""The calls through Torch's stable ABI that perform an ATen operator.

It passes no `Scalar`, so operators that take one are called through others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files

from kbuild.ops.expression import parse
from kbuild.ops.expression.floating import FloatExpression
from kbuild.ops.schema.model import Schema, Type
from kbuild.ops.schema.parser import parse_schema
from kbuild.ops.steps import ArgumentSource, AtenValue, DispatcherCall

_ADDED = {"add": "add", "sub": "sub", "subtract": "sub", "rsub": "rsub"}
FILLED = {
    "full": ("empty.memory_format", 1, True),
    "full_like": ("empty_like", 1, False),
    "new_full": ("new_empty", 2, False),
}
"""Operator -> the operator that allocates its memory, the index of the value, and True if the
allocating operator takes a memory format in addition."""
_WITH_CPU_SCALAR = frozenset(
    name + end
    for end in ("", "_")
    for name in (
        *("mul", "multiply", "div", "divide", "true_divide", "floor_divide", "remainder", "fmod"),
        *("pow", "eq", "ne", "lt", "le", "gt", "ge", "greater", "greater_equal", "less"),
        *("less_equal", "not_equal", "bitwise_and", "bitwise_or", "bitwise_xor", "masked_fill"),
        *("fill", "where", "copysign", "xlogy"),
    )
)
"""Operators that accept a host tensor without dimensions beside GPU tensors."""


@lru_cache(maxsize=1)
def operators() -> Mapping[str, str]:
    """Schemas by operator and overload."""
    text = files("kbuild.ops").joinpath("aten_schemas.txt").read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return {line.partition("(")[0]: line for line in lines}


def dispatcher_calls(  # noqa: PLR0911
    schema: Schema, values: Sequence[AtenValue]
) -> tuple[DispatcherCall, ...] | None:
    """Calls that the stable ABI can make for an operator; None if there are none."""
    returned = tuple(result.type.is_list for result in schema.returns)
    operator = f"{schema.name}.{schema.overload}" if schema.overload else schema.name
    base = schema.name.removesuffix("_")
    # Without a `Scalar`, the operator itself can be called.
    if not any(argument.type.name == "Scalar" for argument in schema.arguments):
        return (DispatcherCall(operator, tuple(values), returned),)
    if base in _ADDED and schema.overload in ("Tensor", "Scalar"):
        return _in_place(schema, values, _addition(_ADDED[base], values))
    if schema.name in FILLED and not schema.overload:
        return _filled(schema, values)
    if base in ("clamp", "clamp_min", "clamp_max") and not schema.overload:
        return _in_place(schema, values, _clamped(base, values))
    # `linear` adds its bias to a product with the transposed weight.
    if schema.name == "addmm" and [v.number for v in values[3:]] == [one(), one()]:
        transposed = DispatcherCall("t", (values[2],))
        return transposed, DispatcherCall("linear", (values[1], AtenValue("previous"), values[0]))
    if schema.name == "arange":
        return _indices(schema, values)
    # `pad` takes the value as a float.
    if schema.name == "constant_pad_nd":
        number = values[2].number or ArgumentSource("none")
        value = AtenValue("number", number=as_float(number))
        mode = AtenValue("str", text="constant")
        return (DispatcherCall("pad", (values[0], values[1], mode, value)),)
    other = _with_tensors(schema) if schema.name in _WITH_CPU_SCALAR else ""
    return (DispatcherCall(other, tuple(values), returned),) if other else None


def _in_place(
    schema: Schema, values: Sequence[AtenValue], calls: tuple[DispatcherCall, ...] | None
) -> tuple[DispatcherCall, ...] | None:
    """The calls, and a copy to the first argument for an operator that writes to it."""
    if calls is None or not schema.name.endswith("_"):
        return calls
    blocking = AtenValue("number", number=ArgumentSource("bool", expression=parse("False")))
    return *calls, DispatcherCall("copy_", (values[0], AtenValue("previous"), blocking))


def _addition(function: str, values: Sequence[AtenValue]) -> tuple[DispatcherCall, ...] | None:
    """The stable ABI's own addition, which takes the factor as a number."""
    first, second, alpha = values
    if function == "rsub":
        first, second, function = second, first, "sub"
    if second.kind == "scalar" and alpha.number != one():
        return None
    factor = AtenValue("number", number=as_float(alpha.number or ArgumentSource("none")))
    return (DispatcherCall(function, (first, second, factor)),)


def _filled(schema: Schema, values: Sequence[AtenValue]) -> tuple[DispatcherCall, ...]:
    """Allocate, then fill: `fill_.Tensor` takes the value as a tensor."""
    empty, at, formatted = FILLED[schema.name]
    others = [*values[:at], *values[at + 1 :], *((AtenValue("none"),) * formatted)]
    number = values[at].number
    # Torch takes the dtype of `full` from its number, which `empty` does not get.
    if schema.name == "full" and others[1].kind == "none" and number is not None:
        dtype = {"int": "int64", "bool": "bool"}.get(number.kind, "float32")
        others[1] = AtenValue("dtype", text=dtype, optional=True)
    fill = DispatcherCall("fill_.Tensor", (AtenValue("previous"), values[at]))
    return DispatcherCall(empty, tuple(others)), fill


def _clamped(base: str, values: Sequence[AtenValue]) -> tuple[DispatcherCall, ...]:
    """A maximum and a minimum, each of which takes a tensor as its limit."""
    names = {"clamp": ("maximum", "minimum"), "clamp_min": ("maximum",)}.get(base, ("minimum",))
    given = [pair for pair in zip(names, values[1:], strict=True) if pair[1].kind != "none"]
    tensors = (values[0], *((AtenValue("previous"),) * (len(given) - 1)))
    return tuple(
        DispatcherCall(name, (tensor, limit))
        for (name, limit), tensor in zip(given, tensors, strict=True)
    )


def _indices(schema: Schema, values: Sequence[AtenValue]) -> tuple[DispatcherCall, ...] | None:
    """The integers from zero on: the first row of `tril_indices`, which takes integers."""
    limits = {a.name: v.number for a, v in zip(schema.arguments, values, strict=True) if v.number}
    zero = ArgumentSource("int", expression=parse(0))
    is_plain = limits.get("start", zero) == zero and limits.get("step", one()) == one()
    end, (dtype, *others) = limits["end"], values[-4:]
    if not is_plain or end.kind != "int" or dtype.name or dtype.text not in ("", "int32", "int64"):
        return None
    first, step = (AtenValue("number", number=number) for number in (zero, one()))
    kind = dtype if dtype.text else AtenValue("dtype", text="int64", optional=True)
    rows = (AtenValue("number", number=end), step, first, kind, *others)
    row = (AtenValue("previous"), first, first)
    return DispatcherCall("tril_indices", rows), DispatcherCall("select.int", row)


def boxed(call: DispatcherCall) -> DispatcherCall:
    """Return the call, with values boxed where the schema of its operator has `?`."""
    text = operators().get(call.operator)
    # `add` and `sub` are functions of the stable ABI, and have no schema in the table.
    if text is None:
        return call
    pairs = zip(parse_schema(text).arguments, call.values, strict=True)
    values = tuple(replace(value, optional=a.type.is_optional) for a, value in pairs)
    return replace(call, values=values)


def one() -> ArgumentSource:
    """The integer 1."""
    return ArgumentSource("int", expression=parse(1))


def _with_tensors(schema: Schema) -> str:
    """Name of the overload with tensors in place of scalars; empty if there is none."""
    wanted = [_tensors(argument.type) for argument in schema.arguments]
    for name, text in operators().items():
        if name.partition(".")[0] == schema.name:
            other = parse_schema(text)
            if [_plain(argument.type) for argument in other.arguments] == wanted:
                return name
    return ""


def _plain(type_: Type) -> tuple[str, tuple[str, ...]]:
    return type_.name, type_.suffixes


def _tensors(type_: Type) -> tuple[str, tuple[str, ...]]:
    return ("Tensor" if type_.name == "Scalar" else type_.name), type_.suffixes


def as_float(source: ArgumentSource) -> ArgumentSource:
    """Return the number as a float."""
    if source.kind == "float" or source.expression is None:
        return source
    constant = source.expression.constant
    if constant is not None:
        return ArgumentSource("float", literal=float(constant))
    formula = FloatExpression(str(source.expression), source.expression)
    return ArgumentSource("float", formula=formula)
