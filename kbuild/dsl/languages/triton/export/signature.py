"""The exported signature and targets, in the form of Triton's own tools, and the variant."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbuild.backends import rocm
from kbuild.ops.bound_launch import KernelParameter
from kbuild.ops.steps import Pairs
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import did_you_mean, listed
from kbuild.system.errors import UsageError

INTEGERS = tuple(f"{sign}{bits}" for bits in (1, 8, 16, 32, 64) for sign in "iu")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
ELEMENTS = (*INTEGERS, *FLOATS, "fp8e4nv", "fp8e5")
"""Types that pointers may point to."""
DIVISOR = 16
_HINTS = ("1", str(DIVISOR))
_ENTRY = re.compile(r"(?P<type>\*?[A-Za-z_]\w*)\s*(?::\s*(?P<hint>\S*))?")
_PIECE = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[(\[{]|[)\]}]|,|[^,'\"()\[\]{}]+|.",
    re.DOTALL,
)

ExportConstant = bool | int | float | str | None


@dataclass(frozen=True)
class ExportArgument:
    """An argument that is passed at each launch."""

    name: str
    type: str
    """Type such as `*fp32`, `i32`, `fp64`."""
    hint: int = 0
    """16: assumed to be divisible by 16; 1: assumed to be 1; 0: no assumption."""

    @property
    def is_pointer(self) -> bool:
        """True for a pointer to device memory."""
        return self.type.startswith("*")

    @property
    def is_integer(self) -> bool:
        """True if expressions can use it."""
        return self.type in INTEGERS


@dataclass(frozen=True)
class ExportSignature:
    """The type or the value of every parameter of a kernel function."""

    arguments: tuple[ExportArgument, ...]
    constants: tuple[tuple[str, ExportConstant], ...]


def read_signature(
    text: str, function: str, parameters: Sequence[KernelParameter]
) -> ExportSignature:
    """Read one entry per parameter: a type with or without a hint, or a constant's value.

    Raises:
        UsageError: an entry is invalid, or does not fit its parameter.
    """
    entries = list(_entries(text))
    if len(entries) != len(parameters):
        names = listed([parameter.name for parameter in parameters])
        raise UsageError(
            f"the signature has {len(entries)} entries, `{function}` has {len(parameters)} "
            f"parameters: {names}",
            hint="one entry for each, constants included, such as `*fp32:16, i32, 1024`",
        )
    arguments: list[ExportArgument] = []
    constants: list[tuple[str, ExportConstant]] = []
    for position, (entry, parameter) in enumerate(zip(entries, parameters, strict=True), 1):
        read = _read_entry(entry, parameter, f"argument {position} (`{parameter.name}`)")
        if isinstance(read, ExportArgument):
            arguments.append(read)
        else:
            constants.append((parameter.name, read[0]))
    return ExportSignature(tuple(arguments), tuple(constants))


def _entries(text: str) -> Iterator[str]:
    """Yield the entries: commas inside of strings and parentheses do not separate."""
    depth, entry = 0, ""
    for piece in _PIECE.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        # A closing parenthesis too many must not hide the commas after it.
        if piece == "," and depth <= 0:
            yield entry.strip()
            entry = ""
        else:
            entry += piece
    if entry.strip():
        yield entry.strip()


def _read_entry(
    entry: str, parameter: KernelParameter, where: str
) -> ExportArgument | tuple[ExportConstant]:
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
    return ExportArgument(parameter.name, type_, _divisor(type_, hint, where))


def _divisor(type_: str, hint: str | None, where: str) -> int:
    if hint is None:
        return 0
    if hint not in _HINTS:
        known = "`:16` divisible by 16, `:1` equal to 1"
        raise UsageError(f"{where}: `{hint}` is not a hint", hint=known)
    if type_ in FLOATS:
        raise UsageError(f"{where}: a float takes no hint", hint=f"write `{type_}`")
    if hint == "1" and type_.startswith("*"):
        raise UsageError(f"{where}: a pointer cannot be 1", hint=f"write `{type_}:16` or `{type_}`")
    return int(hint)


def _constant(entry: str) -> tuple[ExportConstant] | None:
    """The constant in a tuple, since None is a value; None if it is not a constant."""
    try:
        value = ast.literal_eval(entry)
    # `ast.literal_eval` raises the last two for deeply nested text.
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    # `1e999` is a valid literal, and infinite, which JSON cannot express.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return (value,) if value is None or isinstance(value, (bool, int, float, str)) else None


def _hint(entry: str) -> str:
    if entry.startswith(("(", "[")):
        return "C has no tuples; describe the kernel as an op in build.toml"
    if entry.startswith(("tensordesc", "nvTmaDesc")):
        return "tensor descriptors are made by ops: describe the kernel in build.toml"
    return "" if entry else "an entry is empty: is there a comma too many?"


_CUDA = re.compile(r"cuda:(?P<number>\d{2,3})(?P<feature>[af]?)(?::(?P<warp>\d+))?")
_HIP = re.compile(r"hip:(?P<arch>\w+)(?::(?P<warp>\d+))?")
_ONE_CHIP = 90
"""First capability from which on Triton compiles for one chip only: `sm_90a`."""
_WARP = 32
_TARGET_HINT = "e.g. `cuda:90:32`, `hip:gfx942:64`, `sm_80`, `compute_80` for PTX"


def read_target(text: str) -> ImageTarget:
    """Parse a target.

    Raises:
        UsageError: it is not a target.
    """
    if match := _CUDA.fullmatch(text):
        _validate_warp(text, match["warp"], _WARP)
        feature = match["feature"] or ("a" if int(match["number"]) >= _ONE_CHIP else "")
        return _parse_target(f"sm_{match['number']}{feature}", text)
    if match := _HIP.fullmatch(text):
        target = _parse_target(match["arch"], text)
        if target.is_amd:
            _validate_warp(text, match["warp"], rocm.wavefront(target.arch))
            return target
    return _parse_target(text, text)


def _parse_target(arch: str, text: str) -> ImageTarget:
    try:
        return ImageTarget.parse(arch)
    except ValueError:
        raise UsageError(f"`{text}` is not a target", hint=_TARGET_HINT) from None


def _validate_warp(text: str, count: str | None, real: int) -> None:
    if count is not None and int(count) != real:
        raise UsageError(f"`{text}`: warps of that arch have {real} threads, not {count}")


HEADER_FORMAT = 1
_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEYWORDS = """
alignas alignof and asm auto bool break case catch char class const constexpr continue default
delete do double else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not nullptr operator or private protected public register restrict
return short signed sizeof static struct switch template this throw true try typedef typename union
unsigned using virtual void volatile while xor
"""
_RESERVED_NAMES = re.compile(
    rf"(?:{'|'.join(_KEYWORDS.split())}|stream|algo|result|fits|u?int\d+_t|size_t|NULL|INT64_M\w+"
    r"|CUstream|CUdeviceptr|hipStream_t|hipDeviceptr_t|linux|unix|kb_\w*|KB_\w*)_*"
)
"""Words of C and C++, and names in the headers and generated functions; `_` after a name avoids
them."""


@dataclass(frozen=True)
class ExportVariant:
    """Description of one exported header and source."""

    name: str
    """Name of the function after linking."""
    target: str
    arguments: tuple[ExportArgument, ...]
    constants: tuple[tuple[str, ExportConstant], ...] = ()
    options: Pairs = ()
    grid: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for word in (self.name, *(argument.name for argument in self.arguments)):
            if not _C_NAME.fullmatch(word):
                raise UsageError(f"`{word}` is not a name in C", hint="choose one with --out-name")
        ImageTarget.parse(self.target)

    @property
    def backend(self) -> str:
        """`cuda` or `hip`."""
        return "hip" if ImageTarget.parse(self.target).kind == "hsaco" else "cuda"

    @property
    def digest(self) -> str:
        """8 hexadecimal digits over everything but the target."""
        facts = {key: value for key, value in self.to_json().items() if key != "target"}
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def symbol(self) -> str:
        """Name of the launch function; the target is part of it."""
        return f"{self.name}_{self.target}_{self.digest}"

    @property
    def algo(self) -> tuple[str, ...]:
        """Constants and options that a caller chooses between, as `BLOCK=1024`."""
        pairs = (*self.constants, *self.options)
        return tuple(f"{name}={json.dumps(value)}" for name, value in pairs)

    def to_json(self) -> dict[str, Any]:
        """The variant as a JSON object."""
        return {"format": HEADER_FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ExportVariant:
        """Parse the JSON object of `to_json`.

        Raises:
            ValueError: it is not a variant.
        """
        try:
            if data["format"] != HEADER_FORMAT:
                raise ValueError(f"format {data['format']}, and this kbuild reads {HEADER_FORMAT}")
            arguments = tuple(ExportArgument(**argument) for argument in data["arguments"])
            pairs = _pairs(data["constants"]), _pairs(data["options"])
            grid = tuple(map(str, data["grid"]))
            return cls(str(data["name"]), str(data["target"]), arguments, *pairs, grid)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a variant: {error}") from error


def variant_of(
    name: str, target: ImageTarget, signature: ExportSignature, options: Pairs, grid: Sequence[str]
) -> ExportVariant:
    """Return the variant for the options of a command line."""
    return ExportVariant(
        name, str(target), signature.arguments, signature.constants, options, tuple(grid)
    )


def c_name(argument: ExportArgument) -> str:
    """C name of the argument; reserved words get a `_`."""
    is_reserved = _RESERVED_NAMES.fullmatch(argument.name) is not None
    return f"{argument.name}_" if is_reserved else argument.name


def _pairs(data: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), value) for name, value in data)
