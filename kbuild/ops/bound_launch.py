"""A launch that is joined with the kernel function that it names, and its arguments' sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kbuild.ops.expression import Expression, parse
from kbuild.ops.expression.nodes import Query
from kbuild.ops.steps import ArgumentSource, Launch

_NAN, _TF32 = "nan", "tf32"
"""Fields of a descriptor: True if it is padded with NaN, and if it rounds to TF32 (never in
kbuild)."""


def flatten_argument(name: str, source: ArgumentSource) -> Iterator[tuple[str, ArgumentSource]]:
    """Yield the argument itself, or the items of a tuple with their names."""
    if source.kind == "tuple":
        yield from ((f"{name}.{index}", item) for index, item in enumerate(source.items))
    else:
        yield name, source


def part_source(name: str, source: ArgumentSource, parameter: str) -> ArgumentSource | None:
    """Source of a parameter of the device function; None if it is not a part of `name`."""
    if parameter == name:
        return source
    if not parameter.startswith(f"{name}."):
        return None
    if source.kind == "tuple":
        return dict(flatten_argument(name, source)).get(parameter)
    if source.kind == "descriptor":
        return _field(source, parameter[len(name) + 1 :])
    if source.kind == "tensor":
        return _dimension(source.name, parameter[len(name) + 1 :])
    return None


def _dimension(tensor: str, field: str) -> ArgumentSource | None:
    """Source of `shape.0`, `stride.1` or `numel` of a tensor; None for other fields."""
    if field == "numel":
        return ArgumentSource("int", expression=parse(f"numel({tensor})"))
    word, _, axis = field.partition(".")
    question = {"shape": "size", "stride": "stride"}.get(word)
    if question is None or not axis.isdecimal():
        return None
    return ArgumentSource("int", expression=parse(f"{question}({tensor}, {axis})"))


def _field(source: ArgumentSource, field: str) -> ArgumentSource | None:
    if field in (_NAN, _TF32):
        holds = field == _NAN and source.padding == "nan"
        return ArgumentSource("bool", expression=parse(str(holds)))
    dimension = _dimension(source.name, field)
    return dimension if dimension and int(field.partition(".")[2]) < len(source.block) else None


@dataclass(frozen=True)
class KernelParameter:
    """A parameter in the function's own signature."""

    name: str
    is_constant: bool = False
    """True if it is known when the function is compiled, such as `tl.constexpr`."""
    has_value: bool = False
    """True if it needs no value: it has a default, or the kernel computes the constant."""


@dataclass(frozen=True)
class TensorFacts:
    """Properties of a tensor in the op."""

    name: str
    dims: tuple[str, ...] | None
    """An expression for each dimension; None if the number of dimensions is not fixed."""
    contiguous: bool
    aliases: tuple[str, ...] = ()
    """Other tensors that may lie in its memory, as far as the order of reads and writes counts."""


@dataclass(frozen=True)
class BoundLaunch:
    """A launch, joined with the kernel function that it names."""

    function: str
    arguments: tuple[tuple[str, ArgumentSource], ...]
    """Source of every parameter that is not a constant, in order."""
    constants: tuple[str, ...]
    """Names of the parameters that are constants, in order."""
    tensors: tuple[TensorFacts, ...] = ()
    sizes: tuple[str, ...] = ()
    """Names of dimensions, if images may make assumptions about them."""
    toolchain: tuple[str, ...] = ()
    tuned: bool = False
    """True if the candidates are the kernel's own."""
    choices: tuple[tuple[str, Expression], ...] = ()
    """Constants with `choices` -> the expression that has their value in every call of an image."""

    def facts(self, tensor: str) -> TensorFacts:
        """Properties of a tensor of the op."""
        return next(facts for facts in self.tensors if facts.name == tensor)

    def flat(self) -> tuple[tuple[str, ArgumentSource], ...]:
        """The arguments; items of tuples are separate: `shape.0`, `shape.1`."""
        return tuple(
            part for name, source in self.arguments for part in flatten_argument(name, source)
        )

    def source(self, parameter: str) -> ArgumentSource:
        """Return the source of an argument, a part of one (`a_desc.stride.1`) or a dimension.

        Raises:
            KeyError: the kernel has no such argument.
        """
        sources = (part_source(name, source, parameter) for name, source in self.arguments)
        for source in sources:
            if source is not None:
                return source
        if parameter in self.sizes:
            return ArgumentSource("int", expression=parse(parameter))
        raise KeyError(parameter)


def tensors_asked(expressions: Iterable[Expression]) -> set[str]:
    """Tensors that expressions ask about, except for their dtypes."""
    leaves = (leaf for expression in expressions for leaf in expression.leaves())
    return {leaf.tensor for leaf in leaves if isinstance(leaf, Query)}


def tensors_used(launch: Launch, bound: BoundLaunch) -> set[str]:
    """Tensors that a launch passes, or that its expressions ask about."""
    sources = [source for _, source in bound.flat()]
    used = {source.name for source in sources if source.kind in ("tensor", "descriptor")}
    expressions = [expression for source in sources for expression in source.integers()]
    expressions += [*launch.grid, *(c.when for c in launch.candidates if c.when is not None)]
    expressions += [c.expression for c in launch.constants if c.expression is not None]
    return used | tensors_asked(expressions)
