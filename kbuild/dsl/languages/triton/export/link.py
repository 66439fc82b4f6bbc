"""Links exported images behind one function, which selects by device, hints and constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kbuild.dsl.languages.triton.export.c_source import (
    ERRORS,
    MARK,
    assumption_condition,
    c_type,
    prototype,
)
from kbuild.dsl.languages.triton.export.signature import ExportVariant, c_name
from kbuild.ops.unit import ImageTarget
from kbuild.system.errors import DamagedFileError, UsageError
from kbuild.system.files import FileSet
from kbuild.system.rendering import render
from kbuild.system.untrusted import parse_json, reading, reason_of

_KIND = "a header of `kbuild aot triton`"


@dataclass(frozen=True)
class ExportHeader:
    """A header that `kbuild aot triton` wrote."""

    path: str
    """Path on the command line."""
    variant: ExportVariant


def read_header(path: str, text: str) -> ExportHeader:
    """Parse the description of an image in a header.

    Raises:
        UsageError: the header was not written by `kbuild aot triton`.
    """
    line = next((line for line in text.splitlines() if line.startswith(MARK)), None)
    try:
        with reading(path, _KIND):
            if line is None:
                raise ValueError("it has no line `// kbuild-aot:`")
            data = parse_json(line.removeprefix(MARK), path, _KIND)
            return ExportHeader(path, ExportVariant.from_json(data))
    except DamagedFileError as error:
        hint = "give the headers that `kbuild aot triton` writes"
        raise UsageError(f"`{path}` cannot be linked: {reason_of(error)}", hint=hint) from error


def link(headers: Sequence[ExportHeader], stem: str) -> FileSet:
    """Generate the two files that link the images of one or more kernels.

    Algo 0 of a kernel is that of its first header.

    Raises:
        UsageError: they cannot be linked together.
    """
    variants = [header.variant for header in headers]
    _validate_headers(headers)
    names = dict.fromkeys(variant.name for variant in variants)
    groups = [_group(name, variants) for name in names]
    name = PurePosixPath(stem).name
    values = {
        "backend": variants[0].backend,
        "errors": ERRORS[variants[0].backend],
        "guard": f"KBUILD_AOT_{''.join(c if c.isalnum() else '_' for c in name).upper()}_H",
        "names": [*names],
        "groups": groups,
    }
    includes = [PurePosixPath(header.path).name for header in headers]
    source = render("export/link.c.j2", header=f"{name}.h", includes=includes, **values)
    return FileSet({f"{stem}.h": render("export/link.h.j2", **values), f"{stem}.c": source})


def _validate_headers(headers: Sequence[ExportHeader]) -> None:
    if not headers:
        raise UsageError("there are no headers to link")
    start = headers[0]
    first: dict[str, ExportHeader] = {}
    seen: dict[tuple[Any, ...], ExportHeader] = {}
    for header in headers:
        variant = header.variant
        if variant.backend != start.variant.backend:
            message = f"`{start.path}` is for {start.variant.backend}, `{header.path}` is not"
            raise UsageError(message, hint="link them separately: they use different drivers")
        known = first.setdefault(variant.name, header)
        ours, theirs = _c_parameter_types(known.variant), _c_parameter_types(variant)
        if ours != theirs:
            places = f"({ours}) in `{known.path}`, ({theirs}) in `{header.path}`"
            hint = "give them different names with --out-name"
            raise UsageError(f"`{variant.name}` has different arguments: {places}", hint=hint)
        calls = (variant.name, variant.target, variant.algo, variant.arguments)
        other = seen.setdefault(calls, header)
        if other is not header:
            message = f"`{other.path}` and `{header.path}` would be used for the same calls"
            raise UsageError(message, hint="leave one of them out")


def _c_parameter_types(variant: ExportVariant) -> str:
    """Types and names of the C function's parameters; C cannot distinguish types of pointers."""
    return ", ".join(f"{argument.type} {argument.name}" for argument in variant.arguments)


def _group(name: str, variants: Sequence[ExportVariant]) -> dict[str, Any]:
    named = [variant for variant in variants if variant.name == name]
    first = named[0]
    return {
        "name": name,
        "prototype": prototype(first),
        "call": ", ".join(["stream", *(c_name(argument) for argument in first.arguments)]),
        "types": [c_type(argument, first.backend) for argument in first.arguments],
        "algos": [_algo(algo, named) for algo in dict.fromkeys(variant.algo for variant in named)],
        "symbols": [variant.symbol for variant in named],
    }


def _algo(algo: tuple[str, ...], variants: Sequence[ExportVariant]) -> dict[str, Any]:
    with_algo = [variant for variant in variants if variant.algo == algo]
    targets = sorted({variant.target for variant in with_algo}, key=_order)
    return {
        "words": [word.replace("*/", "* /") for word in algo],
        "targets": targets,
        "by_target": [{"name": t, "variants": list(_by_hints(t, with_algo))} for t in targets],
    }


def _by_hints(target: str, variants: Sequence[ExportVariant]) -> Iterator[dict[str, str]]:
    """Yield variants with the most assumptions first; none is needed after one without any."""
    for_target = [variant for variant in variants if variant.target == target]
    for variant in sorted(
        for_target, key=lambda variant: -sum(bool(a.hint) for a in variant.arguments)
    ):
        conditions = [assumption_condition(a) for a in variant.arguments if a.hint]
        yield {"symbol": variant.symbol, "condition": " && ".join(conditions)}
        if not conditions:
            return


def _order(text: str) -> tuple[Any, ...]:
    """Sort key for targets: code before PTX, new archs before old, one chip before its family."""
    target = ImageTarget.parse(text)
    wanted = target.capability
    if wanted is None:
        return (text,)
    features = ("a", "f", "")
    return (target.kind == "ptx", -wanted.major, -wanted.minor, features.index(wanted.feature))
