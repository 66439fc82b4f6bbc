"""The schema of an op: what kbuild can make an op of, and the names that it brings."""

from __future__ import annotations

import keyword

from kbuild.languages.expression.nodes import FUNCTIONS, QUERIES
from kbuild.languages.schema import Argument, Schema, SchemaError, parse_schema
from kbuild.languages.spec.place import Place
from kbuild.languages.spec.scope import Kind, Scope

_BASES: dict[str, Kind] = {
    "Tensor": "tensor",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "ScalarType": "dtype",
    "Device": "device",
}
_ITEMS: dict[str, Kind] = {"int": "list", "SymInt": "list", "bool": "list", "float": "floats"}
"""Of what lists are passed, and what they are then."""
_INSTEAD = {
    "Tensor": "write `Tensor?[]`: each of its tensors may be None",
    "Stream": "an op launches on the current stream of its tensors' device",
    "Layout": "Python around the op makes its tensors strided; kernels know no other layout",
    "MemoryFormat": "Python around the op calls `.contiguous(...)`; kernels get the strides",
    "Scalar": "say which it is: `float`, `int` or `bool`",
    "complex": "pass its two parts as floats",
    "Generator": "pass a seed and an offset as integers",
}
"""What no op takes, alone or in a list."""
_RESERVED = {"torch", *FUNCTIONS, *QUERIES, "and", "or", "not", "if", "else", "True", "False"}
RESULT = "out"
"""What a single result without a name is called; several are `out0`, `out1`, ..."""


def read_schema(text: str, place: Place) -> Schema | None:
    """The schema; None after an error that leaves nothing to go on with."""
    try:
        schema = parse_schema(text)
    except SchemaError as error:
        place.error(f"{error.message} (column {error.column})", error.hint)
        return None
    if "::" in schema.name:
        place.error(f"`{schema.name}` has a namespace", "kbuild gives each variant its own")
    if schema.overload:
        place.error("overloads are not supported", "give each op a name of its own")
    tensors = [one for one in schema.arguments if one.type.name == "Tensor"]
    if not any(one.type.suffixes[:1] != ("?",) for one in tensors):
        lacks = "has no tensor argument" + (" that is always there" if tensors else "")
        place.error(lacks, "the first one says on which device the op runs")
    elif not schema.returns and not schema.mutated:
        hint = "add a result, or mark what is written to: `Tensor(a!) out`"
        place.error("returns nothing and writes to nothing", hint)
    _judge_names(schema, place)
    _judge_types(schema, place)
    return schema


def result_names(schema: Schema) -> tuple[str, ...]:
    """The names of the results, those without a name included."""
    if len(schema.returns) == 1:
        return (schema.returns[0].name or RESULT,)
    return tuple(one.name or f"{RESULT}{index}" for index, one in enumerate(schema.returns))


def enter(schema: Schema, scope: Scope, place: Place) -> None:
    """Put the names of arguments and results into the scope."""
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


def kind_of(argument: Argument) -> Kind | None:
    """What an argument is in expressions; None where no op takes such a thing."""
    suffixes = argument.type.suffixes[: -1 if argument.type.is_optional else None]
    if not suffixes:
        return _BASES.get(argument.type.name)
    if argument.type.name == "Tensor":
        is_list = suffixes[-1] != "?" and not argument.type.is_optional
        return "tensors" if is_list else None
    return _ITEMS.get(argument.type.name) if len(suffixes) == 1 and suffixes != ("?",) else None


def _judge_names(schema: Schema, place: Place) -> None:
    names = [schema.name.rpartition("::")[2], *(a.name for a in schema.arguments)]
    for name in (*names, *result_names(schema)):
        if keyword.iskeyword(name) or name in _RESERVED:
            place.error(f"`{name}` cannot be a name here", "it has a meaning of its own")


def _judge_types(schema: Schema, place: Place) -> None:
    for argument in schema.arguments:
        if kind_of(argument) is None:
            name, inner = argument.type.name, argument.type.suffixes[:1]
            single = f"{name}{'?' * (inner == ('?',))}"
            hint = _INSTEAD.get(name) or f"write one `{single}` argument for each"
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
            hint = "Torch's compiler takes such an op only without: `-> ()`"
            place.error(f"the result `{result}` is one of the arguments", hint)
        elif not result.type.is_tensor:
            place.error(f"a result is a `{result.type}`", "results are tensors")
