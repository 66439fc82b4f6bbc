"""Reads the ATen calls between the launches of an op.

Schemas come from a table, since sections are read without Torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbuild.ops.aten_calls import FILLED, as_float, boxed, dispatcher_calls, operators
from kbuild.ops.constants import NONE
from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import parse
from kbuild.ops.launches import read_condition, read_number
from kbuild.ops.schema.model import DefaultValue, Schema, SchemaArgument, Type
from kbuild.ops.schema.parser import parse_schema
from kbuild.ops.scope import OpScope
from kbuild.ops.steps import ArgumentSource, AtenCall, AtenValue
from kbuild.project.config.file_model import LaunchKeys, LaunchSection, OpSection
from kbuild.project.config.issue import IssueCollector, did_you_mean, listed, one_of

LAYOUTS = ("strided",)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_NAMED_VALUES = {"Layout": ("layout", LAYOUTS), "MemoryFormat": ("memory_format", MEMORY_FORMATS)}
_TABLE_KEYS = ("dtype", "string", "float", "device", "none")
_ALONE = {*FILLED, "arange"}
"""Operators whose numbers may be used without another tensor argument."""
_CHOOSERS = frozenset({"condition", "mask", "index", "indices"})
"""Arguments whose dtype has no effect on that of the result."""


def read_aten_calls(
    op: OpSection, schema: Schema, allocated: Sequence[str], scope: OpScope, place: IssueCollector
) -> tuple[AtenCall, ...]:
    """Return the ATen calls of an op in order; errors are added to `place`, the op.

    Args:
        op: the op's table.
        schema: schema of the op.
        allocated: results and temporaries that are not views.
        scope: names of the op.
        place: place of the op.
    """
    calls: list[AtenCall] = []
    launches = 0
    for index, section in enumerate(op.launch):
        if section.aten is None:
            launches += 1
            continue
        where = place.at("launch", index)
        for key in LaunchKeys.model_fields:
            if getattr(section, key) != LaunchKeys.model_fields[key].default:
                where.at(key).error("belongs to a launch", "an ATen call has `arguments`")
        call = _AtenReader(section.aten, section, scope, schema, allocated, where).read(launches)
        if call is not None:
            calls.append(call)
    _validate_order(calls, scope, place)
    return tuple(calls)


def _validate_order(calls: Sequence[AtenCall], scope: OpScope, place: IssueCollector) -> None:
    """Report an ATen call that reads a tensor before another call produces it."""
    # Reversed, so that of several calls the first one is kept.
    produced = {name: call for call in reversed(calls) for name in call.produced}
    for at, call in enumerate(calls):
        for name in sorted(call.tensors()):
            root = scope.views.get(name, name)
            first = produced.get(root)
            if first is not None and call.when is None and calls.index(first) >= at:
                message = f"`{root}` is used before `{first.operator}` produces it"
                IssueCollector(call.path, place.issues).error(message, "change the order")


@dataclass(frozen=True)
class _AtenReader:
    """Reads one ATen call."""

    operator: str
    section: LaunchSection
    scope: OpScope
    op: Schema
    allocated: Sequence[str]
    place: IssueCollector

    def read(self, before: int) -> AtenCall | None:
        """Return the call; None after an error."""
        text, errors = operators().get(self.operator.removeprefix("aten::")), self.place.errors
        if text is None:
            self.place.at("aten").error(*_unknown(self.operator))
            return None
        schema = parse_schema(text)
        when = read_condition(self.section.when, self.scope, self.place.at("when"))
        values = replace(self, scope=self.scope.where(when)).values(schema)
        results = self._results(schema)
        if values is None or self.place.errors > errors:
            return None
        calls = dispatcher_calls(schema, values)
        if calls is None:
            hint = "call another operator, or launch a kernel for it"
            what = f"`{text}` takes a `Scalar`, which Torch's stable ABI cannot pass"
            self.place.at("aten").error(what, hint)
            return None
        for at, value in enumerate(values):
            if value.kind == "scalar" and not value.name and schema.name not in _ALONE:
                where = self.place.at("arguments", at)
                where.error("is a number, and no other argument is a tensor", f"`{schema}`")
                return None
        name = self.operator.removeprefix("aten::")
        aliases = _aliases(schema, values)
        return AtenCall(
            name, tuple(map(boxed, calls)), results, aliases, when, before, self.place.path
        )

    def values(self, schema: Schema) -> list[AtenValue] | None:
        """Return a value for each argument of the schema; None after an error."""
        written, place = self.section.arguments, self.place.at("arguments")
        if len(written) > len(schema.arguments):
            place.error(f"has {len(written)} values; the schema is `{schema}`")
            return None
        values = []
        for index, argument in enumerate(schema.arguments):
            if index < len(written):
                value = self._value(written[index], argument.type, place.at(index))
            elif argument.default is not None:
                value = _default(argument.default.value, argument.type)
            else:
                place.error(f"lacks `{argument}`", f"the schema is `{schema}`")
                return None
            if value is None:
                if index < len(written):
                    _explain(argument, schema, self.place)
                return None
            if argument.type.is_mutated and value.kind == "tensor":
                self._judge_written(value.name, place.at(index))
            values.append(value)
        return self._completed(schema, values)

    def _completed(self, schema: Schema, values: list[AtenValue]) -> list[AtenValue]:
        """Add the tensor that a number takes its dtype from, and the device of new memory."""
        pairs = list(zip(schema.arguments, values, strict=True))
        tensors = [v.name for a, v in pairs for v in v.flat() if v.kind == "tensor"]
        # A condition or an index does not take part in type promotion.
        followed = [v.name for a, v in pairs if v.kind == "tensor" and a.name not in _CHOOSERS]
        if schema.name in FILLED:
            followed = []
        for at, (argument, value) in enumerate(pairs):
            if value.kind == "scalar" and followed:
                values[at] = replace(value, name=followed[0])
            if argument.type.name == "Device" and value.kind == "none" and not tensors:
                device = next(n for n in self.scope.tensors() if n not in self.scope.optional)
                values[at] = AtenValue("device", device, optional=argument.type.is_optional)
        return values

    def _value(self, value: Any, type_: Type, place: IssueCollector) -> AtenValue | None:
        optional = type_.is_optional
        if value in (NONE, {"none": True}):
            if not optional:
                place.error("cannot be None")
                return None
            return AtenValue("none")
        if type_.is_list:
            return self._list(value, type_, place)
        read = self._single(value, type_, place)
        return replace(read, optional=optional) if read is not None else None

    def _list(self, value: Any, type_: Type, place: IssueCollector) -> AtenValue | None:
        inner = type_.suffixes[: -1 if type_.is_optional else None]
        item_type = Type(type_.name, None, inner[:-1])
        if isinstance(value, str) and self.scope.kinds.get(value) == "tensors":
            value = self.scope.items(value)
        if not isinstance(value, (list, tuple)):
            place.error(f"must be a list, as the schema says `{type_}`")
            return None
        items = [self._value(item, item_type, place.at(at)) for at, item in enumerate(value)]
        if any(item is None or item.kind == "scalar" for item in items):
            if None not in items:
                place.error("lists tensors, not numbers")
            return None
        return AtenValue(
            "list", items=tuple(item for item in items if item), optional=type_.is_optional
        )

    def _single(  # noqa: C901, PLR0911
        self, value: Any, type_: Type, place: IssueCollector
    ) -> AtenValue | None:
        if isinstance(value, dict):
            return self._table(value, type_, place)
        kind = self.scope.kinds.get(value) if isinstance(value, str) else None
        if type_.name == "Tensor" and isinstance(value, str) and value in self.scope.tensors():
            if value in self.scope.loose and not type_.is_optional:
                place.error(f"`{value}` may be None", f'call with `when = "has({value})"`')
                return None
            return AtenValue("tensor", value)
        if type_.name in ("str", "ScalarType") and kind == type_.name.replace(
            "ScalarType", "dtype"
        ):
            if value in self.scope.loose:
                place.error(f"`{value}` may be None", f'call with `when = "{value} is not None"`')
                return None
            return AtenValue("dtype" if kind == "dtype" else "str", str(value))
        if type_.name not in ("Tensor", "Scalar", "int", "SymInt", "bool", "float"):
            wanted = {"str": "string", "Layout": "string", "MemoryFormat": "string"}
            key = wanted.get(type_.name, "dtype" if type_.name == "ScalarType" else "device")
            place.error(f"must be `{{ {key} = ... }}`, as the schema says `{type_}`")
            return None
        if not isinstance(value, (str, int, float)):
            place.error(f"must be a {'tensor or a ' * (type_.name == 'Tensor')}number")
            return None
        number = read_number(value, self.scope, place)
        if number is None or number.kind == "none":
            return None
        if type_.name in ("Tensor", "Scalar"):
            return AtenValue("scalar", number=number)
        if type_.name == "float":
            return AtenValue("number", number=as_float(number))
        if number.kind == "float":
            place.error(f"`{value}` is a float, and the schema says `{type_}`")
            return None
        return AtenValue(
            "number", number=replace(number, kind="bool" if type_.name == "bool" else "int")
        )

    def _table(  # noqa: PLR0911
        self, table: Mapping[str, Any], type_: Type, place: IssueCollector
    ) -> AtenValue | None:
        key, word = next(iter(table.items()), ("", None))
        if len(table) != 1 or key not in _TABLE_KEYS or not isinstance(word, (str, float, int)):
            hint = "`{ dtype = ... }`, `{ string = ... }`, `{ float = ... }`, `{ device = ... }`"
            place.error("is not a value", hint)
            return None
        match key, type_.name:
            case "dtype", "ScalarType":
                return self._dtype(str(word), place.at("dtype"))
            case "string", "str":
                return AtenValue("str", text=str(word))
            case "string", ("Layout" | "MemoryFormat") as name:
                kind, known = _NAMED_VALUES[name]
                if word in known:
                    layout = kind == "layout"
                    return AtenValue("layout" if layout else "memory_format", text=str(word))
                place.at("string").error(f"`{word}` is no {kind.replace('_', ' ')}", listed(known))
                return None
            case "device", "Device":
                if word in self.scope.tensors():
                    return AtenValue("device", str(word))
                hint = one_of(str(word), self.scope.tensors())
                place.at("device").error(f"`{word}` is not a tensor", hint)
                return None
            case "float", ("float" | "Scalar" | "Tensor") as name:
                number = _float_word(word)
                if number is not None:
                    source = ArgumentSource("float", literal=number)
                    return AtenValue("number" if name == "float" else "scalar", number=source)
                place.at("float").error(f"`{word}` is not a float", 'e.g. `{ float = "-inf" }`')
                return None
        place.error(f"is no `{type_}`, as the schema says")
        return None

    def _dtype(self, word: str, place: IssueCollector) -> AtenValue | None:
        if word in self.scope.tensors() or self.scope.kinds.get(word) == "dtype":
            return AtenValue("dtype", word)
        if word in DTYPES:
            return AtenValue("dtype", text=word)
        hint = one_of(word, (*self.scope.tensors(), *DTYPES))
        place.error(f"`{word}` is neither a tensor nor a dtype", hint)
        return None

    def _judge_written(self, name: str, place: IssueCollector) -> None:
        root = self.scope.views.get(name, name)
        argument = self.op.argument(root)
        if argument is not None and not argument.type.is_mutated:
            hint = f"write `Tensor(a!) {root}` in the op's schema"
            place.error(f"`{self.operator}` writes to `{root}`, which the op only reads", hint)

    def _results(self, schema: Schema) -> tuple[str, ...]:
        names, place = self.section.results, self.place.at("results")
        is_list = len(schema.returns) == 1 and schema.returns[0].type.is_list
        in_place = any(result.type.is_mutated for result in schema.returns)
        if in_place and names:
            place.error(f"`{self.operator}` works in place", "leave `results` out")
        elif names and not is_list and len(names) != len(schema.returns):
            place.error(f"names {len(names)} of {len(schema.returns)} results of `{schema}`")
        elif not names and not in_place and schema.returns:
            place.error("is missing", f'name what it produces: `results = ["{self._example()}"]`')
        for index, name in enumerate(names):
            if name == NONE:
                continue
            if name not in self.allocated:
                hint = one_of(name, self.allocated) or "list it in `temporaries`"
                place.at(index).error(f"`{name}` is neither a result nor a temporary", hint)
            elif name in names[:index]:
                place.at(index).error(f"`{name}` is listed twice")
        return tuple(names)

    def _example(self) -> str:
        return self.allocated[0] if self.allocated else "out"


def _explain(argument: SchemaArgument, schema: Schema, place: IssueCollector) -> None:
    """Add the schema to the hint of the last error."""
    issue = place.issues[-1]
    note = f"`{argument}` of `{schema}`"
    place.issues[-1] = replace(issue, hint=f"{issue.hint}; {note}" if issue.hint else note)


def _unknown(operator: str) -> tuple[str, str]:
    every = operators()
    name = operator.removeprefix("aten::")
    overloads = [other for other in every if other.partition(".")[0] == name.partition(".")[0]]
    hint = f"overloads: {listed(overloads)}" if overloads else did_you_mean(name, every)
    return f"`{operator}` is not an operator of ATen that kbuild can call", hint


def _float_word(word: str | float) -> float | None:
    try:
        return float(word)
    except (ValueError, OverflowError):
        return None


def _default(value: DefaultValue, type_: Type) -> AtenValue:  # noqa: PLR0911
    """Value of a schema's default."""
    optional = type_.is_optional
    if value is None:
        return AtenValue("none")
    if isinstance(value, tuple):
        item = Type(type_.name)
        return AtenValue("list", items=tuple(_default(v, item) for v in value), optional=optional)
    if type_.name == "ScalarType":
        return AtenValue("dtype", text="int64", optional=optional)  # only `long` occurs
    if type_.name in _NAMED_VALUES:
        layout = type_.name == "Layout"
        return AtenValue(
            "layout" if layout else "memory_format", text=str(value), optional=optional
        )
    if type_.name == "str":
        return AtenValue("str", text=str(value), optional=optional)
    # Before integers: `bool` is derived from `int`.
    if isinstance(value, bool):
        number = ArgumentSource("bool", expression=parse(str(value)))
    elif isinstance(value, int):
        number = ArgumentSource("int", expression=parse(value))
    elif isinstance(value, float):
        number = ArgumentSource("float", literal=value)
    else:  # `Mean`, the only default of a reduction, which is 1
        number = ArgumentSource("int", expression=parse(1))
    if type_.name == "Scalar":
        return AtenValue("scalar", number=number, optional=optional)
    return AtenValue(
        "number", number=as_float(number) if type_.name == "float" else number, optional=optional
    )


def _aliases(schema: Schema, values: Sequence[AtenValue]) -> tuple[str, ...]:
    """Tensors whose memory the results may share."""
    shared = {name for r in schema.returns if r.type.alias for name in r.type.alias.before}
    names = []
    for argument, value in zip(schema.arguments, values, strict=True):
        alias = argument.type.alias
        if alias is not None and not alias.write and (shared & {*alias.before} or alias.after):
            names += [v.name for v in value.flat() if v.kind == "tensor"]
    return tuple(names)
