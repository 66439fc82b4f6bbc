"""`kbuild aot cute`: a header, an object and a JSON description for each target.

Arguments are written so on the command line:

x=float16[M, N%8]@16      a tensor, row by row; N divisible by 8; its address by 16 bytes
x=float16[M, 64; S, 1]    with strides: any number S, and 1
n=i32  alpha=f32  flag=bool  shape=(i32, i64)
block=128  eps=1e-6  causal=true  wide=float32
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kbuild.dsl.compile_environment import json_digest
from kbuild.dsl.export import (
    RequestedUnits,
    export_compiler,
    find_function,
    paths_beside_first,
    targets_of_gpus,
)
from kbuild.dsl.languages.cute import DISTRIBUTION, Cute, facts_of, version_of
from kbuild.ops.bound_launch import BoundLaunch
from kbuild.ops.dtypes import DTYPES
from kbuild.ops.image import UnitImage
from kbuild.ops.language import ExportedFiles, Exporter, Flavour, flavour_of
from kbuild.ops.unit import ImageTarget, KernelUnit
from kbuild.system.errors import UsageError
from kbuild.system.files import FileSet
from kbuild.system.services import Services

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[^];]*)(?:;(?P<strides>[^]]*))?\](?:@(?P<align>\d+))?"
)
_SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*)?\s*(?:%\s*(?P<divisor>\d+))?")
_NUMBERS = {"i32": ("int", 32), "i64": ("int", 64), "f32": ("float", 0), "bool": ("bool", 0)}
_FORMS = "e.g. `x=float16[M, N%8]@16`, `n=i32`, `shape=(i32, i32)`, `block=128`"
_BOOLEANS = {"true": True, "false": False}


def read_arguments(texts: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Parse `--arg` options into arguments, in order, and constants for the worker's request.

    Raises:
        UsageError: an argument has the wrong form.
    """
    arguments: list[dict[str, Any]] = []
    constants: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise UsageError(f"--arg: `{text}` is not an argument", hint=_FORMS)
        if name in constants or any(other["name"] == name for other in arguments):
            raise UsageError(f"--arg: `{name}` is given twice")
        argument = _argument(name, value)
        if argument is None:
            constants[name] = _constant(text, value)
        else:
            arguments.append(argument)
    return arguments, constants


def _argument(name: str, value: str) -> dict[str, Any] | None:
    """Parse an argument; None for a constant."""
    if value.startswith("(") and value.endswith(")"):
        parts = [part.strip() for part in value[1:-1].split(",") if part.strip()]
        items = [_argument(f"{name}.{at}", part) for at, part in enumerate(parts)]
        if not items or None in items:
            raise UsageError(f"--arg: `{value}` is not a tuple of arguments", hint=_FORMS)
        return {"name": name, "kind": "tuple", "items": items}
    if value in _NUMBERS:
        kind, bits = _NUMBERS[value]
        return {"name": name, "kind": kind, **({"bits": bits} if bits else {})}
    match = _TENSOR.fullmatch(value)
    return None if match is None else _tensor(name, value, match)


def _tensor(name: str, text: str, match: re.Match[str]) -> dict[str, Any]:
    if match["dtype"] not in DTYPES:
        raise UsageError(f"--arg: `{match['dtype']}` is not a dtype", hint=", ".join(DTYPES))
    shape = _sizes(text, match["shape"], 32)
    strides = None if match["strides"] is None else _sizes(text, match["strides"], 64)
    if strides is not None and len(strides) != len(shape):
        raise UsageError(f"--arg: `{text}` has {len(shape)} dimensions and {len(strides)} strides")
    return {
        "name": name,
        "kind": "tensor",
        "dtype": match["dtype"],
        "align": int(match["align"] or 0),
        "shape": shape,
        "strides": strides,
    }


def _sizes(text: str, listed: str, bits: int) -> list[Any]:
    parts = [part.strip() for part in listed.split(",")]
    if not all(parts):
        raise UsageError(f"--arg: `{text}` lacks a size", hint=_FORMS)
    return [int(part) if part.isdecimal() else _size(text, part, bits) for part in parts]


def _size(text: str, part: str, bits: int) -> dict[str, Any]:
    match = _SIZE.fullmatch(part)
    if match is None or not match["name"]:
        raise UsageError(f"--arg: `{text}`: `{part}` is not a size", hint=_FORMS)
    return {"size": match["name"], "bits": bits, "divisor": int(match["divisor"] or 1)}


def _constant(text: str, value: str) -> Any:
    if value in _BOOLEANS:
        return _BOOLEANS[value]
    if value in DTYPES:
        return {"dtype": value}
    if value[0] == value[-1] and value[0] in "'\"" and len(value) > 1:
        return value[1:-1]
    # `int` first, since `float` reads integers too.
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    raise UsageError(f"--arg: `{text}` is neither an argument nor a constant", hint=_FORMS)


def describe_arguments(arguments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """JSON objects of the arguments that a call passes: dtypes, ranks, sizes, alignment."""
    descriptions = []
    for argument in arguments:
        if argument["kind"] == "tuple":
            descriptions += describe_arguments(argument["items"])
        elif argument["kind"] == "tensor":
            align = argument["align"] or DTYPES[argument["dtype"]]
            descriptions.append({**argument, "align": align})
        else:
            descriptions.append(dict(argument))
    return descriptions


_CUDA = re.compile(r"cuda:(\d{2,3})(?::32)?")
"""Target in the form of Triton's tools."""
_FORMAT = 1
_DIGEST_DIGITS = 8
"""Hexadecimal digits of the digest in a default prefix."""


@dataclass(frozen=True)
class CuteExport:
    """Options of `kbuild aot cute`."""

    name: str
    sources: tuple[str, ...]
    """File names in one folder; the file with the function is first."""
    arguments: tuple[str, ...]
    """Texts that `read_arguments` parses."""
    targets: tuple[ImageTarget, ...]
    toolchain: tuple[str, ...]
    flavour: Flavour
    out_name: str
    prefix: str | None = None
    """Prefix of the C functions' names; derived from `out_name`, target and request when None."""
    language: str = "cute"

    def requests(self) -> dict[KernelUnit, dict[str, Any]]:
        """Return a unit for each target, with the request to the worker.

        Raises:
            UsageError: an argument or the prefix has the wrong form.
        """
        if self.prefix is not None and not (self.prefix.isidentifier() and self.prefix.isascii()):
            raise UsageError(f"`{self.prefix}` cannot begin the name of a C function")
        if self.prefix is not None and len(self.targets) > 1:
            message = "--function-prefix works with one target only"
            raise UsageError(message, hint="export each target with a separate command")
        arguments, constants = read_arguments(self.arguments)
        asked = {
            "function": self.name,
            "version": version_of(self.toolchain),
            "arguments": arguments,
            "constants": constants,
            "options": {},
            "emit": "c",
        }
        name, targets = self.name, self.targets
        units = (KernelUnit(self.language, name, name, 0, (name,), t, ()) for t in targets)
        return {unit: self._request(asked, unit.target) for unit in units}

    def _request(self, asked: Mapping[str, Any], target: ImageTarget) -> dict[str, Any]:
        asked = {**asked, "arch": target.arch}
        # Exports of one function with other arguments can be linked into one program.
        digest = json_digest([self.flavour, asked])[:_DIGEST_DIGITS]
        return {**asked, "symbol": self.prefix or f"{self.out_name}_{target.arch}_{digest}"}


def parse_targets(texts: Sequence[str], toolchain: Sequence[str]) -> tuple[ImageTarget, ...]:
    """Parse targets, in order; `cuda:90` becomes `sm_90a` if the compiler supports that.

    Raises:
        UsageError: a text is not a target, or the compiler does not support it.
    """
    reason = Cute().unsupported_reason(toolchain)
    if reason:
        raise UsageError(f"--toolchain {reason}")
    return tuple(dict.fromkeys(_parse_target(text, toolchain) for text in texts))


def _parse_target(text: str, toolchain: Sequence[str]) -> ImageTarget:
    known = facts_of(toolchain)["archs"]
    if match := _CUDA.fullmatch(text):
        archs = [f"sm_{match[1]}a", f"sm_{match[1]}"]
        text = next(
            (arch for arch in archs if str(ImageTarget.parse(arch).capability) in known), archs[1]
        )
    try:
        target = ImageTarget.parse(text)
    except ValueError:
        raise UsageError(f"`{text}` is not a target", hint="e.g. `sm_80`, `sm_90a`") from None
    if target.kind != "cubin" or str(target.capability) not in known:
        hint = f"it makes code for {', '.join(known)}"
        raise UsageError(f"`{text}` is nothing that {toolchain[0]} compiles for", hint=hint)
    return target


class _RequestedCute(RequestedUnits, Cute):
    """CuTe DSL with units from a command line."""


def export_cute(
    order: CuteExport, root: Path, stem: str, services: Services
) -> tuple[FileSet, Path]:
    """Compile every target; return the files and the static runtime to link them with.

    Args:
        order: the options.
        root: folder of the sources.
        stem: path of the files without arch and suffix.
        services: access to processes, network and user.

    Raises:
        UsageError: an argument is wrong, or the function does not exist.
        BuildError: it cannot be imported or compiled.
        ToolchainError: the toolchain cannot be installed.
    """
    requests = order.requests()
    language = _RequestedCute(requests)
    with export_compiler(language, services) as compiler:
        functions = compiler.describe(order, root, order.targets)
        find_function(order.name, functions, order.sources[0], language.decorator)
        bound = BoundLaunch(order.name, (), ())
        images = compiler.compile(order, root, [(unit, bound) for unit in requests])
        place = compiler.prepare(order)
    (archive,) = language.linked(place.root, order.toolchain, order.flavour).archives
    return export_files([(image, requests[image.unit]) for image in images], stem), archive


class CuteExporter(Exporter):
    """See `Language.exporter`."""

    actions: ClassVar = {"cute": "write a header and an object for each target"}
    pin = f"{DISTRIBUTION}==4.8.1"

    def configure(self, group: _ArgumentGroup) -> None:
        """See `Exporter.configure`."""
        group.add_argument(
            "--arg",
            action="append",
            default=[],
            metavar="NAME=TYPE",
            help='an argument or constant: "x=float16[M, N%%8]@16", n=i32, alpha=f32, block=128',
        )
        group.add_argument(
            "--function-prefix",
            metavar="NAME",
            help="prefix of the C functions, for one target (default: the name, the "
            "target and a digest)",
        )
        group.add_argument(
            "--emit", choices=("c",), default="c", help="c: a header and an object (default)"
        )

    def export(self, args: Namespace, services: Services) -> ExportedFiles:
        """See `Exporter.export`."""
        if not args.kernel_name:
            raise UsageError("`kbuild aot cute` needs --function")
        targets = args.target or targets_of_gpus(services.runner, args.action, ("cuda",))
        name, toolchain = args.out_name or args.kernel_name, tuple(args.toolchain or (self.pin,))
        target = services.path(args.out_path or Path(name))
        paths = [services.path(path) for path in args.files]
        order = CuteExport(
            name=args.kernel_name,
            sources=paths_beside_first(paths),
            arguments=tuple(args.arg),
            targets=parse_targets(targets, toolchain),
            toolchain=toolchain,
            flavour=flavour_of("cuda", f"{args.cuda}.0"),
            out_name=name,
            prefix=args.function_prefix,
        )
        files, archive = export_cute(order, paths[0].parent, target.name, services)
        note = f"link them with {archive}, which is under NVIDIA's licence, and the CUDA runtime"
        return ExportedFiles(files, target.parent, {"runtime": str(archive)}, note)


def export_files(exports: Sequence[tuple[UnitImage, Mapping[str, Any]]], stem: str) -> FileSet:
    """`<stem>.<arch>.h`, `.o` and `.json` of each image; `exports` has the requests too."""
    files: dict[str, str | bytes] = {}
    for unit_image, request in exports:
        # The worker sends header and object as one: the header's length in the first line, then
        # both.
        length, _, rest = unit_image.code.partition(b"\n")
        header, code = rest[: int(length)], rest[int(length) :]
        path = f"{stem}.{unit_image.image.arch}"
        files[f"{path}.h"], files[f"{path}.o"] = header, code
        files[f"{path}.json"] = json.dumps(_description(unit_image, request), indent=2) + "\n"
    return FileSet(files)


def _description(unit_image: UnitImage, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "function": request["function"],
        "prefix": request["symbol"],
        "call": unit_image.image.entry,
        "arch": unit_image.image.arch,
        "arguments": [
            {**fact, "itemsize": DTYPES[fact["dtype"]]} if "dtype" in fact else fact
            for fact in describe_arguments(request["arguments"])
        ],
        "constants": dict(request["constants"]),
        "compiler": dict(unit_image.image.compiler),
    }
