"""Pieces of C++ source: string literals, constant arrays, and the names of an op's values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbuild.ops.dtypes import DTYPES
from kbuild.ops.expression import Expression, Query
from kbuild.ops.expression.floating import FloatName
from kbuild.ops.expression.nodes import LIST_QUERIES, Leaf, Match
from kbuild.ops.model import OpSpec
from kbuild.ops.schema.model import SchemaArgument
from kbuild.ops.steps import ArgumentSource

DTYPE_ORDER = tuple(DTYPES)
"""Dtypes in the order of the runtime's table."""
CXX_TYPES = {"float": "double", "bool": "bool"}
"""Schema type -> C++ type; all others are `Int`."""
_NUMBERS = ("int", "SymInt", "float", "bool")
_OTHERS = {"str": "Text", "ScalarType": "DtypeArgument", "Device": "DeviceArgument"}


def is_required_number(argument: SchemaArgument) -> bool:
    """True for a number that every call passes."""
    kind = argument.type
    return kind.name in _NUMBERS and not kind.suffixes


def member_of(argument: SchemaArgument) -> str:
    """Name of the member of a call that holds an argument."""
    return f"{'t' if argument.type.is_tensor else 'a'}_{argument.name}"


def member_type(argument: SchemaArgument) -> str:
    """C++ type of the member of a call that holds an argument."""
    kind = argument.type
    if kind.is_tensor:
        return "OptionalTensor" if kind.is_optional else "Tensor"
    if kind.is_tensor_list:
        return "TensorList"
    if kind.name in _OTHERS:
        return _OTHERS[kind.name]
    number = CXX_TYPES.get(kind.name, "Int")
    if kind.is_list:
        return f"List<{'double' if kind.name == 'float' else 'Int'}>"
    return f"Maybe<{number}>" if kind.is_optional else number


def cxx_string(text: str) -> str:
    """C string literal."""
    parts = []
    for byte in text.encode():
        char = chr(byte)
        # `?` is escaped, since `??` begins a trigraph.
        plain = " " <= char <= "~" and char not in '\\"?'
        # Three octal digits: hexadecimal escapes would go on with the digits after them.
        parts.append(char if plain else f"\\{byte:03o}")
    return '"' + "".join(parts) + '"'


def cxx_double(value: float) -> str:
    """C++ literal of a double."""
    if math.isnan(value):
        return "std::numeric_limits<double>::quiet_NaN()"
    if math.isinf(value):
        return f"{'-' * (value < 0)}std::numeric_limits<double>::infinity()"
    return repr(value)


def c_identifier(name: str) -> str:
    """C identifier for a name that need not be one, such as a kernel's."""
    return re.sub(r"\W", "_", name)


def suffix_of(tensor: str) -> str:
    """Suffix of a tensor's C names: `x`, or `0_xs` for `xs[0]`, which no argument can have."""
    name, _, item = tensor.rstrip("]").partition("[")
    return f"{item}_{name}" if item else name


def cxx_array(kind: str, name: str, items: Iterable[str], *, per_line: int = 1) -> str:
    """C++ definition of a constant array; it has one empty item if `items` is empty."""
    rows = list(items)
    lines = [", ".join(rows[at : at + per_line]) for at in range(0, len(rows), per_line)]
    body = "".join(f"    {line},\n" for line in lines) or "    {},\n"
    return f"const {kind} {name}[] = {{\n{body}}};\n"


def dtype_of(op: OpSpec, tensor: str, call: str = "") -> str:
    """C++ index, into the runtime's table, of the dtype of a result, temporary or view.

    Args:
        op: the op.
        tensor: name of the tensor.
        call: prefix of the call's members.
    """
    base = op.dtype_rule(tensor)
    if base.tensor in op.dtype_arguments:
        return f"{call}a_{base.tensor}.kind"
    inputs = [name for name in op.inputs if op.dtype_rule(name) is base]
    # An optional tensor may be None, and then has no dtype.
    always = [name for name in inputs if name not in op.optional]
    return f"{call}t_{always[0]}.dtype" if always else str(DTYPE_ORDER.index(base.choices[0]))


_MEMBERS = {"numel": "numel", "dim": "dim", "itemsize": "itemsize()", "address": "address()"}


@dataclass(frozen=True)
class CxxNames:
    """C++ names for the values of an op."""

    op: OpSpec
    call: str = ""
    """Prefix of the call's members: empty inside of the call, else `call.`."""
    constants: Mapping[str, str] = field(default_factory=dict)

    def cxx(self, expression: Expression) -> str:
        """C++ code of an expression; a variable `checked` has to be in scope."""
        return expression.to_cxx({leaf.key: self.leaf(leaf) for leaf in expression.leaves()})

    def leaf(self, leaf: Leaf) -> str:
        """C++ code of one name or query."""
        if isinstance(leaf, Query):
            return self.constants.get(leaf.key) or self._question(leaf)
        if isinstance(leaf, Match):
            return f"Int({self._matches(leaf)})"
        if any(size.name == leaf.name for size in self.op.sizes):
            return f"{self.call}n_{leaf.name}()"
        if any(name == leaf.name for name, _ in self.op.let):
            return f"{self.call}l_{leaf.name}()"
        argument = self.op.schema.argument(leaf.name)
        if argument is not None:
            value = ".value" if argument.type.is_optional else ""
            return f"Int({self.call}{member_of(argument)}{value})"
        return self.constants[leaf.name]

    def floating(self, source: ArgumentSource) -> str:
        """C++ code of a float: an argument, an item of a list, a literal or a formula.

        For a formula, a variable `checked` has to be in scope.
        """
        if source.formula is not None:
            names: dict[str, str] = {}
            for expression in source.formula.integers():
                names |= {leaf.key: self.leaf(leaf) for leaf in expression.leaves()}
            floats = {part.key: self._float(part) for part in source.formula.floats()}
            return source.formula.to_cxx(names, floats)
        if not source.name:
            return cxx_double(source.literal or 0.0)
        member = f"{self.call}a_{source.name}"
        argument = self.op.schema.argument(source.name)
        if source.item is not None:
            return self._item(f"{source.name}[{source.item}]", member, source.item)
        if argument is not None and argument.type.is_optional:
            return f"({member}.given ? {member}.value : {source.literal!r})"
        return member

    def _float(self, part: FloatName) -> str:
        """C++ code of a float argument that is given, or of an item of a list."""
        argument = self.op.schema.argument(part.argument)
        if part.key == part.argument:
            optional = argument is not None and argument.type.is_optional
            return f"{self.call}a_{part.key}{'.value' if optional else ''}"
        at = int(part.key.partition("[")[2][:-1])
        return self.floating(ArgumentSource("float", part.argument, item=at))

    def _matches(self, leaf: Match) -> str:
        if leaf.tensor:
            kind = DTYPE_ORDER.index(str(leaf.value))
            tensor = self.op.viewed(leaf.tensor)
            if tensor in self.op.optional:
                member = f"{self.call}t_{tensor}"
                return f"{member}.handle != nullptr && {member}.dtype == {kind}"
            return f"{dtype_of(self.op, tensor, self.call)} == {kind}"
        argument = self.op.schema.argument(leaf.name)
        member = f"{self.call}a_{leaf.name}"
        if argument is not None and argument.type.name == "ScalarType":
            return f"{member}.kind == {DTYPE_ORDER.index(str(leaf.value))}"
        if isinstance(leaf.value, str):
            return f"{member}.is({cxx_string(leaf.value)}, {len(leaf.value.encode())})"
        if argument is not None and argument.type.is_optional:
            return f"{member}.given && {member}.value {leaf.operator} {leaf.value!r}"
        return f"{member} {leaf.operator} {leaf.value!r}"

    def _question(self, query: Query) -> str:
        if not query.tensor:
            member = {"sm_count": "multiprocessors", "capability": "number"}[query.function]
            return f"Int({self.call}device->{member})"
        argument = self.op.schema.argument(query.tensor)
        if argument is not None and not argument.type.is_tensor:
            return self._of_argument(query)
        tensor = f"{self.call}t_{query.tensor}"
        optional = query.tensor in self.op.may_be_none
        if query.function == "has":
            return f"Int({tensor}.handle != nullptr)"
        if query.function in _MEMBERS:
            member = _MEMBERS[query.function]
            if optional:
                tensor = f"there({cxx_string(self.op.name)}, {cxx_string(query.key)}, {tensor})"
            return f"{tensor}.{member}"
        members = f"{tensor}.{'sizes' if query.function == 'size' else 'strides'}"
        axis, rule = query.axis or 0, self.op.shape(query.tensor)
        if optional or rule is None or rule.rank is None:
            asked = f"{cxx_string(self.op.name)}, {cxx_string(query.key)}, {tensor}, {members}"
            return f"asked({asked}, {axis})"
        return f"{members}[{axis if axis >= 0 else axis + rule.rank}]"

    def _of_argument(self, query: Query) -> str:
        """C++ code of a query about an argument that is not a tensor."""
        member = f"{self.call}a_{query.tensor}"
        if query.function not in LIST_QUERIES:
            return f"Int({member}.given)"
        if query.function == "len":
            return f"Int({member}.items.size())"
        return self._item(query.key, member, query.axis)

    def _item(self, asked: str, member: str, axis: int | None) -> str:
        return f"item_of({cxx_string(self.op.name)}, {cxx_string(asked)}, {member}, {axis})"
