"""The C of one image: a header and a source that hold everything but the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from kbuild.errors import UsageError
from kbuild.fileset import FileSet
from kbuild.generate.templates import render
from kbuild.languages.export.grid import to_c
from kbuild.languages.export.literal import literal
from kbuild.languages.export.signature import DIVISOR, Argument
from kbuild.languages.export.variant import Variant, c_name
from kbuild.languages.expression import Expression
from kbuild.languages.image import Image
from kbuild.languages.target import Target

MARK = "// kbuild-aot: "
"""The line of a header that `kbuild aot link` reads."""
STREAMS = {"cuda": "CUstream", "hip": "hipStream_t"}
POINTERS = {"cuda": "CUdeviceptr", "hip": "hipDeviceptr_t"}
ERRORS = {"cuda": "CUresult", "hip": "hipError_t"}
_FLOATS = {"fp16": "float", "bf16": "float", "fp32": "float", "fp64": "double"}
_AXES = 3
_HALVES = ("fp16", "bf16")
_CLUSTER, _SPREAD, _COOPERATIVE, _PDL = 4, 5, 2, 6
"""`CUlaunchAttributeID`."""


def write_source(
    variant: Variant, grid: Sequence[Expression], image: Image, code: bytes, stem: str
) -> FileSet:
    """The two files.

    Args:
        variant: what the header says.
        grid: one to three expressions over the variant's arguments.
        image: what the compiler says of the image.
        code: the image.
        stem: the files' path without arch, digest and suffix.

    Raises:
        UsageError: the image has what C functions cannot hand over.
    """
    _judge(variant, image)
    path = f"{stem}.{variant.target}.{variant.digest}"
    header = f"{path.rpartition('/')[2]}.h"
    checks = list(_checks(variant))
    values = {
        "variant": variant,
        "backend": variant.backend,
        "what": f"{variant.name} for {variant.target}",
        "algo": [text.replace("*/", "* /") for text in variant.algo],
        "errors": ERRORS[variant.backend],
        "line": json.dumps(variant.to_json(), sort_keys=True),
        "guard": f"KBUILD_AOT_{variant.symbol.upper()}_H",
        "prototype": prototype(variant),
        "assumed": " and ".join(condition for condition, _ in checks),
    }
    source = render(
        "export/variant.c.j2", header=header, **values, **_body(variant, grid, image, code)
    )
    return FileSet({f"{path}.h": render("export/variant.h.j2", **values), f"{path}.c": source})


def prototype(variant: Variant, *more: str) -> str:
    """What stands between the parentheses of a launch function."""
    stream = f"{STREAMS[variant.backend]} stream"
    arguments = (f"{c_type(one, variant.backend)} {c_name(one)}" for one in variant.arguments)
    return ", ".join((stream, *arguments, *more))


def c_type(argument: Argument, backend: str) -> str:
    """An argument's type in C; half floats are handed over as `float`."""
    if argument.is_pointer:
        return POINTERS[backend]
    if argument.type in _FLOATS:
        return _FLOATS[argument.type]
    sign, bits = argument.type[0], argument.type[1:]
    if bits == "1":
        return "uint8_t"
    return f"{'u' * (sign == 'u')}int{bits}_t"


def holds(argument: Argument) -> str:
    """The C condition for what is assumed of an argument."""
    if argument.hint == 1:
        return f"{c_name(argument)} == 1"
    cast = "(uintptr_t)" if argument.is_pointer else ""
    return f"{cast}{c_name(argument)} % {DIVISOR} == 0"


def _checks(variant: Variant) -> Iterator[tuple[str, str]]:
    for argument in variant.arguments:
        if argument.hint:
            error = "KB_MISALIGNED" if argument.is_pointer else "KB_INVALID_VALUE"
            yield holds(argument), error


def _judge(variant: Variant, image: Image) -> None:
    """The image's parameters are the variant's arguments, in order."""
    folded = {one.name for one in variant.arguments if one.hint == 1} & image.ones
    wanted = [(one.name, one.type) for one in variant.arguments if one.name not in folded]
    found = [(one.name, one.type) for one in image.parameters if one.name]
    if str(image.target) != variant.target or wanted != found:
        raise UsageError(
            f"the image `{image.entry}` for {image.target} takes {found}, not {wanted}",
            hint="please report this: the functions would hand over the wrong values",
        )
    x, y, z = image.cluster
    if (y, z) != (1, 1) or (variant.backend == "hip" and x > 1):
        raise UsageError(f"clusters of {image.cluster} have no counterpart here")
    if variant.backend == "hip" and (image.cooperative or image.pdl):
        raise UsageError("cooperative and dependent launches are for CUDA only")


def _body(
    variant: Variant, grid: Sequence[Expression], image: Image, code: bytes
) -> dict[str, Any]:
    names = {argument.name: c_name(argument) for argument in variant.arguments}
    axes = [to_c(axis.root, names) for axis in grid]
    used = {name for axis in grid for name in axis.names()}
    kinds = [parameter.kind for parameter in image.parameters]
    halves = [one for one in variant.arguments if one.type in _HALVES]
    passed = [one for one in image.parameters if one.name]
    known = {*used, *(one.name for one in passed), *(a.name for a in variant.arguments if a.hint)}
    return {
        "image": image,
        "size": len(code),
        "literal": list(literal(code)),
        "grid": [*axes, *("1",) * (_AXES - len(axes))],
        "unused": [c_name(one) for one in variant.arguments if one.name not in known],
        "checks": list(_checks(variant)),
        "halves": {one.type for one in halves},
        "converted": [(c_name(one), f"kb_{one.type}") for one in halves],
        "kinds": kinds,
        "pointer": POINTERS[variant.backend],
        "parameters": list(_parameters(variant, image)),
        "attributes": list(_attributes(image)),
        "fits": _fits(image.target),
    }


def _parameters(variant: Variant, image: Image) -> Iterator[str]:
    arguments = {argument.name: argument for argument in variant.arguments}
    for parameter in image.parameters:
        if not parameter.name:
            yield f"&kb_{parameter.kind}"
        elif arguments[parameter.name].type in _HALVES:
            yield f"&kb_{c_name(arguments[parameter.name])}"
        else:
            yield f"&{c_name(arguments[parameter.name])}"


def _attributes(image: Image) -> Iterator[tuple[int, str, Any]]:
    if image.cluster[0] > 1:
        yield _CLUSTER, "size", image.cluster
        yield _SPREAD, "number", 1
    if image.cooperative:
        yield _COOPERATIVE, "number", 1
    if image.pdl:
        yield _PDL, "number", 1


def _fits(target: Target) -> str:
    """The C condition that a device of compute capability `major`.`minor` runs the image."""
    wanted = target.capability
    if wanted is None:
        return ""
    if target.kind == "ptx":
        return f"major * 10 + minor >= {wanted.major * 10 + wanted.minor}"
    sign = "==" if wanted.feature == "a" else ">="
    return f"(major == {wanted.major} && minor {sign} {wanted.minor})"
