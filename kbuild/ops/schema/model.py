"""A schema as frozen values; `str()` of each is its canonical text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

BASES = (
    *("Tensor", "int", "SymInt", "float", "bool", "str", "Scalar", "complex"),
    *("ScalarType", "Layout", "MemoryFormat", "Device", "Generator", "Stream"),
)
"""Types that a schema may name."""


@dataclass(frozen=True)
class SymbolicDefault:
    """A default that is a word, such as `contiguous_format`, `bfloat16`, `Mean`."""

    name: str

    def __str__(self) -> str:
        return self.name


DefaultValue: TypeAlias = (
    "bool | int | float | str | SymbolicDefault | tuple[DefaultValue, ...] | None"
)


@dataclass(frozen=True)
class Alias:
    """The annotation `(a!)` of a type: the memory that it shares, and if it is written to."""

    before: tuple[str, ...] = ()
    """Alias sets on entry, sorted; empty for the short form `Tensor!`."""
    write: bool = False
    after: tuple[str, ...] | None = None
    """Alias sets on return if they differ: `(a -> *)`."""

    def __str__(self) -> str:
        if not self.before:
            return "!"
        text = "|".join(self.before) + ("!" if self.write else "")
        arrow = f" -> {'|'.join(self.after)}" if self.after is not None else ""
        return f"({text}{arrow})"


@dataclass(frozen=True)
class Type:
    """A type such as `Tensor(a!)?` or `int[2]`."""

    name: str
    """One of `BASES`."""
    alias: Alias | None = None
    suffixes: tuple[str, ...] = ()
    """`?`, `[]` or `[2]`, the innermost first."""

    @property
    def is_tensor(self) -> bool:
        """True for a single tensor, which may be optional."""
        return self.name == "Tensor" and not self.is_list

    @property
    def is_list(self) -> bool:
        """True for `int[]` and the like, also if optional."""
        return any(suffix.startswith("[") for suffix in self.suffixes)

    @property
    def is_tensor_list(self) -> bool:
        """True for a list of tensors."""
        return self.name == "Tensor" and self.is_list

    @property
    def items(self) -> tuple[Type, ...]:
        """Types of the items of a list with a size; empty for other types."""
        at = next((i for i, suffix in enumerate(self.suffixes) if suffix.startswith("[")), None)
        if at is None or not (size := self.suffixes[at][1:-1]):
            return ()
        return (Type(self.name, self.alias, self.suffixes[:at]),) * int(size)

    @property
    def is_optional(self) -> bool:
        """True if None is allowed."""
        return self.suffixes[-1:] == ("?",)

    @property
    def is_mutated(self) -> bool:
        """True if the op writes to it."""
        return self.alias is not None and self.alias.write

    def __str__(self) -> str:
        return f"{self.name}{self.alias or ''}{''.join(self.suffixes)}"


@dataclass(frozen=True)
class Default:
    """Value of an argument that a call does not pass."""

    value: DefaultValue

    def __str__(self) -> str:
        return _value_text(self.value)


@dataclass(frozen=True)
class SchemaArgument:
    """One argument."""

    name: str
    type: Type
    default: Default | None = None
    keyword_only: bool = False

    def __str__(self) -> str:
        value = f"={self.default}" if self.default is not None else ""
        return f"{self.type} {self.name}{value}"


@dataclass(frozen=True)
class Return:
    """One result."""

    type: Type
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}".rstrip()


@dataclass(frozen=True)
class Schema:
    """A function's name, arguments and results."""

    name: str
    """The name, with its namespace if it has one: `aten::add`."""
    arguments: tuple[SchemaArgument, ...]
    returns: tuple[Return, ...] = ()
    overload: str = ""

    @property
    def tensors(self) -> tuple[SchemaArgument, ...]:
        """Tensor arguments; the items of a list are separate, as `xs[0]`, `xs[1]`."""
        tensors: list[SchemaArgument] = []
        for argument in self.arguments:
            if argument.type.is_tensor:
                tensors.append(argument)
            elif argument.type.is_tensor_list:
                tensors += (
                    SchemaArgument(f"{argument.name}[{i}]", t)
                    for i, t in enumerate(argument.type.items)
                )
        return tuple(tensors)

    @property
    def items(self) -> tuple[SchemaArgument, ...]:
        """The tensors that are items of lists."""
        return tuple(tensor for tensor in self.tensors if tensor not in self.arguments)

    def argument(self, name: str) -> SchemaArgument | None:
        """The argument of that name, or the item of a list: `xs[0]`."""
        every = (*self.arguments, *self.tensors)
        return next((argument for argument in every if argument.name == name), None)

    @property
    def mutated(self) -> tuple[str, ...]:
        """Names of the tensors that are written to."""
        return tuple(argument.name for argument in self.tensors if argument.type.is_mutated)

    def __str__(self) -> str:
        name = f"{self.name}.{self.overload}" if self.overload else self.name
        return f"{name}({', '.join(self._parts())}) -> {self._results()}"

    def _parts(self) -> list[str]:
        parts = [str(argument) for argument in self.arguments]
        named = next((i for i, a in enumerate(self.arguments) if a.keyword_only), None)
        return parts if named is None else [*parts[:named], "*", *parts[named:]]

    def _results(self) -> str:
        if len(self.returns) == 1:
            return str(self.returns[0])
        return f"({', '.join(str(result) for result in self.returns)})"


def _value_text(value: DefaultValue) -> str:
    if isinstance(value, str):
        inner = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + inner.replace("\n", "\\n").replace("\t", "\\t") + '"'
    if isinstance(value, tuple):
        return f"[{', '.join(_value_text(item) for item in value)}]"
    return str(value)
