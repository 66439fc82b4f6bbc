"""Arguments that are several parameters of the device function: tuples and tensor descriptors.

A part is named by the argument and what it is of it: `shape.0`, `a_desc.shape.1`,
`a_desc.stride.0`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbuild.languages.expression import parse
from kbuild.languages.spec.values import Source

NAN = "nan"
"""Whether a descriptor is padded with NaN."""
TF32 = "tf32"
"""Whether a descriptor rounds to TF32; kbuild's never do."""


def flat(name: str, source: Source) -> Iterator[tuple[str, Source]]:
    """The argument itself, or the items of a tuple with their names."""
    if source.kind == "tuple":
        yield from ((f"{name}.{index}", item) for index, item in enumerate(source.items))
    else:
        yield name, source


def descriptor_parts(name: str, rank: int, *, mapped: bool) -> tuple[tuple[str, str], ...]:
    """The parameters of a descriptor and their types, in order, behind the first.

    The first has the argument's own name: a `tensor_map`, or a pointer to the tensor's elements.

    Args:
        name: of the argument.
        rank: dimensions.
        mapped: whether the first is a `tensor_map`, as on sm_90 and later. Without one, Triton
            hands over shape and strides twice, and what the map would say.
    """
    shape = [f"{name}.shape.{axis}" for axis in range(rank)]
    strides = [f"{name}.stride.{axis}" for axis in range(rank)]
    tail = [*((one, "i32") for one in shape), *((one, "i64") for one in strides)]
    if mapped:
        return tuple(tail)
    said = [*((one, "i64") for one in (*shape, *strides))]
    return (*said, (f"{name}.{NAN}", "u1"), (f"{name}.{TF32}", "u1"), *tail)


def part_of(name: str, source: Source, parameter: str) -> Source | None:
    """Where the value of one parameter of the device function comes from.

    Args:
        name: of the kernel's argument.
        source: what that gets.
        parameter: of the device function.

    Returns:
        None when the parameter is no part of this argument.
    """
    if parameter == name:
        return source
    if not parameter.startswith(f"{name}."):
        return None
    if source.kind == "tuple":
        return dict(flat(name, source)).get(parameter)
    if source.kind == "descriptor":
        return _field(source, parameter[len(name) + 1 :])
    if source.kind == "tensor":
        return _dimension(source.name, parameter[len(name) + 1 :])
    return None


def _dimension(tensor: str, field: str) -> Source | None:
    """`shape.0`, `stride.1`, `numel`."""
    if field == "numel":
        return Source("int", expression=parse(f"numel({tensor})"))
    word, _, axis = field.partition(".")
    question = {"shape": "size", "stride": "stride"}.get(word)
    if question is None or not axis.isdecimal():
        return None
    return Source("int", expression=parse(f"{question}({tensor}, {axis})"))


def _field(source: Source, field: str) -> Source | None:
    if field in (NAN, TF32):
        holds = field == NAN and source.padding == "nan"
        return Source("bool", expression=parse(str(holds)))
    found = _dimension(source.name, field)
    return found if found and int(field.partition(".")[2]) < len(source.block) else None
