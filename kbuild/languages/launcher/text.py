"""Pieces of C++: literals, tables, names of an op's values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbuild.languages.expression import Expression, Query
from kbuild.languages.expression.nodes import INT64_MIN, Name
from kbuild.languages.spec import OpSpec

CXX_TYPES = {"float": "double", "bool": "bool"}
"""Of a schema -> of C++; the others are `Int`."""


def literal(text: str) -> str:
    """A C string."""
    parts = []
    for byte in text.encode():
        char = chr(byte)
        plain = " " <= char <= "~" and char not in '\\"?'
        parts.append(char if plain else f"\\{byte:03o}")
    return '"' + "".join(parts) + '"'


def number(value: int) -> str:
    """An integer of 64 bits."""
    return "INT64_MIN" if value == INT64_MIN else f"INT64_C({value})"


def identifier(name: str) -> str:
    """A C name for something that need not be one, such as a kernel's name."""
    return re.sub(r"\W", "_", name)


def array(kind: str, name: str, items: Iterable[str], *, per_line: int = 1) -> str:
    """A constant array; one empty item where there is none, since C++ has no empty arrays."""
    rows = list(items)
    lines = [", ".join(rows[at : at + per_line]) for at in range(0, len(rows), per_line)]
    body = "".join(f"    {line},\n" for line in lines) or "    {},\n"
    return f"const {kind} {name}[] = {{\n{body}}};\n"


_MEMBERS = {"numel": "numel", "dim": "dim", "itemsize": "itemsize()", "address": "address()"}


@dataclass(frozen=True)
class Names:
    """What the values of an op are called in C++."""

    op: OpSpec
    call: str = ""
    """Where the call's members are: empty inside of them, else `call.`."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Constants of a launch."""

    def tensor(self, name: str) -> str:
        """The tensor as a C++ value."""
        return f"{self.call}t_{name}"

    def of(self, expression: Expression) -> dict[str, str]:
        """The names of an expression, each with its C++."""
        return {leaf.key: self.leaf(leaf) for leaf in expression.leaves()}

    def cxx(self, expression: Expression) -> str:
        """The expression; `checked` has to be in scope."""
        return expression.to_cxx(self.of(expression))

    def leaf(self, leaf: Name | Query) -> str:
        """One name or question."""
        if isinstance(leaf, Query):
            return self._question(leaf)
        if any(size.name == leaf.name for size in self.op.sizes):
            return f"{self.call}n_{leaf.name}()"
        if any(name == leaf.name for name, _ in self.op.let):
            return f"{self.call}l_{leaf.name}()"
        if self.op.schema.argument(leaf.name) is not None:
            return f"Int({self.call}a_{leaf.name})"
        return self.constants[leaf.name]

    def _question(self, query: Query) -> str:
        if not query.tensor:
            member = {"sm_count": "multiprocessors", "capability": "number"}[query.function]
            return f"Int({self.call}device->{member})"
        tensor = self.tensor(query.tensor)
        optional = query.tensor in self.op.optional
        if query.function == "has":
            return f"Int({tensor}.handle != nullptr)"
        if query.function in _MEMBERS:
            member = _MEMBERS[query.function]
            if optional:
                tensor = f"there({literal(self.op.name)}, {literal(query.key)}, {tensor})"
            return f"{tensor}.{member}"
        members = "sizes" if query.function == "size" else "strides"
        axis = query.axis or 0
        rule = self.op.shape(query.tensor)
        if optional or rule is None or rule.rank is None:
            asked = f"{literal(self.op.name)}, {literal(query.key)}, {tensor}, {tensor}.{members}"
            return f"asked({asked}, {axis})"
        return f"{tensor}.{members}[{axis if axis >= 0 else axis + rule.rank}]"
