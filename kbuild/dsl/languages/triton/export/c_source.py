"""Generates C for one image: a header and a source that need only the driver."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

from kbuild.dsl.languages.triton.export.signature import (
    DIVISOR,
    ExportArgument,
    ExportSignature,
    ExportVariant,
    c_name,
)
from kbuild.ops.expression import Expression, ExpressionError, parse
from kbuild.ops.expression.expression import to_cxx
from kbuild.ops.expression.nodes import Leaf, Name
from kbuild.ops.image import KernelImage
from kbuild.ops.unit import ImageTarget
from kbuild.project.config.issue import did_you_mean, listed
from kbuild.system.errors import UsageError
from kbuild.system.files import FileSet
from kbuild.system.rendering import render

_MAX_AXES = 3
# A single slash: `//` is left alone, because the parser knows it already.
_DIVISION = re.compile(r"(?<!/)/(?!/)")


def read_grid(text: str, signature: ExportSignature) -> tuple[Expression, ...]:
    """Parse one to three expressions over arguments and constants, separated by commas.

    C's `/` is read as `//`: both round alike where nothing is negative, and a negative grid is
    refused at run time.

    Raises:
        UsageError: it is not a grid, or uses a name that is no integer of the kernel.
    """
    axes = _split(text)
    if not 0 < len(axes) <= _MAX_AXES or not all(axes):
        raise UsageError(
            f"the grid `{text}` has {len(axes)} parts, and a grid has one to three",
            hint='e.g. `-g "cdiv(n, 1024), 1, 1"`',
        )
    return tuple(_read_axis(axis, signature) for axis in axes)


def _split(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    depth, axes = 0, [""]
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            axes.append("")
        else:
            axes[-1] += character
    return [axis.strip() for axis in axes]


def _read_axis(text: str, signature: ExportSignature) -> Expression:
    known = {name: int(v) for name, v in signature.constants if isinstance(v, (bool, int))}
    names = [argument.name for argument in signature.arguments if argument.is_integer]
    try:
        expression = parse(_DIVISION.sub("//", text))
        for leaf in expression.leaves():
            _validate_leaf(leaf, (*names, *known))
        return expression.bind(known)
    except ExpressionError as error:
        message = f"the grid `{text}`: {error.message} (column {error.column})"
        raise UsageError(message, hint=error.hint) from None


def _validate_leaf(leaf: Leaf, known: Sequence[str]) -> None:
    if not isinstance(leaf, Name):
        hint = "C functions take no tensors; use the arguments"
        raise ExpressionError(f"`{leaf.key}` asks about a tensor or device", leaf.column, hint)
    if leaf.name not in known:
        hint = did_you_mean(leaf.name, known) or f"integers: {listed(known) or 'none'}"
        raise ExpressionError(f"`{leaf.name}` is not an integer argument", leaf.column, hint)


def _c_call(function: str, arguments: Sequence[str]) -> str:
    """C call of one of the template's functions; `kb_bad` has to be in scope."""
    if function in ("min", "max"):
        return reduce(lambda call, other: f"kb_{function}({call}, {other})", arguments)
    return f"kb_{function.removeprefix('floor_')}({', '.join(arguments)}, &kb_bad)"


_WIDTH = 110
_PLAIN = {byte: chr(byte) for byte in range(0x20, 0x7F)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("?"): "\\?",  # two of them start a trigraph
    ord("\n"): "\\n",
    ord("\t"): "\\t",
}
_DIGITS = frozenset(b"01234567")


def c_string_literals(data: bytes) -> Iterator[str]:
    """Yield lines of adjacent string literals for the bytes; C appends a zero."""
    line = ""
    for index, byte in enumerate(data):
        line += _escaped(byte, data[index + 1 : index + 2])
        if len(line) >= _WIDTH or byte == ord("\n"):
            yield f'"{line}"'
            line = ""
    if line or not data:
        yield f'"{line}"'


def _escaped(byte: int, following: bytes) -> str:
    """Escaped character; an octal escape is short if no octal digit follows."""
    plain = _PLAIN.get(byte)
    if plain is not None:
        return plain
    # Not hexadecimal: such an escape has no maximal length, and would take in digits that follow.
    return f"\\{byte:03o}" if following and following[0] in _DIGITS else f"\\{byte:o}"


MARK = "// kbuild-aot: "
"""Beginning of the line in a header that `kbuild aot link` reads."""
STREAMS = {"cuda": "CUstream", "hip": "hipStream_t"}
POINTERS = {"cuda": "CUdeviceptr", "hip": "hipDeviceptr_t"}
ERRORS = {"cuda": "CUresult", "hip": "hipError_t"}
_FLOATS = {"fp16": "float", "bf16": "float", "fp32": "float", "fp64": "double"}
_GRID_AXES = 3
_HALVES = ("fp16", "bf16")
_CLUSTER, _SPREAD, _COOPERATIVE, _PDL = 4, 5, 2, 6
"""Values of `CUlaunchAttributeID`."""


def write_source(
    variant: ExportVariant, grid: Sequence[Expression], image: KernelImage, code: bytes, stem: str
) -> FileSet:
    """Generate the header and the source, whose paths begin with `stem`.

    Raises:
        UsageError: the image has an argument that C functions cannot pass.
    """
    _validate_parameters(variant, image)
    path = f"{stem}.{variant.target}.{variant.digest}"
    header = f"{path.rpartition('/')[2]}.h"
    checks = list(_checks(variant))
    values = {
        "variant": variant,
        "backend": variant.backend,
        "what": f"{variant.name} for {variant.target}",
        # The text appears inside of a C comment, which it must not end.
        "algo": [text.replace("*/", "* /") for text in variant.algo],
        "errors": ERRORS[variant.backend],
        "line": json.dumps(variant.to_json(), sort_keys=True),
        "guard": f"KBUILD_AOT_{variant.symbol.upper()}_H",
        "prototype": prototype(variant),
        "assumed": " and ".join(condition for condition, _ in checks),
    }
    more = _template_values(variant, grid, image, code)
    source = render("export/variant.c.j2", header=header, **values, **more)
    return FileSet({f"{path}.h": render("export/variant.h.j2", **values), f"{path}.c": source})


def prototype(variant: ExportVariant, *more: str) -> str:
    """Parameters of a launch function in C."""
    backend = variant.backend
    arguments = (f"{c_type(a, backend)} {c_name(a)}" for a in variant.arguments)
    return ", ".join((f"{STREAMS[backend]} stream", *arguments, *more))


def c_type(argument: ExportArgument, backend: str) -> str:
    """C type of an argument; half floats are passed as `float`."""
    if argument.is_pointer:
        return POINTERS[backend]
    if argument.type in _FLOATS:
        return _FLOATS[argument.type]
    sign, bits = argument.type[0], argument.type[1:]
    if bits == "1":
        return "uint8_t"
    return f"{'u' * (sign == 'u')}int{bits}_t"


def assumption_condition(argument: ExportArgument) -> str:
    """C condition for the assumption about an argument."""
    if argument.hint == 1:
        return f"{c_name(argument)} == 1"
    cast = "(uintptr_t)" if argument.is_pointer else ""
    return f"{cast}{c_name(argument)} % {DIVISOR} == 0"


def _checks(variant: ExportVariant) -> Iterator[tuple[str, str]]:
    for argument in variant.arguments:
        if argument.hint:
            error = "KB_MISALIGNED" if argument.is_pointer else "KB_INVALID_VALUE"
            yield assumption_condition(argument), error


def _validate_parameters(variant: ExportVariant, image: KernelImage) -> None:
    """Check that the image's parameters are the variant's arguments, in order."""
    # `image.ones` lacks the arguments that the author's function does not let Triton specialise on.
    folded = {argument.name for argument in variant.arguments if argument.hint == 1} & image.ones
    wanted = [(a.name, a.type) for a in variant.arguments if a.name not in folded]
    parameters = [(p.name, p.type) for p in image.parameters if p.name]
    if str(image.target) != variant.target or wanted != parameters:
        raise UsageError(
            f"the image `{image.entry}` for {image.target} takes {parameters}, not {wanted}",
            hint="please report this: the functions would pass the wrong values",
        )
    x, y, z = image.cluster
    if (y, z) != (1, 1) or (variant.backend == "hip" and x > 1):
        raise UsageError(f"clusters of {image.cluster} are not supported here")
    if variant.backend == "hip" and (image.cooperative or image.pdl):
        raise UsageError("cooperative and dependent launches are for CUDA only")


def _template_values(
    variant: ExportVariant, grid: Sequence[Expression], image: KernelImage, code: bytes
) -> dict[str, Any]:
    names = {argument.name: f"(int64_t){c_name(argument)}" for argument in variant.arguments}
    axes = [to_cxx(axis.root, names, _c_call, "(int64_t)") for axis in grid]
    halves = [argument for argument in variant.arguments if argument.type in _HALVES]
    known = {name for axis in grid for name in axis.names()}
    known |= {parameter.name for parameter in image.parameters}
    # The checks of hints use the argument, so that compilers do not warn.
    known |= {argument.name for argument in variant.arguments if argument.hint}
    return {
        "image": image,
        "size": len(code),
        "literal": list(c_string_literals(code)),
        "grid": [*axes, *("1",) * (_GRID_AXES - len(axes))],
        "unused": [c_name(a) for a in variant.arguments if a.name not in known],
        "checks": list(_checks(variant)),
        "halves": {argument.type for argument in halves},
        "converted": [f"kb_{argument.type}({c_name(argument)})" for argument in halves],
        "kinds": [parameter.kind for parameter in image.parameters],
        "pointer": POINTERS[variant.backend],
        "parameters": list(_parameters(variant, image)),
        "attributes": list(_attributes(image)),
        "fits": _device_condition(image.target),
    }


def _parameters(variant: ExportVariant, image: KernelImage) -> Iterator[str]:
    arguments = {argument.name: argument for argument in variant.arguments}
    halves = [argument.name for argument in variant.arguments if argument.type in _HALVES]
    for parameter in image.parameters:
        if not parameter.name:
            yield f"&kb_{parameter.kind}"
        elif parameter.name in halves:
            yield f"&kb_halves[{halves.index(parameter.name)}]"
        else:
            yield f"&{c_name(arguments[parameter.name])}"


def _attributes(image: KernelImage) -> Iterator[tuple[int, str, Any]]:
    if image.cluster[0] > 1:
        yield _CLUSTER, "size", image.cluster
        # 1 is `CU_CLUSTER_SCHEDULING_POLICY_SPREAD`, which Triton's own launcher sets as well.
        yield _SPREAD, "number", 1
    if image.cooperative:
        yield _COOPERATIVE, "number", 1
    if image.pdl:
        yield _PDL, "number", 1


def _device_condition(target: ImageTarget) -> str:
    """C condition for devices of capability `major`.`minor` that can run the image."""
    wanted = target.capability
    if wanted is None:
        return ""
    if target.kind == "ptx":
        return f"major * 10 + minor >= {wanted.major * 10 + wanted.minor}"
    # Machine code also runs on later minor versions of its major one, unless it is for one chip.
    sign = "==" if wanted.feature == "a" else ">="
    return f"(major == {wanted.major} && minor {sign} {wanted.minor})"
