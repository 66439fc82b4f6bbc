"""A signature as Triton's own tools take it: `*fp32:16, i32:1, fp32, 1024`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbuild.config.suggest import did_you_mean, listed
from kbuild.errors import UsageError
from kbuild.languages.spec.arguments import KernelParameter

INTEGERS = tuple(f"{sign}{bits}" for bits in (1, 8, 16, 32, 64) for sign in "iu")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
ELEMENTS = (*INTEGERS, *FLOATS, "fp8e4nv", "fp8e5")
"""What pointers point to."""
DIVISOR = 16
_HINTS = ("1", str(DIVISOR))
_ENTRY = re.compile(r"(?P<type>\*?[A-Za-z_]\w*)\s*(?::\s*(?P<hint>\S*))?")
_PIECE = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[(\[{]|[)\]}]|,|[^,'\"()\[\]{}]+|.",
    re.DOTALL,
)

Value = bool | int | float | str | None
"""A constant of the kernel."""


@dataclass(frozen=True)
class Argument:
    """An argument that is handed over at each launch."""

    name: str
    type: str
    """`*fp32`, `i32`, `fp64`."""
    hint: int = 0
    """16: assumed to be divisible by 16; 1: assumed to be 1; 0: nothing is assumed."""

    @property
    def is_pointer(self) -> bool:
        """True for memory of the device."""
        return self.type.startswith("*")

    @property
    def is_integer(self) -> bool:
        """True when expressions can use it."""
        return self.type in INTEGERS


@dataclass(frozen=True)
class Signature:
    """What every parameter of a kernel function gets."""

    arguments: tuple[Argument, ...]
    constants: tuple[tuple[str, Value], ...]


def read_signature(text: str, function: str, parameters: Sequence[KernelParameter]) -> Signature:
    """Read a signature.

    Args:
        text: one entry per parameter: a type with or without a hint, or a constant's value.
        function: whose it is.
        parameters: the function's.

    Raises:
        UsageError: an entry is none, or does not fit its parameter.
    """
    entries = list(_entries(text))
    if len(entries) != len(parameters):
        names = listed([one.name for one in parameters])
        raise UsageError(
            f"the signature has {len(entries)} entries, `{function}` has {len(parameters)} "
            f"parameters: {names}",
            hint="one entry for each, constants included, such as `*fp32:16, i32, 1024`",
        )
    arguments: list[Argument] = []
    constants: list[tuple[str, Value]] = []
    for position, (entry, parameter) in enumerate(zip(entries, parameters, strict=True), 1):
        read = _read(entry, parameter, f"argument {position} (`{parameter.name}`)")
        if isinstance(read, Argument):
            arguments.append(read)
        else:
            constants.append((parameter.name, read[0]))
    return Signature(tuple(arguments), tuple(constants))


def _entries(text: str) -> Iterator[str]:
    """The parts between commas that stand in no string and no parentheses."""
    depth, entry = 0, ""
    for piece in _PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        if piece == "," and depth <= 0:
            yield entry.strip()
            entry = ""
        else:
            entry += piece
    if entry.strip():
        yield entry.strip()


def _read(entry: str, parameter: KernelParameter, where: str) -> Argument | tuple[Value]:
    constant = _constant(entry)
    if constant is not None:
        return constant
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise UsageError(f"{where}: `{entry}` is neither a type nor a constant", hint=_hint(entry))
    type_, hint = match["type"], match["hint"]
    element = type_.removeprefix("*")
    known = ELEMENTS if type_.startswith("*") else (*INTEGERS, *FLOATS)
    if element not in known:
        close = did_you_mean(element, known) or f"types: {listed(known)}; a pointer is `*fp32`"
        raise UsageError(f"{where}: `{type_}` is not a type", hint=_hint(entry) or close)
    if parameter.is_constant:
        raise UsageError(
            f"{where} is a constant of the kernel, but the signature gives a type",
            hint="write its value, such as `1024`, `True` or `None`",
        )
    return Argument(parameter.name, type_, _divisor(type_, hint, where))


def _divisor(type_: str, hint: str | None, where: str) -> int:
    if hint is None:
        return 0
    if hint not in _HINTS:
        raise UsageError(
            f"{where}: `{hint}` is not a hint", hint="`:16` divisible by 16, `:1` equal to 1"
        )
    if type_ in FLOATS:
        raise UsageError(f"{where}: a float takes no hint", hint=f"write `{type_}`")
    if hint == "1" and type_.startswith("*"):
        raise UsageError(f"{where}: a pointer is not 1", hint=f"write `{type_}:16` or `{type_}`")
    return int(hint)


def _constant(entry: str) -> tuple[Value] | None:
    """The value in a tuple of its own, since None is a value."""
    try:
        value = ast.literal_eval(entry)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return (value,) if value is None or isinstance(value, (bool, int, float, str)) else None


def _hint(entry: str) -> str:
    if entry.startswith(("(", "[")):
        return "tuples have no counterpart in C; describe the kernel as an op in build.toml"
    if entry.startswith(("tensordesc", "nvTmaDesc")):
        return "tensor descriptors are made by ops: describe the kernel in build.toml"
    return "" if entry else "an entry is empty: is there a comma too many?"
